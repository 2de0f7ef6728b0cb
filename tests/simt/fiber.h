/* fiber.h: threads of control that hand over to each other by a call: here x86-64's own few lines,
 * elsewhere the C library's contexts, which ask the system each time. */
#ifndef EB_TESTS_SIMT_FIBER_H
#define EB_TESTS_SIMT_FIBER_H

#include <cstddef>

namespace simt {

struct fiber {
    void *state; /* where it left off */
};

/* Makes `f` begin with entry() on that stack, which never returns. */
void fiber_make(fiber *f, void *stack, size_t bytes, void (*entry)());
/* Leaves off in `from`, goes on in `to`. */
void fiber_switch(fiber *from, fiber *to);

}  // namespace simt

#endif
