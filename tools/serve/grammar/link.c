/* link.c: finishes a grammar's program: targets of calls, what depth each instruction needs to come
 * to an end, which bytes are told apart. */
#include <stdlib.h>
#include <string.h>

#include "program.h"

enum { NEVER = EB_MAX_DEPTH + 1 };

static int32_t find_targets(struct eb_program *p, ebro_error *err) {
    for (uint32_t pc = 0; pc < p->n_code; pc++) {
        struct eb_instr *in = &p->code[pc];
        if (in->op != EB_OP_CALL && in->op != EB_OP_REPEAT) continue;
        in->a = p->rules[in->a];
        if (in->a == 0)
            return eb_grammar_fail(err, EBRO_INTERNAL, "a rule of a grammar was never written");
    }
    return EBRO_OK;
}

static uint32_t behind_jumps(const struct eb_program *p, uint32_t pc) {
    /* Jumps in a circle, which only a schema that is refused could make, end somewhere too. */
    for (uint32_t n = 0; n < p->n_code && p->code[pc].op == EB_OP_JUMP; n++) pc = p->code[pc].a;
    return pc;
}

/* A call that a rule ends with needs no frame: then ways that differ in nothing but the rules that
 * they came through are one. */
static void jump_where_last(struct eb_program *p) {
    for (uint32_t pc = 0; pc < p->n_code; pc++) {
        struct eb_instr *in = &p->code[pc];
        if (in->op == EB_OP_CALL && p->code[behind_jumps(p, pc + 1)].op == EB_OP_RETURN)
            in->op = EB_OP_JUMP;
    }
}

/* ---- what a walk needs to end ------------------------------------------------------------- */

static uint32_t larger(uint32_t a, uint32_t b) {
    return a > b ? a : b;
}

static uint32_t height_at(const struct eb_program *p, uint32_t pc) {
    const struct eb_instr *in = &p->code[pc];
    const uint16_t *h = p->height;
    switch ((enum eb_op)in->op) {
        case EB_OP_FAIL:
            return NEVER;
        case EB_OP_STOP:
        case EB_OP_RETURN:
            return 0;
        case EB_OP_BYTE:
        case EB_OP_SET:
        case EB_OP_CONTROL:
            return h[pc + 1];
        case EB_OP_JUMP:
            return h[in->a];
        case EB_OP_FORK:
            return h[in->a] < h[in->b] ? h[in->a] : h[in->b];
        case EB_OP_CALL:
            return larger(h[in->a] + (uint32_t)in->cost, h[pc + 1]);
        case EB_OP_REPEAT:
            if (p->repeats[in->b].least == 0) return h[pc + 1];
            return larger(h[in->a] + (uint32_t)in->cost, h[pc + 1]);
    }
    return NEVER;
}

/* Heights come down from NEVER until none changes: at most EB_MAX_DEPTH rounds change the highest,
 * and most programs need three, for rules stand before or not far behind their calls. */
static int32_t find_heights(struct eb_program *p, ebro_error *err) {
    p->height = malloc(p->n_code * sizeof *p->height);
    if (p->height == NULL)
        return eb_grammar_fail(err, EBRO_NOMEM_HOST, "no memory for a grammar of %u steps",
                               p->n_code);
    for (uint32_t pc = 0; pc < p->n_code; pc++) p->height[pc] = NEVER;
    bool changed = true;
    while (changed) {
        changed = false;
        for (uint32_t pc = p->n_code; pc-- > 0;) {
            uint32_t height = height_at(p, pc);
            if (height >= p->height[pc]) continue;
            p->height[pc] = (uint16_t)height;
            changed = true;
        }
    }
    if (p->height[0] >= NEVER)
        return eb_grammar_fail(err, EBRO_INVALID,
                               "the schema allows no value, or none that is nested less than %d "
                               "deep",
                               EB_MAX_DEPTH / EB_RECURSION_COST);
    return EBRO_OK;
}

/* ---- rules that begin with themselves ----------------------------------------------------- */

enum colour { UNSEEN, ON_PATH, DONE };

