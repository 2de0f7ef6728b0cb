/* settle.c: see settle.h. */
#include "settle.h"

#include <stdlib.h>

int eb_settle_on(struct eb_session *s, const struct eb_tokens *want, struct eb_settled *out) {
    uint32_t held = 0;
    const int32_t *ids = ebro_seq_tokens(s->seq, &held);
    size_t common = 0, seen = ebro_seq_length(s->seq);
    while (common < held && common < want->n && ids[common] == want->ids[common]) common++;
    *out = (struct eb_settled){.n_before = common};
    if (common < held || common == want->n) {
        if (seen > common) seen = common;
        int code = eb_session_restart(s);
        if (code != EB_EXIT_OK) return code;
        out->anew = held > 0;
        common = out->n_before = 0;
    }
    int code = eb_session_append(s, want->ids + common, want->n - common, 0);
    if (code != EB_EXIT_OK || !out->anew) return code;
    ebro_reuse reuse = {.size = sizeof reuse};
    ebro_seq_get_reuse(s->seq, &reuse);
    if (reuse.n_matched > seen) seen = reuse.n_matched;
    if (seen > reuse.n_reused) out->n_again = seen - reuse.n_reused;
    if (reuse.miss != EBRO_MISS_NONE) out->reason = reuse.reason;
    return EB_EXIT_OK;
}

static bool begins_with(const struct eb_tokens *want, const int32_t *ids, size_t n) {
    if (n > want->n) return false;
    for (size_t i = 0; i < n; i++)
        if (ids[i] != want->ids[i]) return false;
    return true;
}

/* Back to the first n tokens, from a snapshot right there too: no logits are needed. */
static int cut_back(struct eb_session *s, uint32_t n, struct eb_settled *out) {
    ebro_error err = {0};
    uint32_t seen = ebro_seq_length(s->seq) < n ? ebro_seq_length(s->seq) : n;
    if (ebro_seq_rewind(s->seq, n, &err) != EBRO_OK) return eb_session_complain(s, &err);
    out->anew = true;
    out->n_again = seen - ebro_seq_length(s->seq);
    return EB_EXIT_OK;
}

int eb_settle_chat(struct eb_session *s, const ebro_chat_message *messages, size_t n, bool think,
                   struct eb_settled *out) {
    struct eb_tokens want = {0};
    uint32_t held = 0;
    *out = (struct eb_settled){0};
    const int32_t *ids = ebro_seq_tokens(s->seq, &held);
    if (held == 0) return EB_EXIT_OK;
    int code = eb_tokens_of_chat(s->model, messages, n, think, false, &want);
    if (code == EB_EXIT_OK && !begins_with(&want, ids, held)) {
        const struct eb_tokens all = {(int32_t *)(uintptr_t)ids, held};
        if (want.n > s->n_ctx) out->n_too_long = want.n;
        if (want.n == 0 || out->n_too_long > 0)
            code = eb_session_restart(s);
        else if (begins_with(&all, want.ids, want.n))
            code = cut_back(s, (uint32_t)want.n, out);
        else
            code = eb_settle_on(s, &want, out);
    }
    free(want.ids);
    return code;
}

/* Goes back to the first `at` tokens and on with tokens for the first n bytes of another one. */
static int end_inside(struct eb_session *s, uint32_t at, int32_t id, size_t n) {
    struct eb_tokens part = {0};
    ebro_error err = {0};
    size_t all = 0, bos = ebro_token_bos(s->model) >= 0;
    const char *bytes = ebro_token_bytes(s->model, id, &all, NULL);
    int code = eb_tokens_of_text(s->model, bytes, n, &part);
    if (code != EB_EXIT_OK) goto out;
    if (at + part.n - bos > s->n_ctx) {
        eb_complain(
            "the text ends inside a token: what was shown of it makes %zu tokens of all, "
            "and -c has room for %u; the session is not written",
            at + part.n - bos, s->n_ctx);
        code = EB_EXIT_USAGE;
    } else if (ebro_seq_rewind(s->seq, at, &err) != EBRO_OK) {
        code = eb_session_complain(s, &err);
    } else {
        code = eb_session_append(s, part.ids + bos, part.n - bos, 0);
    }
out:
    free(part.ids);
    return code;
}

/* Cuts the sequence down to n tokens, the last of which is queued. */
static int cut_before_last(struct eb_session *s, uint32_t n) {
    ebro_error err = {0};
    int32_t last = ebro_seq_tokens(s->seq, NULL)[n - 1];
    if (ebro_seq_rewind(s->seq, n - 1, &err) != EBRO_OK) return eb_session_complain(s, &err);
    return eb_session_append(s, &last, 1, 0);
}

int eb_settle_text(struct eb_session *s, const struct eb_tally *t, size_t n_shown) {
    uint32_t n = 0;
    size_t n_whole = 0, bytes = 0;
    ebro_seq_tokens(s->seq, &n);
    if (n == 0 || ebro_seq_pending(s->seq) > 0) return EB_EXIT_OK;
    n -= (uint32_t)t->made.n;
    for (; n_whole < t->made.n; n_whole++, n_shown -= bytes, n++) {
        int32_t special = 0;
        if (!ebro_token_bytes(s->model, t->made.ids[n_whole], &bytes, &special) || special)
            bytes = 0;
        if (bytes > n_shown) break;
    }
    if (n_shown == 0) return cut_before_last(s, n);
    return end_inside(s, n, n_whole < t->made.n ? t->made.ids[n_whole] : t->last, n_shown);
}
