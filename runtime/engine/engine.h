/* engine.h: the inside of an engine: one model on one device, its sequences, and the device memory
 * of a step. */
#ifndef EB_ENGINE_H
#define EB_ENGINE_H

#include "engine/graphs.h"
#include "mem/manager.h"
#include "model/load.h"
#include "ops/ops.h"

enum { EB_DEFAULT_CHUNK = 512, EB_DEFAULT_CONTEXT = 8192, EB_MAX_SEQS = 1024 };

/* The step block: everything that changes from step to step, in one memory that the host writes and
 * the device reads, so that a recorded step need never be patched. S: sequences of a step, decoding
 * ones first; E: snapshots taken inside it. */
struct eb_step_block {
    ebro_mem *mem;
    ebro_span ids;                   /* i32 [n_chunk] */
    ebro_span row_offsets[2];        /* i32 [S + 1] each: of the decoding rows, of the others */
    ebro_span context;               /* i32 [S] */
    ebro_span state_in, state_out;   /* i32 [S] */
    ebro_span emit_rows, emit_slots; /* i32 [E] */
    ebro_span page_table;            /* u64 [S][max_pages] */
    ebro_span slot_table;            /* u64 [2 S + E][slot_blocks] */
    ebro_span sampling;              /* ebro_sample_params [1] */
};

/* Activations of a step of at most n_chunk rows, f32. Parts that are never alive together share
 * bytes: KDA, MLA and FFN each start from the same offset. */
struct eb_workspace {
    ebro_mem *mem;
    ebro_mat residual[EBRO_MAX_SOURCES]; /* banked sums and the running one: [n_chunk][hidden] */
    uint32_t n_residual;
    ebro_mat mixed, normed; /* [n_chunk][hidden] */
    /* KDA */
    ebro_mat qkv[3], conv[3]; /* raw projections, after the convolution */
    ebro_mat f_a, g_raw, beta_raw, gate_a, gate, kda_out;
    ebro_span kda_work, step_scratch;
    /* MLA */
    ebro_mat q_a, q, kv, q_absorbed, latent_out, mla_out, mla_gate;
    ebro_span mla_scratch;
    /* FFN */
    ebro_mat ffn_gate, ffn_up, latent_in, latent_sum, expert_ids, expert_weights;
    ebro_span expert_offsets, expert_pairs, route_scratch, expert_scratch;
    /* any time */
    ebro_span linear_scratch;
};

/* What sampling keeps from call to call: the adjustments of the logits. Grows when needed. */
struct eb_sampler {
    struct eb_adjust *list; /* one entry per token of the window and per bias */
    size_t capacity;
    ebro_mem *adjusts; /* i32 [2] offsets, then ebro_logit_adjust [n] */
    ebro_mem *scratch;
};

struct ebro_seq {
    struct ebro_engine *engine;
    struct ebro_seq *next, *prev;
    struct eb_seq *mem;   /* tokens, pages, state */
    uint32_t logits_from; /* first position whose logits are kept */
    ebro_mem *logits;     /* f32 [logits_capacity][vocab], READBACK */
    uint32_t logits_rows, logits_capacity;
    struct eb_experts *experts; /* NULL: choices are not kept */
    int32_t failed;             /* the status of the step that made it unusable; EBRO_OK: none */
    void *application;          /* that it was imported with; NULL: none */
    size_t application_bytes;
};