/* Where a walk can be next without having read anything; what returns from a call has read. */
static uint32_t next_unread(const struct eb_program *p, uint32_t pc, uint32_t number) {
    const struct eb_instr *in = &p->code[pc];
    bool skips = in->op == EB_OP_REPEAT && p->repeats[in->b].least == 0;
    if (number == 0) {
        bool goes = in->op == EB_OP_JUMP || in->op == EB_OP_FORK || in->op == EB_OP_CALL ||
                    in->op == EB_OP_REPEAT;
        return goes ? in->a : UINT32_MAX;
    }
    if (number == 1 && in->op == EB_OP_FORK) return in->b;
    return number == 1 && skips ? pc + 1 : UINT32_MAX;
}

struct visit {
    uint32_t pc, number;
};

/* Depth first from one instruction, without recursion: a schema decides how deep it goes. */
static bool finds_cycle(const struct eb_program *p, uint32_t from, uint8_t *colour,
                        struct visit *path) {
    size_t n = 0;
    path[n++] = (struct visit){from, 0};
    colour[from] = ON_PATH;
    while (n > 0) {
        struct visit *top = &path[n - 1];
        uint32_t next = top->number < 2 ? next_unread(p, top->pc, top->number) : UINT32_MAX;
        if (top->number >= 2) {
            colour[top->pc] = DONE;
            n--;
            continue;
        }
        top->number++;
        if (next == UINT32_MAX || colour[next] == DONE) continue;
        if (colour[next] == ON_PATH) return true;
        colour[next] = ON_PATH;
        path[n++] = (struct visit){next, 0};
    }
    return false;
}

static int32_t refuse_cycles(const struct eb_program *p, ebro_error *err) {
    uint8_t *colour = calloc(p->n_code, 1);
    struct visit *path = malloc(p->n_code * sizeof *path);
    int32_t st = EBRO_OK;
    if (colour == NULL || path == NULL)
        st =
            eb_grammar_fail(err, EBRO_NOMEM_HOST, "no memory for a grammar of %u steps", p->n_code);
    for (uint32_t pc = 0; pc < p->n_code && st == EBRO_OK; pc++)
        if (colour[pc] == UNSEEN && finds_cycle(p, pc, colour, path))
            st = eb_grammar_fail(err, EBRO_INVALID,
                                 "a \"$ref\" of the schema leads back to itself, with nothing in "
                                 "between");
    free(colour);
    free(path);
    return st;
}

/* ---- classes of bytes --------------------------------------------------------------------- */

static void split_classes(struct eb_program *p, const struct eb_set *set) {
    uint32_t outside[256], n_before = p->n_classes;
    bool seen_in[256] = {false}, seen_out[256] = {false};
    for (int c = 0; c < 256; c++) (eb_set_has(set, c) ? seen_in : seen_out)[p->class_of[c]] = true;
    for (uint32_t i = 0; i < n_before; i++)
        outside[i] = seen_in[i] && seen_out[i] ? p->n_classes++ : i;
    if (p->n_classes == n_before) return;
    for (int c = 0; c < 256; c++)
        if (!eb_set_has(set, c)) p->class_of[c] = (uint8_t)outside[p->class_of[c]];
}

static void find_classes(struct eb_program *p) {
    bool alone[256] = {false};
    p->n_classes = 1;
    for (uint32_t i = 0; i < p->n_sets; i++) split_classes(p, &p->sets[i]);
    for (uint32_t pc = 0; pc < p->n_code; pc++)
        if (p->code[pc].op == EB_OP_BYTE) alone[p->code[pc].byte] = true;
    for (int c = 0; c < 256; c++) {
        if (!alone[c]) continue;
        struct eb_set set = {0};
        eb_set_add(&set, c, c);
        split_classes(p, &set);
    }
}

int32_t eb_program_link(struct eb_program *p, ebro_error *err) {
    int32_t st = find_targets(p, err);
    if (st == EBRO_OK) st = refuse_cycles(p, err);
    if (st == EBRO_OK) jump_where_last(p);
    if (st == EBRO_OK) st = find_heights(p, err);
    if (st == EBRO_OK) find_classes(p);
    return st;
}
