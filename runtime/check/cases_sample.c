/* cases_sample.c: the sampler against a sort of the whole vocabulary. What breaks it elsewhere:
 * ties at a cut, the order of a running sum, logits that are not finite, temperatures near zero,
 * one token alone, penalties applied to the logits themselves. */
#include <string.h>

#include "check/cases.h"

enum { MAX_ROWS = 20, MAX_ADJUSTS = 16 };

struct call {
    uint32_t rows, vocab, n_adjusts;
    float *logits;
    ebro_sample_params params[MAX_ROWS];
    ebro_logit_adjust adjusts[MAX_ROWS * MAX_ADJUSTS]; /* n_adjusts of each row */
};

static void sample(struct eb_trial *t, const struct call *c) {
    double *changed = eb_trial_host(t, c->vocab, sizeof *changed);
    struct eb_ref_choice *room = eb_trial_host(t, c->vocab, sizeof *room);
    int32_t offsets[MAX_ROWS + 1];
    struct eb_trial_buf ids = eb_trial_room(t, c->rows * 4, EB_TRIAL_OUT);
    ebro_sample_args a = {.size = sizeof a, .n_rows = c->rows, .vocab = c->vocab};
    a.logits = eb_trial_mat(t, c->logits, c->rows, c->vocab, 3).m;
    a.params = eb_trial_data(t, c->params, c->rows * sizeof *c->params).span;
    a.ids = ids.span;
    for (uint32_t r = 0; r <= c->rows; r++) offsets[r] = (int32_t)(r * c->n_adjusts);
    a.n_adjusts = c->rows * c->n_adjusts;
    if (a.n_adjusts > 0) {
        a.adjusts = eb_trial_data(t, c->adjusts, a.n_adjusts * sizeof *c->adjusts).span;
        a.adjust_offsets = eb_trial_i32(t, offsets, c->rows + 1);
    }
    a.scratch = eb_trial_scratch(t, EBRO_OP_SAMPLE, &a);
    if (!eb_trial_call(t, EBRO_OP_SAMPLE, &a)) return;
    const uint8_t *got = eb_trial_after(t, &ids);
    uint32_t wrong = 0, first = 0;
    int32_t id = 0, was = 0, wanted = 0;
    for (uint32_t r = 0; r < c->rows; r++) {
        bool unsure;
        for (uint32_t i = 0; i < c->vocab; i++)
            changed[i] = (double)c->logits[(uint64_t)r * c->vocab + i];
        eb_ref_adjust(changed, c->vocab, c->adjusts + r * c->n_adjusts, c->n_adjusts);
        int32_t want = eb_ref_sample(changed, c->vocab, &c->params[r], room, &unsure);
        memcpy(&id, got + r * 4, sizeof id);
        bool outside = want >= 0 && (id < 0 || (uint32_t)id >= c->vocab);
        if (id == want || (unsure && !outside)) continue;
        if (wrong++ > 0) continue;
        first = r;
        was = id;
        wanted = want;
    }
    eb_trial_note(t, wrong, eb_budget_choice(), "row %u: token %d where %d is right", first,
                  (int)was, (int)wanted);
}

/* All settings, on ordinary and on coarse logits, which tie at every cut. */
static void random_rows(struct eb_trial *t, uint32_t which) {
    static const float temperatures[] = {0.0f, 0.1f, 0.7f, 1.0f, 3.0f, 1e-30f, 1e30f};
    static const float top_ps[] = {0.0f, 0.01f, 0.5f, 0.9f, 0.999f, 1.0f};
    static const float min_ps[] = {0.0f, 0.01f, 0.3f, 1.0f};
    static const uint32_t top_ks[] = {0, 1, 2, 5, 40, 100000};
    static const uint32_t vocabs[] = {400, 301, 4352, 1, 17, 9001};
    struct call *c = eb_trial_host(t, 1, sizeof *c);
    if (c == NULL) return;
    c->rows = MAX_ROWS;
    c->vocab = vocabs[which];
    eb_trial_shape(t, "%u rows of %u, all settings%s", c->rows, c->vocab,
                   which % 2 ? ", coarse logits" : "");
    c->logits = eb_trial_normal(t, (uint64_t)c->rows * c->vocab, 3);
    if (c->logits == NULL) return;
    for (uint64_t i = 0; which % 2 != 0 && i < (uint64_t)c->rows * c->vocab; i++)
        c->logits[i] = roundf(c->logits[i]);
    for (uint32_t r = 0; r < c->rows; r++) {
        c->params[r] = (ebro_sample_params){.temperature = temperatures[eb_trial_below(t, 7)],
                                            .top_p = top_ps[eb_trial_below(t, 6)],
                                            .min_p = min_ps[eb_trial_below(t, 4)],
                                            .top_k = top_ks[eb_trial_below(t, 6)],
                                            .seed = eb_trial_u64(t),
                                            .position = eb_trial_below(t, 10000)};
    }
    sample(t, c);
}

