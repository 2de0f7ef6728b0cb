/* The prefix tree: small cases by hand, and prompts of 100,000 tokens. */
#include <stdlib.h>
#include <string.h>

#include "mem/prefix.h"
#include "tests/harness/test.h"

enum { PAGE = 4, N_BLOCKS = 4096, SLOT_BLOCKS = 2 };

struct fixture {
    struct eb_alloc alloc;
    struct eb_blocks blocks;
    struct eb_slots slots;
    struct eb_prefix tree;
};

static void open_tree(struct fixture *f, uint64_t max_tokens) {
    *f = (struct fixture){0};
    eb_blocks_open(&f->blocks, &f->alloc, 256, N_BLOCKS, N_BLOCKS, NULL, NULL);
    f->slots = (struct eb_slots){.blocks = &f->blocks, .slot_blocks = SLOT_BLOCKS};
    eb_prefix_open(&f->tree, &f->alloc, &f->blocks, &f->slots, PAGE, max_tokens);
    assert_int_equal(eb_blocks_reserve(&f->blocks, N_BLOCKS, NULL), EBRO_OK);
}

static void audit(const struct fixture *f) {
    const char *wrong = eb_prefix_audit(&f->tree);
    if (wrong != NULL) fail_msg("%s", wrong);
}

/* Nothing may be held once the tree is closed. */
static void close_tree(struct fixture *f) {
    audit(f);
    eb_prefix_close(&f->tree);
    assert_int_equal(f->blocks.n_free, N_BLOCKS);
    eb_blocks_close(&f->blocks);
}

static void note(struct fixture *f, const int32_t *ids, uint32_t n) {
    assert_int_equal(eb_prefix_note(&f->tree, ids, n, NULL), EBRO_OK);
    audit(f);
}

/* Keeps a state after n tokens, with pages of its own; the tree alone holds them afterwards. Fills
 * `pages`, where it is not NULL. */
static struct eb_node *keep(struct fixture *f, const int32_t *ids, uint32_t n, uint32_t *pages) {
    uint32_t n_pages = (n + PAGE - 1) / PAGE, *own = calloc(n_pages, sizeof *own);
    struct eb_slot *slot = NULL;
    struct eb_node *node = NULL;
    for (uint32_t i = 0; i < n_pages; i++) own[i] = eb_block_take(&f->blocks, EB_LIVE);
    assert_int_equal(eb_slot_take(&f->slots, EB_LIVE, &slot, NULL), EBRO_OK);
    slot->position = n;
    slot->written = true;
    assert_int_equal(eb_prefix_keep(&f->tree, ids, n, own, slot, EB_KEEP_NAMED, &node, NULL),
                     EBRO_OK);
    assert_int_equal(eb_node_end(node), n);
    if (pages != NULL) memcpy(pages, own, n_pages * sizeof *own);
    for (uint32_t i = 0; i < n_pages; i++) eb_block_drop(&f->blocks, own[i], EB_LIVE);
    eb_slot_drop(&f->slots, &slot, EB_LIVE);
    free(own);
    audit(f);
    return node;
}

static uint32_t matched(struct fixture *f, const int32_t *ids, uint32_t n) {
    return eb_prefix_match(&f->tree, ids, n, n).matched;
}

/* End of the snapshot that n tokens with that cap resume at. */
static uint32_t resumes(struct fixture *f, const int32_t *ids, uint32_t n, uint32_t cap) {
    struct eb_match m = eb_prefix_match(&f->tree, ids, n, cap);
    return m.snapshot == NULL ? 0 : eb_node_end(m.snapshot);
}

/* ---- by hand -------------------------------------------------------------------------------- */

