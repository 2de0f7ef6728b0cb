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

/* Jumps over rules stand in long rows: from the back, each one is told where the row ends. */
static void shorten_jumps(struct eb_program *p) {
    for (uint32_t pc = p->n_code; pc-- > 0;) {
        struct eb_instr *in = &p->code[pc];
        if (in->op != EB_OP_JUMP || in->a <= pc) continue;
        if (p->code[in->a].op == EB_OP_JUMP) in->a = p->code[in->a].a;
    }
}

/* There is no circle of jumps alone: what would be one was refused. */
static uint32_t behind_jumps(const struct eb_program *p, uint32_t pc) {
    while (p->code[pc].op == EB_OP_JUMP) pc = p->code[pc].a;
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

/* The instructions that a height comes from; true: from all of them, else from the least. */
static bool sources(const struct eb_program *p, uint32_t pc, uint32_t out[2], uint32_t *n) {
    const struct eb_instr *in = &p->code[pc];
    *n = 0;
    switch ((enum eb_op)in->op) {
        case EB_OP_FAIL:
        case EB_OP_STOP:
        case EB_OP_RETURN:
            return false;
        case EB_OP_JUMP:
            out[(*n)++] = in->a;
            return false;
        case EB_OP_FORK:
            out[(*n)++] = in->a;
            out[(*n)++] = in->b;
            return false;
        case EB_OP_REPEAT:
            if (p->repeats[in->b].least == 0) break;
            out[(*n)++] = in->a;
            break;
        case EB_OP_CALL:
            out[(*n)++] = in->a;
            break;
        case EB_OP_BYTE:
        case EB_OP_SET:
        case EB_OP_CONTROL:
            break;
    }
    out[(*n)++] = pc + 1;
    return true;
}

enum { N_LEVELS = EB_MAX_DEPTH + 1 };
#define NO_ONE UINT32_MAX

/* Instructions by height, and who waits for each of them. */
struct levels {
    uint32_t head[N_LEVELS];
    uint32_t *next;         /* [n] of the same height */
    uint32_t *first, *user; /* users of pc: user[first[pc]] up to user[first[pc + 1]] */
    uint8_t *known;         /* [n] sources whose height is known */
};

/* Counted two further on, summed up, then filled in one further on: so that each part's end, once
 * filled, is where the next one begins. */
static void find_users(const struct eb_program *p, struct levels *l) {
    uint32_t from[2], n;
    for (uint32_t pc = 0; pc < p->n_code; pc++) {
        sources(p, pc, from, &n);
        for (uint32_t i = 0; i < n; i++) l->first[from[i] + 2]++;
    }
    for (uint32_t i = 2; i < p->n_code + 2; i++) l->first[i] += l->first[i - 1];
    for (uint32_t pc = 0; pc < p->n_code; pc++) {
        sources(p, pc, from, &n);
        for (uint32_t i = 0; i < n; i++) l->user[l->first[from[i] + 1]++] = pc;
    }
}

static void settle(struct eb_program *p, struct levels *l, uint32_t pc) {
    uint32_t height = height_at(p, pc);
    if (height > EB_MAX_DEPTH) return;
    p->height[pc] = (uint16_t)height;
    l->next[pc] = l->head[height];
    l->head[height] = pc;
}

/* What waits for pc: for nothing else, or for nothing that is not known by now. */
static void tell_users(struct eb_program *p, struct levels *l, uint32_t pc) {
    uint32_t from[2], n;
    for (uint32_t i = l->first[pc]; i < l->first[pc + 1]; i++) {
        uint32_t user = l->user[i];
        bool all = sources(p, user, from, &n);
        if (++l->known[user] == (all ? n : 1)) settle(p, l, user);
    }
}

/* From the lowest up: no height comes from a higher one, so each is final when it is found (Knuth's
 * generalisation of Dijkstra's algorithm, 1977). */
static void raise_levels(struct eb_program *p, struct levels *l) {
    for (uint32_t i = 0; i < N_LEVELS; i++) l->head[i] = NO_ONE;
    for (uint32_t pc = 0; pc < p->n_code; pc++) {
        p->height[pc] = NEVER;
        if (p->code[pc].op == EB_OP_STOP || p->code[pc].op == EB_OP_RETURN) settle(p, l, pc);
    }
    for (uint32_t i = 0; i < N_LEVELS; i++)
        while (l->head[i] != NO_ONE) {
            uint32_t pc = l->head[i];
            l->head[i] = l->next[pc];
            tell_users(p, l, pc);
        }
}

static int32_t find_heights(struct eb_program *p, ebro_error *err) {
    struct levels l = {.next = malloc(p->n_code * sizeof *l.next),
                       .first = calloc((size_t)p->n_code + 2, sizeof *l.first),
                       .user = malloc((size_t)p->n_code * 2 * sizeof *l.user),
                       .known = calloc(p->n_code, 1)};
    p->height = malloc(p->n_code * sizeof *p->height);
    bool good = l.next && l.first && l.user && l.known && p->height;
    if (good) {
        find_users(p, &l);
        raise_levels(p, &l);
    }
    free(l.next);
    free(l.first);
    free(l.user);
    free(l.known);
    if (!good)
        return eb_grammar_fail(err, EBRO_NOMEM_HOST, "no memory for a grammar of %u steps",
                               p->n_code);
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
    if (st == EBRO_OK) shorten_jumps(p);
    if (st == EBRO_OK) jump_where_last(p);
    if (st == EBRO_OK) st = find_heights(p, err);
    if (st == EBRO_OK) find_classes(p);
    return st;
}
