/* program.c: builds a grammar's program; link.c finishes it. */
#include "program.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rules.h"

/* Names from a request may stand in a text, cut where it was full: it stays UTF-8 and one line. */
static void clean(char *text) {
    enum eb_utf8 at = EB_UTF8_START;
    char *start = text;
    for (char *c = text; *c != '\0'; c++) {
        at = eb_utf8_next(at, (unsigned char)*c);
        if (at == EB_UTF8_BAD || (unsigned char)*c < 0x20) {
            at = EB_UTF8_START;
            c = start; /* what is wrong may have begun before */
            *c = '?';
        }
        if (at == EB_UTF8_START) start = c + 1;
    }
    if (at != EB_UTF8_START) *start = '\0';
}

static void write_error(ebro_error *err, int32_t status, const char *fmt, va_list args) {
    if (err == NULL) return;
    err->status = status;
    vsnprintf(err->text, sizeof err->text, fmt, args);
    clean(err->text);
}

int32_t eb_grammar_fail(ebro_error *err, int32_t status, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    write_error(err, status, fmt, args);
    va_end(args);
    return status;
}

int32_t eb_build_fail(struct eb_builder *b, int32_t status, const char *fmt, ...) {
    if (b->st != EBRO_OK) return b->st;
    va_list args;
    va_start(args, fmt);
    write_error(b->err, status, fmt, args);
    va_end(args);
    return b->st = status;
}

bool eb_grammar_grow(void *array, size_t *room, size_t need, size_t element) {
    if (need <= *room) return true;
    size_t more = *room < 16 ? 16 : *room;
    while (more < need) {
        if (more > SIZE_MAX / 2 / element) return false;
        more *= 2;
    }
    /* The caller's pointer may be of any type: it is read and written as bytes. */
    void *old = NULL;
    memcpy(&old, array, sizeof old);
    void *p = realloc(old, more * element);
    if (p == NULL) return false;
    memcpy(array, &p, sizeof p);
    *room = more;
    return true;
}

void eb_program_clear(struct eb_program *p) {
    free(p->code);
    free(p->sets);
    free(p->repeats);
    free(p->rules);
    free(p->height);
    *p = (struct eb_program){0};
}

/* ---- instructions ------------------------------------------------------------------------- */

uint32_t eb_build_here(const struct eb_builder *b) {
    return b->p->n_code;
}

static bool room_for(struct eb_builder *b, void *array, size_t *room, uint32_t n, uint32_t most,
                     size_t element) {
    if (b->st != EBRO_OK) return false;
    if (n >= most)
        eb_build_fail(b, EBRO_INVALID,
                      "the schema is too large: it takes more than %u steps of a grammar", most);
    else if (!eb_grammar_grow(array, room, (size_t)n + 1, element))
        eb_build_fail(b, EBRO_NOMEM_HOST, "no memory for a grammar of %u steps", n);
    return b->st == EBRO_OK;
}

uint32_t eb_build_put(struct eb_builder *b, struct eb_instr in) {
    struct eb_program *p = b->p;
    if (!room_for(b, &p->code, &p->code_room, p->n_code, EB_MAX_CODE, sizeof in)) return 0;
    p->code[p->n_code] = in;
    return p->n_code++;
}

void eb_build_byte(struct eb_builder *b, int byte) {
    eb_build_put(b, (struct eb_instr){.op = EB_OP_BYTE, .byte = (uint8_t)byte});
}

void eb_build_bytes(struct eb_builder *b, const char *p, size_t n) {
    for (size_t i = 0; i < n && b->st == EBRO_OK; i++) eb_build_byte(b, (unsigned char)p[i]);
}

void eb_build_text(struct eb_builder *b, const char *text) {
    eb_build_bytes(b, text, strlen(text));
}

void eb_set_add(struct eb_set *set, int first, int last) {
    for (int c = first; c <= last; c++) set->bits[c / 32] |= UINT32_C(1) << (c % 32);
}

bool eb_set_has(const struct eb_set *set, int byte) {
    return (set->bits[byte / 32] >> (byte % 32) & 1) != 0;
}

/* The same sets come again soon, so that looking back a little finds nearly all of them. */
static uint32_t number_of(struct eb_builder *b, const struct eb_set *set) {
    enum { LOOK_BACK = 64 };
    struct eb_program *p = b->p;
    uint32_t stop = p->n_sets > LOOK_BACK ? p->n_sets - LOOK_BACK : 0;
    for (uint32_t i = p->n_sets; i-- > stop;)
        if (memcmp(&p->sets[i], set, sizeof *set) == 0) return i;
    if (!room_for(b, &p->sets, &p->sets_room, p->n_sets, EB_MAX_SETS, sizeof *set)) return 0;
    p->sets[p->n_sets] = *set;
    return p->n_sets++;
}

void eb_build_set(struct eb_builder *b, const struct eb_set *set) {
    uint32_t number = number_of(b, set);
    eb_build_put(b, (struct eb_instr){.op = EB_OP_SET, .a = number});
}

