/* states.c: see states.h. */
#include "states.h"

#include <stdlib.h>
#include <string.h>

/* ---- hashing ------------------------------------------------------------------------------ */

static uint64_t mix(uint64_t h, uint64_t v) {
    h = (h ^ v) * UINT64_C(0x9e3779b97f4a7c15);
    return h ^ h >> 29;
}

static uint64_t hash_frame(const struct eb_frame *f) {
    return mix(mix(mix(1, f->parent), f->pc), f->count);
}

static uint64_t hash_places(const struct eb_place *p, uint32_t n) {
    uint64_t h = n;
    for (uint32_t i = 0; i < n; i++) h = mix(h, (uint64_t)p[i].pc << 32 | p[i].frame);
    return h;
}

static uint64_t hash_member(const struct eb_states *s, bool frames, uint32_t number) {
    if (frames) return hash_frame(&s->frames[number]);
    return hash_places(s->places + s->states[number].first, s->states[number].n);
}

static void hash_place(struct eb_hash *h, uint64_t hash, uint32_t number) {
    size_t i = hash & (h->room - 1);
    while (h->slots[i] != 0) i = (i + 1) & (h->room - 1);
    h->slots[i] = number + 1;
}

/* Keeps it half empty; false: out of memory. */
static bool hash_reserve(struct eb_states *s, struct eb_hash *h, bool frames) {
    if ((h->n + 1) * 2 <= h->room) return true;
    struct eb_hash more = {.room = h->room == 0 ? 64 : h->room * 2, .n = h->n};
    size_t used = 0;
    if (!eb_grammar_grow(&more.slots, &used, more.room, sizeof *more.slots)) return false;
    memset(more.slots, 0, more.room * sizeof *more.slots);
    for (size_t i = 0; i < h->room; i++)
        if (h->slots[i] != 0)
            hash_place(&more, hash_member(s, frames, h->slots[i] - 1), h->slots[i] - 1);
    free(h->slots);
    *h = more;
    return true;
}

/* ---- frames ------------------------------------------------------------------------------- */

enum { NO_FRAME = 0 };

static uint32_t failed(struct eb_states *s, int32_t status) {
    if (s->failure == EBRO_OK) s->failure = status;
    return NO_FRAME;
}

/* NO_FRAME, the bottom, is never what is looked for: it means failure. */
static uint32_t find_frame(struct eb_states *s, uint32_t parent, uint32_t pc, uint32_t count) {
    uint32_t depth = s->frames[parent].depth + s->p->code[pc].cost;
    struct eb_frame f = {parent, pc, count, depth};
    struct eb_hash *h = &s->frame_hash;
    if (!hash_reserve(s, h, true)) return failed(s, EBRO_NOMEM_HOST);
    uint64_t hash = hash_frame(&f);
    for (size_t i = hash & (h->room - 1); h->slots[i] != 0; i = (i + 1) & (h->room - 1)) {
        const struct eb_frame *have = &s->frames[h->slots[i] - 1];
        if (have->parent == parent && have->pc == pc && have->count == count)
            return h->slots[i] - 1;
    }
    if (s->n_frames >= EB_MAX_FRAMES) return failed(s, EBRO_UNSUPPORTED);
    if (!eb_grammar_grow(&s->frames, &s->frames_room, (size_t)s->n_frames + 1, sizeof f))
        return failed(s, EBRO_NOMEM_HOST);
    s->frames[s->n_frames] = f;
    hash_place(h, hash, s->n_frames);
    h->n++;
    return s->n_frames++;
}

/* ---- closure: all places that are come to without reading --------------------------------- */

/* Room for the places that a closure goes through on its way to those that read. */
enum { MAX_SEEN = 8 * EB_MAX_PLACES };

