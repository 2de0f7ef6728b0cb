/* cases_copy.c: state_copy and rows_copy, byte for byte. What breaks them elsewhere: alignments
 * that no vector fits, tails, sources of zeros, lists that skip. */
#include <string.h>

#include "check/cases.h"

static uint8_t *random_bytes(struct eb_trial *t, uint64_t n) {
    uint8_t *p = eb_trial_host(t, n, 1);
    for (uint64_t i = 0; p != NULL && i < n; i++) p[i] = (uint8_t)eb_trial_u64(t);
    return p;
}

/* Copies from and to any byte; one source is 0, which fills with zeros. */
static void states(struct eb_trial *t, uint32_t which) {
    enum { N = 5, ROOM = 16 };
    static const uint32_t lengths[] = {1234, 65537, 1};
    uint64_t bytes = lengths[which], slot = bytes + ROOM, src[N], dst[N];
    eb_trial_shape(t, "%d copies of %u bytes, at any alignment", N, lengths[which]);
    uint8_t *data = random_bytes(t, N * slot), *want = eb_trial_host(t, N * slot, 1);
    if (eb_trial_over(t)) return;
    struct eb_trial_buf in = eb_trial_data(t, data, N * slot);
    struct eb_trial_buf out = eb_trial_room(t, N * slot, EB_TRIAL_OUT);
    memset(want, 0xff, (size_t)(N * slot));
    for (uint32_t i = 0; i < N; i++) {
        uint64_t from = i * slot + eb_trial_below(t, ROOM + 1), to = (N - 1 - i) * slot;
        to += eb_trial_below(t, ROOM + 1);
        src[i] = i == 3 ? 0 : eb_trial_address(&in) + from;
        dst[i] = eb_trial_address(&out) + to;
        memset(want + to, 0, (size_t)bytes);
        if (i != 3) memcpy(want + to, data + from, (size_t)bytes);
    }
    ebro_state_copy_args a = {.size = sizeof a,
                              .src = eb_trial_data(t, src, sizeof src).span,
                              .dst = eb_trial_data(t, dst, sizeof dst).span,
                              .n = N,
                              .bytes = bytes};
    if (!eb_trial_call(t, EBRO_OP_STATE_COPY, &a)) return;
    eb_trial_same(t, eb_trial_after(t, &out), want, N * slot, eb_budget_exact(), "copies");
}

/* Lists that repeat, skip and fill with zeros; none; rows that touch. */
static void rows(struct eb_trial *t, uint32_t which) {
    enum { N = 6 };
    static const int32_t from[N] = {5, -1, 0, 3, 3, 2}, to[N] = {1, 0, -7, 5, 4, 2};
    bool lists = which == 0;
    uint64_t width = which == 2 ? 4099 : 33, src_stride = width + (lists ? 7u : 0u);
    uint64_t dst_stride = width + (lists ? 31u : 0u), skip = lists ? 0 : 3;
    eb_trial_shape(t, "%d rows of %u bytes%s", N, (unsigned)width,
                   lists ? ", some twice, skipped or zeros" : " that touch, at odd addresses");
    uint8_t *data = random_bytes(t, N * src_stride + skip);
    uint64_t all = N * dst_stride + 2 * skip;
    uint8_t *want = eb_trial_host(t, all, 1);
    if (eb_trial_over(t)) return;
    struct eb_trial_buf in = eb_trial_data(t, data, N * src_stride + skip);
    struct eb_trial_buf out = eb_trial_room(t, all, EB_TRIAL_OUT);
    ebro_rows_copy_args a = {.size = sizeof a, .src = in.span, .dst = out.span, .n = N};
    a.src.offset += skip;
    a.dst.offset += 2 * skip;
    a.src_stride_bytes = src_stride;
    a.dst_stride_bytes = dst_stride;
    a.row_bytes = width;
    if (lists) {
        a.src_rows = eb_trial_i32(t, from, N);
        a.dst_rows = eb_trial_i32(t, to, N);
    }
    if (!eb_trial_call(t, EBRO_OP_ROWS_COPY, &a)) return;
    memset(want, 0xff, (size_t)all);
    for (int32_t i = 0; i < N; i++) {
        int32_t f = lists ? from[i] : i, r = lists ? to[i] : i;
        if (r < 0) continue;
        uint8_t *at = want + 2 * skip + (uint64_t)r * dst_stride;
        memset(at, 0, (size_t)width);
        if (f >= 0) memcpy(at, data + skip + (uint64_t)f * src_stride, (size_t)width);
    }
    eb_trial_same(t, eb_trial_after(t, &out), want, all, eb_budget_exact(), "rows");
}

#define CASE(op, name, part, f, which) \
    { EBRO_OP_##op, name, EB_CASE_##part, 0, f, which }

static const struct eb_opcheck_case cases[] = {
    CASE(STATE_COPY, "any alignment", START, states, 0),
    CASE(STATE_COPY, "64 KiB and one byte", FULL, states, 1),
    CASE(STATE_COPY, "one byte", FULL, states, 2),
    CASE(ROWS_COPY, "lists", START, rows, 0),
    CASE(ROWS_COPY, "rows that touch", START, rows, 1),
    CASE(ROWS_COPY, "long rows", FULL, rows, 2),
};

const struct eb_opcheck_list eb_opcheck_copy = {cases, sizeof cases / sizeof cases[0]};