static void notes(void **state) {
    (void)state;
    struct fixture f;
    open_tree(&f, 1000);
    const int32_t a[] = {1, 2, 3, 4, 5, 6}, b[] = {1, 2, 3, 9, 9}, c[] = {2, 2};
    assert_int_equal(matched(&f, a, 6), 0);
    note(&f, a, 6);
    assert_int_equal(f.tree.n_nodes, 1);
    assert_int_equal(matched(&f, a, 6), 6);
    assert_int_equal(matched(&f, a, 4), 4); /* inside the node */
    assert_int_equal(matched(&f, b, 5), 3);
    assert_int_equal(matched(&f, c, 2), 0);
    /* What ends inside a chain that is there adds nothing. */
    note(&f, a, 4);
    assert_int_equal(f.tree.n_nodes, 1);
    /* Another end splits it: 123 | 456, 99. */
    note(&f, b, 5);
    assert_int_equal(f.tree.n_nodes, 3);
    assert_int_equal(f.tree.n_tokens, 8);
    assert_int_equal(matched(&f, a, 6), 6);
    assert_int_equal(matched(&f, b, 5), 5);
    note(&f, c, 2);
    assert_int_equal(f.tree.n_nodes, 4);
    assert_int_equal(f.tree.n_tokens, 10);
    assert_int_equal(f.blocks.n_kept, 0);
    close_tree(&f);
}

