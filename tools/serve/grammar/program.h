/* program.h: a grammar as a program: instructions that read bytes and control tokens, fork, and
 * call rules. Built piece by piece, then linked once. Knows neither JSON nor chat formats. */
#ifndef EB_PROGRAM_H
#define EB_PROGRAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ebro/ebro.h"

/* Frames weigh what their call says. A walk is never in more than EB_MAX_DEPTH at once, and never
 * comes to where it would have to be: so rules may call themselves, and no walk ends in a dead end.
 */
enum { EB_MAX_DEPTH = 256, EB_CALL_COST = 1, EB_RECURSION_COST = 4 };
/* Bounds of a program, for any input. */
enum { EB_MAX_CODE = 1 << 18, EB_MAX_SETS = 1 << 14 };

#define EB_UNBOUNDED UINT32_MAX

enum eb_op {
    EB_OP_FAIL,    /* goes nowhere */
    EB_OP_BYTE,    /* reads `byte` */
    EB_OP_SET,     /* reads a byte of sets[a] */
    EB_OP_CONTROL, /* reads control token a */
    EB_OP_STOP,    /* reads a stop token; nothing follows */
    EB_OP_FORK,    /* goes on at a and at b */
    EB_OP_JUMP,    /* goes on at a */
    EB_OP_CALL,    /* goes through rule a (linked: its first instruction), then on */
    EB_OP_REPEAT,  /* the same, repeats[b].least to repeats[b].most times */
    EB_OP_RETURN   /* ends a rule */
};

struct eb_instr {
    uint8_t op, byte;
    uint16_t cost; /* CALL, REPEAT: what the frame weighs */
    uint32_t a, b;
};

struct eb_set {
    uint32_t bits[8];
};

struct eb_repeat {
    uint32_t least, most;
};

struct eb_program {
    struct eb_instr *code;
    struct eb_set *sets;
    struct eb_repeat *repeats;
    uint32_t *rules; /* first instruction of each; 0: not written yet */
    /* Depth beyond its own that a walk at each instruction needs to end; EB_MAX_DEPTH + 1: it never
     * ends. */
    uint16_t *height;
    uint32_t n_code, n_sets, n_repeats, n_rules;
    size_t code_room, sets_room, repeats_room, rules_room;
    /* Bytes that no instruction tells apart are one class. */
    uint8_t class_of[256];
    uint32_t n_classes;
};

/* ---- building ----------------------------------------------------------------------------- */

/* After a first failure, kept in st and *err, calls do nothing and give 0. */
struct eb_builder {
    struct eb_program *p;
    ebro_error *err;
    int32_t st;
};

void eb_program_clear(struct eb_program *p);
/* Writes the text and returns the status, also kept in b. Only the first one counts. */
int32_t eb_build_fail(struct eb_builder *b, int32_t status, const char *fmt, ...);

uint32_t eb_build_here(const struct eb_builder *b);
uint32_t eb_build_put(struct eb_builder *b, struct eb_instr in); /* where it stands */
void eb_build_byte(struct eb_builder *b, int byte);
void eb_build_bytes(struct eb_builder *b, const char *p, size_t n);
void eb_build_text(struct eb_builder *b, const char *text);
void eb_build_set(struct eb_builder *b, const struct eb_set *set);
void eb_build_range(struct eb_builder *b, int first, int last);
void eb_build_control(struct eb_builder *b, int32_t id);
void eb_build_jump(struct eb_builder *b, uint32_t to);
void eb_build_fail_here(struct eb_builder *b);
/* Goes on behind it, and where eb_fork_to or eb_fork_here says. */
uint32_t eb_build_fork(struct eb_builder *b);
void eb_fork_to(struct eb_builder *b, uint32_t fork, uint32_t to);
void eb_fork_here(struct eb_builder *b, uint32_t fork);
void eb_fork_first_here(struct eb_builder *b, uint32_t fork); /* instead of behind it */
/* Any number of times what stands between them. */
uint32_t eb_loop_begin(struct eb_builder *b);
void eb_loop_end(struct eb_builder *b, uint32_t loop);

void eb_set_add(struct eb_set *set, int first, int last);
bool eb_set_has(const struct eb_set *set, int byte);

/* Alternatives: begin, then for each option: option, its code (which falls through); then end. Code
 * goes on behind the end. Without options nothing passes. */
struct eb_alt {
    uint32_t exit; /* jump here to leave */
    uint32_t fork; /* of the option before; 0: none */
};
void eb_alt_begin(struct eb_builder *b, struct eb_alt *alt);
void eb_alt_option(struct eb_builder *b, struct eb_alt *alt);
void eb_alt_end(struct eb_builder *b, struct eb_alt *alt);

/* Rules can be called before they are written, and written anywhere: what runs into one jumps over
 * it. A rule must read something. */
uint32_t eb_rule_declare(struct eb_builder *b);
uint32_t eb_rule_begin(struct eb_builder *b, uint32_t rule); /* for eb_rule_end */
void eb_rule_end(struct eb_builder *b, uint32_t begun);
void eb_build_call(struct eb_builder *b, uint32_t rule, int cost);
void eb_build_repeat(struct eb_builder *b, uint32_t rule, uint32_t least, uint32_t most);

/* ---- linking ------------------------------------------------------------------------------ */

/* All rules are written: finds calls' targets, heights and classes. INVALID where a rule begins
 * with itself, or where no walk ends. */
int32_t eb_program_link(struct eb_program *p, ebro_error *err);

/* ---- memory ------------------------------------------------------------------------------- */

/* Room for `need` elements in a growing array; false: out of memory, and the array is as before. */
bool eb_grammar_grow(void *array, size_t *room, size_t need, size_t element);
/* Writes err (if not NULL) and returns the status. */
int32_t eb_grammar_fail(ebro_error *err, int32_t status, const char *fmt, ...);

#endif
