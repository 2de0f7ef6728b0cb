/* bench.h: a device with the model on it, and what a check of it says. Shared by the files of this
 * room. */
#ifndef EB_MODELCHECK_BENCH_H
#define EB_MODELCHECK_BENCH_H

#include "check/budget.h"
#include "modelcheck/golden.h"
#include "modelcheck/modelcheck.h"

/* A sequence as bytes (ebro_seq_export). */
struct eb_saved_bytes {
    const struct eb_alloc *alloc;
    uint8_t *data;
    size_t n, capacity;
};

struct eb_model_bench {
    struct eb_modelcheck *check;
    uint32_t number;  /* of the device */
    const char *rung; /* valid while its checks run */
    bool full;
    ebro_device *device;
    int32_t cache; /* dtype: the device's default */
    /* Below f32 the router's choices that are nearly even may fall either way, and are given where
     * they are known. */
    enum eb_model_rounding rounding;
    /* The first keeps expert choices where they are given, and nothing can be imported into such
     * an engine; the second is for that, NULL until then. */
    ebro_engine *engine, *plain;
    struct eb_saved_bytes saved; /* eb_model_resumed() but for its last EB_SAVED_LEFT tokens */
};
enum { EB_SAVED_LEFT = 4 };

struct eb_modelcheck {
    ebro_runtime *rt;
    struct eb_modelcheck_options options;
    ebro_model *model;
    ebro_model_info info;
    struct eb_golden golden;
    uint32_t layers[256]; /* the MoE layers among all */
    struct eb_model_bench benches[EB_MODELCHECK_MAX_DEVICES];
};

/* ---- engines and sequences (bench.c) ---------------------------------------------------- */

int32_t eb_model_bench_open(struct eb_model_bench *b, const struct eb_modelcheck_rung *rung,
                            ebro_error *err);
void eb_model_bench_close(struct eb_modelcheck *c, struct eb_model_bench *b);
enum eb_model_rounding eb_model_rounding(const struct eb_model_bench *b, int32_t cache);
/* Of the device, with the model, for one sequence. */
int32_t eb_model_engine(const struct eb_model_bench *b, int32_t cache, bool choices, bool strict,
                        ebro_engine **out, ebro_error *err);
/* Gives the sequence the experts of the prompt's first n tokens, where the bench rounds and they
 * are known. */
int32_t eb_model_force(const struct eb_model_bench *b, ebro_seq *s,
                       const struct eb_golden_prompt *p, uint32_t n, ebro_error *err);
/* Appends and evaluates. */
int32_t eb_model_evaluate(ebro_engine *e, ebro_seq *s, const int32_t *ids, uint32_t n,
                          uint32_t n_logits, ebro_error *err);
/* The prompt that is saved and gone on with: the first that is to be recalled from. */
const struct eb_golden_prompt *eb_model_resumed(const struct eb_modelcheck *c);

/* ---- findings (finding.c) --------------------------------------------------------------- */

struct eb_model_finding {
    const struct eb_model_bench *bench;
    enum eb_modelcheck_kind kind;
    enum eb_model_rounding rounding;
    const char *prompt, *cache;
    int32_t from;
    double error, begin; /* begin: when it began */
    struct eb_budget budget;
    bool failed;
    char shape[96], text[400];
};

struct eb_model_finding eb_model_begin(const struct eb_model_bench *b, enum eb_modelcheck_kind kind,
                                       const struct eb_golden_prompt *p, struct eb_budget budget);
/* The first failure's text stays. */
void eb_model_fail(struct eb_model_finding *f, const char *fmt, ...) EB_PRINTF(2, 3);
/* The last rows' logits that the sequence holds, against those that are known. */
int32_t eb_model_judge_logits(struct eb_model_finding *f, const struct eb_golden_prompt *p,
                              ebro_seq *s, ebro_error *err);
/* [n] against [n]: relative to the norm and to the largest. */
void eb_model_judge_near(struct eb_model_finding *f, const float *got, const float *want,
                         uint32_t n, const char *what);
/* The prompt's next n tokens: each is chosen, compared, and the right one appended. text (may be
 * NULL) receives what was chosen. */
int32_t eb_model_judge_greedy(struct eb_model_finding *f, const struct eb_golden_prompt *p,
                              ebro_engine *e, ebro_seq *s, uint32_t n, char *text, size_t bytes,
                              ebro_error *err);
/* Hands the finding out. st: what its evaluation came to: a value that is not finite is a failure,
 * what is not supported a refusal; any other error is returned as it is, and nothing handed out. */
int32_t eb_model_end(struct eb_model_finding *f, int32_t st, ebro_error *err);

/* ---- checks ----------------------------------------------------------------------------- */

/* All that needs this device alone; saves the sequence where `saved`. (prompts.c) */
int32_t eb_model_check_prompts(struct eb_model_bench *b, bool saved, ebro_error *err);

#endif