static bool seen_reserve(struct eb_states *s) {
    if ((s->n_seen + 1) * 2 <= s->seen_room) return true;
    size_t room = s->seen_room == 0 ? 64 : s->seen_room * 2, used = 0;
    struct eb_seen *more = NULL;
    if (!eb_grammar_grow(&more, &used, room, sizeof *more)) return false;
    memset(more, 0, room * sizeof *more);
    for (size_t i = 0; i < s->seen_room; i++) {
        const struct eb_seen *old = &s->seen[i];
        if (old->stamp != s->stamp) continue;
        size_t at = hash_places(&old->place, 1) & (room - 1);
        while (more[at].stamp != 0) at = (at + 1) & (room - 1);
        more[at] = *old;
    }
    free(s->seen);
    s->seen = more;
    s->seen_room = room;
    return true;
}

/* True where the place is new. */
static bool first_seen(struct eb_states *s, struct eb_place place) {
    if (s->n_seen >= MAX_SEEN) {
        failed(s, EBRO_UNSUPPORTED);
        return false;
    }
    if (!seen_reserve(s)) {
        failed(s, EBRO_NOMEM_HOST);
        return false;
    }
    size_t at = hash_places(&place, 1) & (s->seen_room - 1);
    for (; s->seen[at].stamp == s->stamp; at = (at + 1) & (s->seen_room - 1))
        if (s->seen[at].place.pc == place.pc && s->seen[at].place.frame == place.frame)
            return false;
    s->seen[at] = (struct eb_seen){place, s->stamp};
    s->n_seen++;
    return true;
}

static void go_to(struct eb_states *s, uint32_t pc, uint32_t frame) {
    struct eb_place place = {pc, frame};
    if (s->failure != EBRO_OK) return;
    if (s->frames[frame].depth + s->p->height[pc] > EB_MAX_DEPTH) return;
    if (!first_seen(s, place)) return;
    if (!eb_grammar_grow(&s->todo, &s->todo_room, s->n_todo + 1, sizeof place)) {
        failed(s, EBRO_NOMEM_HOST);
        return;
    }
    s->todo[s->n_todo++] = place;
}

static void enter(struct eb_states *s, uint32_t parent, uint32_t pc, uint32_t count) {
    uint32_t frame = find_frame(s, parent, pc, count);
    if (frame != NO_FRAME) go_to(s, s->p->code[pc].a, frame);
}

/* `count` times are over. What has no upper bound is not counted beyond its lower one, so that
 * states come again. */
static void repeat(struct eb_states *s, uint32_t parent, uint32_t pc, uint32_t count) {
    const struct eb_repeat *r = &s->p->repeats[s->p->code[pc].b];
    if (r->most == EB_UNBOUNDED && count > r->least) count = r->least;
    if (count >= r->least) go_to(s, pc + 1, parent);
    if (count < r->most) enter(s, parent, pc, count);
}

static void go_back(struct eb_states *s, uint32_t frame) {
    struct eb_frame f = s->frames[frame];
    if (s->p->code[f.pc].op == EB_OP_REPEAT)
        repeat(s, f.parent, f.pc, f.count + 1);
    else
        go_to(s, f.pc + 1, f.parent);
}

static void keep_place(struct eb_states *s, struct eb_place place, uint32_t first) {
    if (s->n_places - first >= EB_MAX_PLACES || s->n_places >= EB_MAX_ALL_PLACES)
        failed(s, EBRO_UNSUPPORTED);
    else if (!eb_grammar_grow(&s->places, &s->places_room, (size_t)s->n_places + 1, sizeof place))
        failed(s, EBRO_NOMEM_HOST);
    else
        s->places[s->n_places++] = place;
}

/* Goes on from all that stands in todo; places that read are put behind `first`. */
static void close_over(struct eb_states *s, uint32_t first) {
    while (s->n_todo > 0 && s->failure == EBRO_OK) {
        struct eb_place at = s->todo[--s->n_todo];
        const struct eb_instr *in = &s->p->code[at.pc];
        switch ((enum eb_op)in->op) {
            case EB_OP_FAIL:
                break;
            case EB_OP_BYTE:
            case EB_OP_SET:
            case EB_OP_CONTROL:
            case EB_OP_STOP:
                keep_place(s, at, first);
                break;
            case EB_OP_JUMP:
                go_to(s, in->a, at.frame);
                break;
            case EB_OP_FORK:
                go_to(s, in->a, at.frame);
                go_to(s, in->b, at.frame);
                break;
            case EB_OP_CALL:
                enter(s, at.frame, at.pc, 0);
                break;
            case EB_OP_REPEAT:
                repeat(s, at.frame, at.pc, 0);
                break;
            case EB_OP_RETURN:
                go_back(s, at.frame);
                break;
        }
    }
}