/* NaN and infinities, first, in the middle and last: -1, and the good row is as it is. */
static void not_finite(struct eb_trial *t, uint32_t which) {
    enum { ROWS = 19, VOCAB = 7 };
    static const float bad[3] = {NAN, INFINITY, -INFINITY};
    struct call *c = eb_trial_host(t, 1, sizeof *c);
    float *logits = eb_trial_host(t, ROWS * VOCAB, sizeof *logits);
    (void)which;
    if (c == NULL || logits == NULL) return;
    eb_trial_shape(t, "%d rows of %d, all but one with a logit that is not finite", ROWS, VOCAB);
    c->rows = ROWS;
    c->vocab = VOCAB;
    c->logits = logits;
    for (uint32_t r = 0; r < ROWS; r++) {
        for (uint32_t i = 0; i < VOCAB; i++) logits[r * VOCAB + i] = (float)i;
        if (r + 1 < ROWS) logits[r * VOCAB + r / 3 % 3 * 3] = bad[r % 3];
        c->params[r] = (ebro_sample_params){.temperature = r < 9 ? 0 : 1, .top_k = r % 2 * 3};
    }
    sample(t, c);
}

/* Penalties and biases: greedy, and drawn. */
static void adjusted(struct eb_trial *t, uint32_t which) {
    struct call *c = eb_trial_host(t, 1, sizeof *c);
    if (c == NULL) return;
    c->rows = 12;
    c->vocab = 301;
    c->n_adjusts = MAX_ADJUSTS;
    eb_trial_shape(t, "%u rows of %u, %u entries each, %s", c->rows, c->vocab, c->n_adjusts,
                   which == 0 ? "greedy" : "drawn");
    c->logits = eb_trial_normal(t, (uint64_t)c->rows * c->vocab, 2);
    if (c->logits == NULL) return;
    for (uint32_t i = 0; i < c->rows * c->n_adjusts; i++) {
        uint32_t r = i / c->n_adjusts, k = i % c->n_adjusts;
        ebro_logit_adjust *e = &c->adjusts[i];
        e->id = (int32_t)((r * 31 + k * 7) % c->vocab);
        if (k % 5 == 4) e->id = k % 2 ? -1 - (int32_t)k : (int32_t)(c->vocab + k); /* none */
        e->repeat = k % 3 == 0 ? 1.0f : eb_trial_uniform(t, 0.5f, 2.0f);
        e->add = k % 4 == 0 ? 0.0f : eb_trial_uniform(t, -8, 8);
    }
    for (uint32_t r = 0; r < c->rows; r++)
        c->params[r] = (ebro_sample_params){.temperature = which == 0 ? 0.0f : 1.1f,
                                            .top_k = r % 3 == 1 ? 50 : 0,
                                            .top_p = r % 3 == 2 ? 0.9f : 0.0f,
                                            .seed = eb_trial_u64(t),
                                            .position = r};
    sample(t, c);
}

#define CASE(name, part, f, which) \
    { EBRO_OP_SAMPLE, name, EB_CASE_##part, 0, f, which }

static const struct eb_opcheck_case cases[] = {
    CASE("400 tokens", START, random_rows, 0),
    CASE("301 tokens, ties", START, random_rows, 1),
    CASE("4352 tokens", FULL, random_rows, 2),
    CASE("one token", QUICK, random_rows, 3),
    CASE("17 tokens", FULL, random_rows, 4),
    CASE("9001 tokens, ties", FULL, random_rows, 5),
    CASE("logits that are not finite", QUICK, not_finite, 0),
    CASE("adjusted, greedy", QUICK, adjusted, 0),
    CASE("adjusted, drawn", FULL, adjusted, 1),
};

const struct eb_opcheck_list eb_opcheck_sample = {cases, sizeof cases / sizeof cases[0]};