struct ebro_engine {
    struct ebro_model *model;
    struct ebro_device *device;
    struct eb_alloc alloc;
    struct eb_stream stream;
    struct eb_weights *weights;
    uint32_t n_ctx, n_chunk, max_pages;
    uint32_t max_seqs, max_emits; /* of the engine; of one step */
    int32_t cache_dtype;
    int32_t prefill_form;
    bool strict, expert_choices;
    struct eb_progress progress;
    struct eb_manager_options retention; /* as given, and the budget that follows */
    struct eb_layout layout;
    struct eb_manager mem;
    ebro_mem **extents; /* of the manager's arena */
    size_t n_extents, extents_capacity;
    struct eb_step_block step;
    struct eb_part *parts; /* [max_seqs] */
    struct eb_head *heads; /* [max_seqs + 1] */
    struct eb_workspace work;
    ebro_mem *batch_logits; /* f32 [max_seqs][vocab]; NULL: eb_engine_batches_logits says no */
    struct eb_graphs graphs;
    ebro_mem *readback; /* i32: the sampled id */
    struct eb_sampler sampler;
    struct ebro_seq *seqs, *last_seq; /* in the order in which they wait for their turn */
    uint32_t n_seqs;
    bool prompt_waits; /* the last step left one out for want of memory */
    uint32_t
        prompt_limit; /* prompt tokens that a step may take; UINT32_MAX: n_chunk alone counts */
};

/* Rows of a step that the token mixers treat alike: first one row of each decoding sequence, then
 * several rows of each of the others. */
struct eb_range {
    ebro_rows rows;
    uint32_t first_row, first_seq;
    uint32_t max_context; /* most tokens before the rows of any of its sequences */
    uint32_t n_emit;
};

/* Logits that a step computes: of rows [first_row, first_row + n) into `out`. */
struct eb_head {
    uint32_t first_row, n;
    ebro_mat out;
};

/* One sequence's part in a step. */
struct eb_part {
    struct ebro_seq *seq;
    struct eb_seq_step mem;
    uint32_t first_row;
    uint32_t n_logits; /* the last n_logits of its rows are wanted */
};

/* One step as the layer walk sees it. */
struct eb_step {
    uint32_t n_rows;
    struct eb_range ranges[2];
    uint32_t n_ranges;
    struct eb_head *heads;
    uint32_t n_heads;
    struct eb_part *parts; /* [n_parts], in the order of the rows */
    uint32_t n_parts, n_decoding;
    double progress, share; /* of all the tokens of its longest sequence: before it, of it */
};

/* engine.c: an engine's numbers from its options, without any memory: *e, zeroed before, gets
 * everything up to `layout`, but stream and weights. */
int32_t eb_engine_plan(struct ebro_model *model, struct ebro_device *device,
                       const ebro_engine_options *options, struct ebro_engine *e, ebro_error *err);
/* Whether decoding sequences get their logits in one product, and then each its own row: where they
 * can be several, and where steps are recorded. */
bool eb_engine_batches_logits(const struct ebro_engine *e);
/* What sequences of the model need of the cache. */
struct eb_shape eb_engine_shape(const struct ebro_model *m, int32_t cache_dtype);
/* Where a block of the arena lies on the device. */
uint64_t eb_block_address(const struct ebro_engine *e, uint32_t block);
ebro_span eb_block_span(const struct ebro_engine *e, uint32_t block);

/* sequence.c. It has had its turn: the others come first in the next step. */
void eb_seq_to_back(struct ebro_seq *s);
/* An empty public sequence with all that one needs; then, which cannot fail, it gets tokens, pages
 * and state in place of its own empty ones. */
int32_t eb_seq_prepare(struct ebro_engine *e, ebro_seq **out, ebro_error *err);
void eb_seq_adopt(struct ebro_seq *s, struct eb_seq *mem);
/* INVALID where there can be no more sequences. */
int32_t eb_engine_check_count(const struct ebro_engine *e, ebro_error *err);
/* EBRO_OK where the sequence can be used; where the logits of its last token are there.
 */
int32_t eb_seq_check(const struct ebro_seq *s, ebro_error *err);
int32_t eb_seq_check_logits(const struct ebro_seq *s, ebro_error *err);

/* sampler.c */
void eb_sampler_close(struct ebro_engine *e); /* fine on a zeroed one */