/* ---- states ------------------------------------------------------------------------------- */

static int by_place(const void *a, const void *b) {
    const struct eb_place *p = a, *q = b;
    if (p->pc != q->pc) return p->pc < q->pc ? -1 : 1;
    return p->frame < q->frame ? -1 : p->frame > q->frame;
}

static int32_t find_state(struct eb_states *s, uint64_t hash, uint32_t first, uint32_t n) {
    const struct eb_hash *h = &s->state_hash;
    for (size_t i = hash & (h->room - 1); h->slots[i] != 0; i = (i + 1) & (h->room - 1)) {
        const struct eb_state *have = &s->states[h->slots[i] - 1];
        if (have->n == n &&
            memcmp(s->places + have->first, s->places + first, n * sizeof *s->places) == 0)
            return (int32_t)h->slots[i] - 1;
    }
    return EB_STATE_UNKNOWN;
}

/* The state of the places behind `first`, which it takes over. */
static int32_t new_state(struct eb_states *s, uint64_t hash, uint32_t first, uint32_t n) {
    size_t classes = s->p->n_classes, all = ((size_t)s->n_states + 1) * classes;
    if (s->n_states >= EB_MAX_STATES) {
        failed(s, EBRO_UNSUPPORTED);
        return EB_STATE_FAILED;
    }
    if (!eb_grammar_grow(&s->states, &s->states_room, (size_t)s->n_states + 1, sizeof *s->states) ||
        !eb_grammar_grow(&s->next, &s->next_room, all, sizeof *s->next)) {
        failed(s, EBRO_NOMEM_HOST);
        return EB_STATE_FAILED;
    }
    for (size_t i = all - classes; i < all; i++) s->next[i] = EB_STATE_UNKNOWN;
    s->states[s->n_states] = (struct eb_state){first, n};
    hash_place(&s->state_hash, hash, s->n_states);
    s->state_hash.n++;
    return (int32_t)s->n_states++;
}

static int32_t settle(struct eb_states *s, uint32_t first) {
    uint32_t n = s->n_places - first;
    int32_t state = EB_STATE_FAILED;
    if (s->failure == EBRO_OK && !hash_reserve(s, &s->state_hash, false))
        failed(s, EBRO_NOMEM_HOST);
    if (s->failure == EBRO_OK) {
        if (n == 0) return EB_STATE_DEAD;
        qsort(s->places + first, n, sizeof *s->places, by_place);
        uint64_t hash = hash_places(s->places + first, n);
        state = find_state(s, hash, first, n);
        if (state == EB_STATE_UNKNOWN) {
            state = new_state(s, hash, first, n);
            if (state >= 0) return state;
        }
    }
    s->n_places = first;
    return state;
}

static void begin_step(struct eb_states *s) {
    s->failure = EBRO_OK;
    s->n_todo = s->n_seen = 0;
    if (++s->stamp != 0) return;
    memset(s->seen, 0, s->seen_room * sizeof *s->seen); /* stamps begin again */
    s->stamp = 1;
}

int32_t eb_states_begin(struct eb_states *s, const struct eb_program *p) {
    *s = (struct eb_states){.p = p};
    begin_step(s);
    if (!eb_grammar_grow(&s->frames, &s->frames_room, 1, sizeof *s->frames)) {
        failed(s, EBRO_NOMEM_HOST);
        return EB_STATE_FAILED;
    }
    s->frames[s->n_frames++] = (struct eb_frame){0};
    go_to(s, 0, 0);
    close_over(s, 0);
    return settle(s, 0);
}

void eb_states_clear(struct eb_states *s) {
    free(s->frames);
    free(s->places);
    free(s->states);
    free(s->next);
    free(s->frame_hash.slots);
    free(s->state_hash.slots);
    free(s->seen);
    free(s->todo);
    *s = (struct eb_states){0};
}