void eb_build_range(struct eb_builder *b, int first, int last) {
    struct eb_set set = {0};
    eb_set_add(&set, first, last);
    eb_build_set(b, &set);
}

void eb_build_control(struct eb_builder *b, int32_t id) {
    eb_build_put(b, (struct eb_instr){.op = EB_OP_CONTROL, .a = (uint32_t)id});
}

void eb_build_jump(struct eb_builder *b, uint32_t to) {
    eb_build_put(b, (struct eb_instr){.op = EB_OP_JUMP, .a = to});
}

void eb_build_fail_here(struct eb_builder *b) {
    eb_build_put(b, (struct eb_instr){.op = EB_OP_FAIL});
}

/* After a failure places mean nothing. */
static void set_a(struct eb_builder *b, uint32_t pc, uint32_t to) {
    if (b->st == EBRO_OK) b->p->code[pc].a = to;
}

static void set_b(struct eb_builder *b, uint32_t pc, uint32_t to) {
    if (b->st == EBRO_OK) b->p->code[pc].b = to;
}

uint32_t eb_build_fork(struct eb_builder *b) {
    uint32_t fork = eb_build_put(b, (struct eb_instr){.op = EB_OP_FORK});
    set_a(b, fork, fork + 1);
    return fork;
}

void eb_fork_to(struct eb_builder *b, uint32_t fork, uint32_t to) {
    set_b(b, fork, to);
}

void eb_fork_here(struct eb_builder *b, uint32_t fork) {
    eb_fork_to(b, fork, eb_build_here(b));
}

void eb_fork_first_here(struct eb_builder *b, uint32_t fork) {
    set_a(b, fork, eb_build_here(b));
}

uint32_t eb_loop_begin(struct eb_builder *b) {
    return eb_build_fork(b);
}

void eb_loop_end(struct eb_builder *b, uint32_t loop) {
    eb_build_jump(b, loop);
    eb_fork_here(b, loop);
}

/* ---- alternatives ------------------------------------------------------------------------- */

/* A jump to the end stands at the front, so that options need no list of what to patch. */
void eb_alt_begin(struct eb_builder *b, struct eb_alt *alt) {
    uint32_t over = eb_build_put(b, (struct eb_instr){.op = EB_OP_JUMP});
    alt->exit = eb_build_put(b, (struct eb_instr){.op = EB_OP_JUMP});
    alt->fork = 0;
    set_a(b, over, eb_build_here(b));
}

void eb_alt_option(struct eb_builder *b, struct eb_alt *alt) {
    if (alt->fork != 0) {
        eb_build_jump(b, alt->exit);
        set_b(b, alt->fork, eb_build_here(b));
    }
    alt->fork = eb_build_put(b, (struct eb_instr){.op = EB_OP_FORK});
    set_a(b, alt->fork, eb_build_here(b));
}

void eb_alt_end(struct eb_builder *b, struct eb_alt *alt) {
    if (alt->fork != 0) eb_build_jump(b, alt->exit);
    uint32_t last = eb_build_put(b, (struct eb_instr){.op = EB_OP_FAIL});
    if (alt->fork != 0) set_b(b, alt->fork, last);
    set_a(b, alt->exit, eb_build_here(b));
}

/* ---- rules -------------------------------------------------------------------------------- */

uint32_t eb_rule_declare(struct eb_builder *b) {
    struct eb_program *p = b->p;
    if (!room_for(b, &p->rules, &p->rules_room, p->n_rules, EB_MAX_CODE, sizeof *p->rules))
        return 0;
    p->rules[p->n_rules] = 0;
    return p->n_rules++;
}

uint32_t eb_rule_begin(struct eb_builder *b, uint32_t rule) {
    uint32_t over = eb_build_put(b, (struct eb_instr){.op = EB_OP_JUMP});
    if (b->st == EBRO_OK) b->p->rules[rule] = eb_build_here(b);
    return over;
}

void eb_rule_end(struct eb_builder *b, uint32_t begun) {
    eb_build_put(b, (struct eb_instr){.op = EB_OP_RETURN});
    set_a(b, begun, eb_build_here(b));
}

void eb_build_call(struct eb_builder *b, uint32_t rule, int cost) {
    eb_build_put(b, (struct eb_instr){.op = EB_OP_CALL, .cost = (uint16_t)cost, .a = rule});
}

void eb_build_repeat(struct eb_builder *b, uint32_t rule, uint32_t least, uint32_t most) {
    struct eb_program *p = b->p;
    if (most == 0) return;
    if (!room_for(b, &p->repeats, &p->repeats_room, p->n_repeats, EB_MAX_CODE, sizeof *p->repeats))
        return;
    p->repeats[p->n_repeats] = (struct eb_repeat){least, most};
    eb_build_put(b, (struct eb_instr){
                        .op = EB_OP_REPEAT, .cost = EB_CALL_COST, .a = rule, .b = p->n_repeats++});
}