static void snapshots(void **state) {
    (void)state;
    struct fixture f;
    open_tree(&f, 1000);
    const int32_t a[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
    struct eb_node *six = keep(&f, a, 6, NULL);
    assert_int_equal(f.blocks.n_kept, 2 + SLOT_BLOCKS);
    assert_int_equal(resumes(&f, a, 10, 10), 6);
    assert_int_equal(resumes(&f, a, 6, 6), 6);
    assert_int_equal(resumes(&f, a, 6, 5), 0); /* the last token must be evaluated again */
    struct eb_node *three = keep(&f, a, 3, NULL), *ten = keep(&f, a, 10, NULL);
    assert_int_equal(f.tree.n_snapshots, 3);
    assert_int_equal(resumes(&f, a, 10, 10), 10);
    assert_int_equal(resumes(&f, a, 10, 9), 6);
    assert_int_equal(resumes(&f, a, 10, 5), 3);
    /* The deepest goes: tokens stay known, and the match says that something was lost. */
    eb_prefix_forget(&f.tree, ten);
    audit(&f);
    struct eb_match m = eb_prefix_match(&f.tree, a, 10, 10);
    assert_int_equal(m.matched, 10);
    assert_ptr_equal(m.snapshot, six);
    assert_true(m.lost);
    /* One in the middle: its pages are still needed by the one below. */
    uint32_t before = f.blocks.n_kept;
    eb_prefix_forget(&f.tree, three);
    audit(&f);
    assert_int_equal(f.blocks.n_kept, before - SLOT_BLOCKS);
    assert_int_equal(resumes(&f, a, 10, 10), 6);
    /* The last: nothing is held any more, all is still known. */
    eb_prefix_forget(&f.tree, six);
    assert_int_equal(f.blocks.n_kept, 0);
    assert_int_equal(matched(&f, a, 10), 10);
    /* Taken again, it is not lost any more. */
    keep(&f, a, 10, NULL);
    assert_false(eb_prefix_match(&f.tree, a, 10, 10).lost);
    close_tree(&f);
}

/* A second snapshot at the same place changes nothing but why it is there. */
static void twice(void **state) {
    (void)state;
    struct fixture f;
    open_tree(&f, 1000);
    const int32_t a[] = {1, 2, 3, 4, 5};
    struct eb_node *first = keep(&f, a, 5, NULL);
    const struct eb_slot *slot = first->snapshot;
    uint32_t held = f.blocks.n_kept;
    assert_ptr_equal(keep(&f, a, 5, NULL), first);
    assert_ptr_equal(first->snapshot, slot);
    assert_int_equal(f.blocks.n_kept, held);
    assert_int_equal(f.tree.n_snapshots, 1);
    close_tree(&f);
}

/* Two chains part inside a page: each has a page of its own there, which also holds the rows that
 * they share. */
static void borders(void **state) {
    (void)state;
    struct fixture f;
    open_tree(&f, 1000);
    const int32_t a[] = {1, 2, 3, 4, 5, 6, 7, 8, 9}, b[] = {1, 2, 3, 4, 5, 6, 77, 88, 99};
    uint32_t pages_a[3], pages_b[3], got[3];
    struct eb_node *node_a = keep(&f, a, 9, pages_a), *node_b = keep(&f, b, 9, pages_b);
    eb_prefix_pages(&f.tree, node_a, got);
    assert_memory_equal(got, pages_a, sizeof got);
    /* the first page is a's: its rows are the same; from the one where they part on b's own */
    eb_prefix_pages(&f.tree, node_b, got);
    assert_int_equal(got[0], pages_a[0]);
    assert_int_equal(got[1], pages_b[1]);
    assert_int_equal(got[2], pages_b[2]);
    assert_int_equal(f.blocks.n_kept, 5 + 2 * SLOT_BLOCKS);
    eb_prefix_forget(&f.tree, node_a);
    audit(&f);
    eb_prefix_pages(&f.tree, node_b, got);
    assert_int_equal(got[0], pages_a[0]);
    assert_int_equal(got[1], pages_b[1]);
    assert_int_equal(resumes(&f, a, 9, 9), 0);
    assert_int_equal(resumes(&f, b, 9, 9), 9);
    close_tree(&f);
}

/* Beyond the limit of noted tokens the chain that was seen longest ago goes, never one that holds a
 * snapshot. */
static void trims(void **state) {
    (void)state;
    struct fixture f;
    open_tree(&f, 20);
    const int32_t a[] = {1, 1, 1, 1, 1, 1, 1, 1}, b[] = {2, 2, 2, 2, 2, 2, 2, 2};
    const int32_t c[] = {3, 3, 3, 3, 3, 3, 3, 3}, d[] = {4, 4, 4, 4, 4, 4, 4, 4};
    keep(&f, a, 8, NULL);
    note(&f, b, 8);
    note(&f, c, 4);
    assert_int_equal(f.tree.n_tokens, 20);
    assert_int_equal(matched(&f, b, 8), 8); /* seen again: c is the oldest now */
    note(&f, d, 4);
    assert_int_equal(matched(&f, c, 4), 0);
    assert_int_equal(matched(&f, b, 8), 8);
    note(&f, c, 8);
    assert_int_equal(matched(&f, d, 4), 0);
    assert_int_equal(matched(&f, b, 8), 0);
    assert_int_equal(matched(&f, c, 8), 8);
    assert_int_equal(resumes(&f, a, 8, 8), 8);
    assert_true(f.tree.n_tokens <= 20);
    close_tree(&f);
}

/* ---- long ----------------------------------------------------------------------------------- */

enum { LONG = 100000, N_LONG = 40 };

/* Chains that leave a common one at random places, against a plain comparison with all of them. */
static void long_prompts(void **state) {
    (void)state;
    struct fixture f;
    struct test_rng r = {test_seed()};
    open_tree(&f, 1u << 30);
    int32_t *all[N_LONG], *probe = calloc(LONG, sizeof *probe);
    for (int k = 0; k < N_LONG; k++) {
        all[k] = calloc(LONG, sizeof **all);
        assert_non_null(all[k]);
        const int32_t *like = all[k > 0 ? test_u64(&r) % (uint64_t)k : 0];
        uint32_t shared = k > 0 ? (uint32_t)(test_u64(&r) % LONG) : 0;
        if (shared > 0) memcpy(all[k], like, shared * sizeof **all);
        for (uint32_t i = shared; i < LONG; i++) all[k][i] = (int32_t)(test_u64(&r) % 163840);
        note(&f, all[k], LONG);
    }
    assert_true(f.tree.n_nodes >= N_LONG && f.tree.n_nodes <= 2 * N_LONG);
    for (int i = 0; i < 200; i++) {
        uint32_t shared = (uint32_t)(test_u64(&r) % LONG), best = 0;
        memcpy(probe, all[test_u64(&r) % N_LONG], LONG * sizeof *probe);
        probe[shared] = 163840; /* no chain has it */
        for (int k = 0; k < N_LONG; k++) {
            uint32_t n = 0;
            while (n < LONG && probe[n] == all[k][n]) n++;
            if (n > best) best = n;
        }
        assert_int_equal(best, shared);
        assert_int_equal(matched(&f, probe, LONG), best);
    }
    for (int k = 0; k < N_LONG; k++) {
        assert_int_equal(matched(&f, all[k], LONG), LONG);
        free(all[k]);
    }
    free(probe);
    close_tree(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(notes), cmocka_unit_test(snapshots),
                                       cmocka_unit_test(twice), cmocka_unit_test(borders),
                                       cmocka_unit_test(trims), cmocka_unit_test(long_prompts)};
    return cmocka_run_group_tests_name("mem/prefix", tests, NULL, NULL);
}