static bool reads(const struct eb_program *p, const struct eb_instr *in, int byte) {
    if (in->op == EB_OP_BYTE) return in->byte == byte;
    return in->op == EB_OP_SET && eb_set_has(&p->sets[in->a], byte);
}

int32_t eb_states_step(struct eb_states *s, int32_t state, int byte) {
    struct eb_state from = s->states[state];
    uint32_t class = s->p->class_of[byte], first = s->n_places;
    begin_step(s);
    for (uint32_t i = 0; i < from.n; i++) {
        struct eb_place at = s->places[from.first + i];
        if (reads(s->p, &s->p->code[at.pc], byte)) go_to(s, at.pc + 1, at.frame);
    }
    close_over(s, first);
    int32_t next = settle(s, first);
    if (next != EB_STATE_FAILED) s->next[(size_t)state * s->p->n_classes + class] = next;
    return next;
}

int32_t eb_states_control(struct eb_states *s, int32_t state, int32_t id, bool stop) {
    struct eb_state from = s->states[state];
    uint32_t first = s->n_places;
    begin_step(s);
    for (uint32_t i = 0; i < from.n; i++) {
        struct eb_place at = s->places[from.first + i];
        const struct eb_instr *in = &s->p->code[at.pc];
        if (in->op == EB_OP_CONTROL && in->a == (uint32_t)id) go_to(s, at.pc + 1, at.frame);
        if (in->op == EB_OP_STOP && stop) go_to(s, at.pc, at.frame);
    }
    close_over(s, first);
    return settle(s, first);
}

bool eb_states_may_stop(const struct eb_states *s, int32_t state, bool *alone) {
    const struct eb_state *at = &s->states[state];
    uint32_t n = 0;
    for (uint32_t i = 0; i < at->n; i++)
        n += s->p->code[s->places[at->first + i].pc].op == EB_OP_STOP;
    *alone = n == at->n;
    return n > 0;
}

/* ---- tidying ------------------------------------------------------------------------------ */

/* A frame's parent always stands before it, so one pass finds what is used and one copies it. */
static bool copy_frames(struct eb_states *to, const struct eb_states *from, uint32_t *number) {
    for (uint32_t i = from->n_frames; i-- > 1;)
        if (number[i] != 0) number[from->frames[i].parent] = 1;
    number[0] = 0;
    for (uint32_t i = 1; i < from->n_frames; i++) {
        const struct eb_frame *f = &from->frames[i];
        if (number[i] == 0) continue;
        number[i] = find_frame(to, number[f->parent], f->pc, f->count);
        if (number[i] == NO_FRAME) return false;
    }
    return true;
}

static int32_t copy_state(struct eb_states *to, const struct eb_states *from, int32_t state,
                          uint32_t *number) {
    const struct eb_state *old = &from->states[state];
    const struct eb_place *places = from->places + old->first;
    for (uint32_t i = 0; i < old->n; i++) number[places[i].frame] = 1;
    if (!eb_grammar_grow(&to->frames, &to->frames_room, 1, sizeof *to->frames))
        return EB_STATE_FAILED;
    to->frames[to->n_frames++] = (struct eb_frame){0};
    if (!copy_frames(to, from, number)) return EB_STATE_FAILED;
    for (uint32_t i = 0; i < old->n; i++)
        keep_place(to, (struct eb_place){places[i].pc, number[places[i].frame]}, 0);
    return settle(to, 0);
}

int32_t eb_states_tidy(struct eb_states *s, int32_t state) {
    if (s->n_states < EB_MAX_STATES / 32 && s->n_frames < EB_MAX_FRAMES / 32 &&
        s->n_places < EB_MAX_ALL_PLACES / 8)
        return state;
    struct eb_states fresh = {.p = s->p};
    uint32_t *number = calloc(s->n_frames, sizeof *number);
    int32_t moved = number != NULL ? copy_state(&fresh, s, state, number) : EB_STATE_FAILED;
    free(number);
    if (moved < 0) {
        eb_states_clear(&fresh);
        return state;
    }
    eb_states_clear(s);
    *s = fresh;
    return moved;
}
