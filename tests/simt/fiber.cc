/* fiber.cc: see fiber.h. */
#include "tests/simt/fiber.h"

#ifdef __x86_64__

#include <cstdint>

/* The registers that a call must keep (System V AMD64 ABI) go to the stack that is left, and come
 * from the other; the return address is there already. */
asm(".text\n"
    ".hidden simt_switch\n"
    ".globl simt_switch\n"
    "simt_switch:\n"
    "    pushq %rbp\n    pushq %rbx\n    pushq %r12\n    pushq %r13\n    pushq %r14\n    pushq "
    "%r15\n"
    "    movq %rsp, (%rdi)\n"
    "    movq (%rsi), %rsp\n"
    "    popq %r15\n    popq %r14\n    popq %r13\n    popq %r12\n    popq %rbx\n    popq %rbp\n"
    "    ret\n");
extern "C" void simt_switch(void **from, void **to);

void simt::fiber_make(fiber *f, void *stack, size_t bytes, void (*entry)()) {
    /* As if entry had been called from nowhere: the stack's end is 16-byte aligned less a return
     * address. */
    uintptr_t top = ((uintptr_t)stack + bytes) / 16 * 16;
    void **at = (void **)top;
    *--at = nullptr;
    *--at = (void *)entry;
    for (int i = 0; i < 6; i++) *--at = nullptr;
    f->state = at;
}

void simt::fiber_switch(fiber *from, fiber *to) {
    simt_switch(&from->state, &to->state);
}

#else

#include <ucontext.h>

#include <new>

void simt::fiber_make(fiber *f, void *stack, size_t bytes, void (*entry)()) {
    if (f->state == nullptr) f->state = new ucontext_t;
    ucontext_t *c = (ucontext_t *)f->state;
    getcontext(c);
    c->uc_stack.ss_sp = stack;
    c->uc_stack.ss_size = bytes;
    c->uc_link = nullptr;
    makecontext(c, entry, 0);
}

void simt::fiber_switch(fiber *from, fiber *to) {
    if (from->state == nullptr) from->state = new ucontext_t;
    swapcontext((ucontext_t *)from->state, (ucontext_t *)to->state);
}

#endif
