/* literals.c: see literals.h. Both walk the tree that the sorted texts are, without making it and
 * without recursion: a schema decides how long and how many they are. */
#include "literals.h"

#include <stdlib.h>
#include <string.h>

#include "rules.h"

/* Texts [from, to) share their first `depth` bytes; their code is still to be written, and the
 * fork must come to it. */
struct branch {
    size_t from, to, depth;
    uint32_t fork;
    enum eb_utf8 at;
};

struct tree {
    struct eb_builder *b;
    const struct eb_literal *texts;
    struct branch *todo;
    size_t n_todo, room;
    uint32_t exit;
    bool others;               /* what leaves the tree is taken, not what ends in it */
    uint32_t tails[EB_N_UTF8]; /* others: the rest of a text that left it */
};

static int by_bytes(const void *a, const void *b) {
    const struct eb_literal *s = a, *t = b;
    int order = memcmp(s->p, t->p, s->n < t->n ? s->n : t->n);
    return order != 0 ? order : (s->n > t->n) - (s->n < t->n);
}

static size_t sort(struct eb_literal *texts, size_t n) {
    size_t kept = 0;
    if (n > 1) qsort(texts, n, sizeof *texts, by_bytes);
    for (size_t i = 0; i < n; i++)
        if (kept == 0 || by_bytes(&texts[kept - 1], &texts[i]) != 0) texts[kept++] = texts[i];
    return kept;
}

static int byte_at(const struct tree *t, size_t text, size_t depth) {
    return (unsigned char)t->texts[text].p[depth];
}

static size_t end_of_group(const struct tree *t, const struct branch *br) {
    size_t i = br->from + 1;
    while (i < br->to && byte_at(t, i, br->depth) == byte_at(t, br->from, br->depth)) i++;
    return i;
}

static void keep_branch(struct tree *t, struct branch br) {
    if (t->b->st != EBRO_OK) return;
    if (!eb_grammar_grow(&t->todo, &t->room, t->n_todo + 1, sizeof br))
        eb_build_fail(t->b, EBRO_NOMEM_HOST, "no memory for the texts of a schema");
    else
        t->todo[t->n_todo++] = br;
}

/* ---- what leaves the tree ----------------------------------------------------------------- */

static void build_tails(struct tree *t) {
    struct eb_set plain = eb_json_plain();
    t->tails[EB_UTF8_START] = eb_build_fork(t->b);
    eb_fork_to(t->b, t->tails[EB_UTF8_START], t->exit);
    eb_build_character(t->b, &plain);
    eb_build_jump(t->b, t->tails[EB_UTF8_START]);
    for (int at = EB_UTF8_ONE; at < EB_N_UTF8; at++) {
        t->tails[at] = eb_build_here(t->b);
        eb_build_character_rest(t->b, (enum eb_utf8)at);
        eb_build_jump(t->b, t->tails[EB_UTF8_START]);
    }
}

/* Bytes that no text goes on with, by what they lead to. */
static void build_others(struct tree *t, const struct branch *br) {
    struct eb_set plain = eb_json_plain(), sets[EB_N_UTF8] = {{{0}}};
    bool any[EB_N_UTF8] = {false}, taken[256] = {false};
    for (size_t i = br->from; i < br->to; i++) taken[byte_at(t, i, br->depth)] = true;
    for (int c = 0; c < 256; c++) {
        enum eb_utf8 next = eb_utf8_next(br->at, c);
        if (next == EB_UTF8_BAD || taken[c] || (c < 0x80 && !eb_set_has(&plain, c))) continue;
        eb_set_add(&sets[next], c, c);
        any[next] = true;
    }
    for (int at = 0; at < EB_N_UTF8; at++) {
        if (!any[at]) continue;
        uint32_t fork = eb_build_fork(t->b);
        eb_build_set(t->b, &sets[at]);
        eb_build_jump(t->b, t->tails[at]);
        eb_fork_here(t->b, fork);
    }
}

/* ---- the tree ----------------------------------------------------------------------------- */

/* The text that ends here, which stands first; false: nothing goes on. */
static bool build_end(struct tree *t, struct branch *br) {
    bool ends = br->from < br->to && t->texts[br->from].n == br->depth;
    bool leaves = t->others ? !ends && br->at == EB_UTF8_START : ends;
    if (leaves) {
        uint32_t fork = eb_build_fork(t->b);
        eb_fork_to(t->b, fork, t->exit);
    }
    if (ends) br->from++;
    if (t->others) build_others(t, br);
    return br->from < br->to;
}

/* A fork for each byte that texts go on with; the first way of each is written later. */
static void build_groups(struct tree *t, const struct branch *br) {
    struct branch rest = *br;
    while (rest.from < br->to) {
        struct branch group = rest;
        group.to = end_of_group(t, &rest);
        group.fork = eb_build_fork(t->b);
        eb_fork_here(t->b, group.fork);
        keep_branch(t, group);
        rest.from = group.to;
    }
    eb_build_fail_here(t->b);
}

static void build_branch(struct tree *t, struct branch br) {
    while (t->b->st == EBRO_OK) {
        if (!build_end(t, &br)) {
            eb_build_fail_here(t->b);
            return;
        }
        if (end_of_group(t, &br) < br.to) {
            build_groups(t, &br);
            return;
        }
        int byte = byte_at(t, br.from, br.depth);
        eb_build_byte(t->b, byte);
        br.at = eb_utf8_next(br.at, byte);
        br.depth++;
    }
}

/* What follows the byte of a group: one further on than what build_groups kept. */
static void build_group(struct tree *t, struct branch br) {
    int byte = byte_at(t, br.from, br.depth);
    eb_fork_first_here(t->b, br.fork);
    eb_build_byte(t->b, byte);
    br.at = eb_utf8_next(br.at, byte);
    br.depth++;
    build_branch(t, br);
}

static void build_tree(struct tree *t, size_t n) {
    struct eb_alt alt;
    eb_alt_begin(t->b, &alt);
    eb_alt_option(t->b, &alt);
    t->exit = alt.exit;
    if (t->others) {
        uint32_t over = eb_build_fork(t->b); /* its first way fails */
        eb_build_fail_here(t->b);
        build_tails(t);
        eb_fork_here(t->b, over);
    }
    build_branch(t, (struct branch){.to = n});
    while (t->n_todo > 0 && t->b->st == EBRO_OK) build_group(t, t->todo[--t->n_todo]);
    free(t->todo);
    eb_build_fail_here(t->b);
    eb_alt_end(t->b, &alt);
}

void eb_build_one_of(struct eb_builder *b, struct eb_literal *texts, size_t n) {
    struct tree t = {.b = b, .texts = texts};
    n = sort(texts, n);
    if (n == 0)
        eb_build_fail_here(b);
    else
        build_tree(&t, n);
}

/* Texts that need escapes cannot be met. */
static size_t keep_plain(struct eb_literal *texts, size_t n) {
    struct eb_set plain = eb_json_plain();
    size_t kept = 0;
    for (size_t i = 0; i < n; i++) {
        bool all = true;
        for (size_t k = 0; k < texts[i].n; k++) {
            int c = (unsigned char)texts[i].p[k];
            all &= c >= 0x80 || eb_set_has(&plain, c);
        }
        if (all) texts[kept++] = texts[i];
    }
    return kept;
}

void eb_build_none_of(struct eb_builder *b, struct eb_literal *texts, size_t n) {
    struct tree t = {.b = b, .texts = texts, .others = true};
    build_tree(&t, sort(texts, keep_plain(texts, n)));
}