/* step.c */
uint64_t eb_step_block_bytes(const struct ebro_engine *e);
int32_t eb_step_block_open(struct ebro_engine *e, ebro_error *err);
/* Writes the block for the parts of a step, whose memory is reserved, and fills in ranges. */
void eb_step_write(struct ebro_engine *e, struct eb_step *step);

/* workspace.c. The first lays the activations out and says how many bytes they take; the second
 * allocates them too. */
int32_t eb_workspace_plan(struct ebro_engine *e, uint64_t *bytes, ebro_error *err);
int32_t eb_workspace_open(struct ebro_engine *e, ebro_error *err);

/* forward.c. The first tells the step's progress and hears of a cancel; the second, which does that
 * too, encodes the step on the engine's stream. */
int32_t eb_forward_begin(const struct ebro_engine *e, const struct eb_step *step, ebro_error *err);
int32_t eb_forward(struct ebro_engine *e, const struct eb_step *step, ebro_error *err);

/* mixer.c: one layer's token mixer, from work.normed into `out` (+= when accumulate). */
int32_t eb_forward_kda(struct ebro_engine *e, const struct eb_step *step, uint32_t layer,
                       uint32_t kda_layer, ebro_mat out, bool accumulate, ebro_error *err);
int32_t eb_forward_mla(struct ebro_engine *e, const struct eb_step *step, uint32_t layer,
                       uint32_t mla_layer, ebro_mat out, bool accumulate, ebro_error *err);
/* True where one sequence's step of `rows` rows after `context` tokens is faster with the context
 * expanded, by the costs that the device states. Depends on its arguments alone. */
bool eb_mla_expanded_pays(const struct eb_config *c, const ebro_caps *caps, uint32_t rows,
                          uint32_t context);

/* ffn.c: dense FFN or MoE, from work.normed, added to `out`. */
int32_t eb_forward_ffn(struct ebro_engine *e, const struct eb_step *step, uint32_t layer,
                       ebro_mat out, ebro_error *err);

/* experts.c. After a failed open, close frees what there is. */
int32_t eb_experts_open(struct ebro_engine *e, struct ebro_seq *s, ebro_error *err);
void eb_experts_close(struct ebro_seq *s);
/* Of the next n tokens, how many one step may take: either all or none of them are forced. */
uint32_t eb_experts_limit(const struct ebro_seq *s, uint32_t n);
/* Before routing: encodes the given choices into work.expert_ids, if there are any. */
int32_t eb_experts_force(struct ebro_engine *e, const struct eb_step *step, uint32_t layer,
                         bool *forced, ebro_error *err);
/* After routing: encodes the copy of what was chosen. */
int32_t eb_experts_keep(struct ebro_engine *e, const struct eb_step *step, uint32_t layer,
                        ebro_error *err);

/* products.c: products of weights that share x, in as few linear calls as hold them. A weight that
 * lies in several memories is one item for each. On the caller's stack: begin, add each, end. */
struct eb_products {
    struct ebro_engine *engine;
    ebro_linear_args args;
};
struct eb_products eb_products_begin(struct ebro_engine *e, uint32_t n_rows, ebro_mat x);
/* out (+= when accumulate) = x m^T; may run what was added before. */
int32_t eb_products_add(struct eb_products *p, const struct eb_matrix *m, ebro_mat out,
                        bool accumulate, ebro_error *err);
int32_t eb_products_end(struct eb_products *p, ebro_error *err);
/* All three for a single weight. */
int32_t eb_forward_linear(struct ebro_engine *e, uint32_t n_rows, ebro_mat x,
                          const struct eb_matrix *m, ebro_mat out, bool accumulate,
                          ebro_error *err);
int32_t eb_forward_norm(struct ebro_engine *e, uint32_t n_rows, uint32_t n_cols, ebro_mat x,
                        const struct eb_tensor *weight, float eps, ebro_mat out, ebro_error *err);
/* The mat that starts at row `first`. */
ebro_mat eb_mat_from(ebro_mat m, uint32_t first);

#endif
