/* micro.h: writes complete tiny models with random weights: about 300 KB each, every switch of the
 * configuration reachable. For loading tests and for tests of a whole forward. The weights are
 * scaled so that activations stay near one. Shares no code with the product but the scalar
 * conversions. */
#ifndef EB_TEST_MICRO_H
#define EB_TEST_MICRO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ebro/ebro.h"

enum {
    MICRO_HIDDEN = 64,
    MICRO_KDA_HEADS = 2,
    MICRO_KDA_DIM = 64,
    MICRO_MLA_HEADS = 2,
    MICRO_NOPE = 32,
    MICRO_ROPE = 16,
    MICRO_V_DIM = 32,
    MICRO_KV_LORA = 64,
    MICRO_Q_LORA = 32,
    MICRO_INNER = 96,
    MICRO_EXPERTS = 8,
    MICRO_TOP_K = 2,
    MICRO_MOE_INNER = 32,
    MICRO_LATENT_WIDTH = 32,
    MICRO_RANKS = 256, /* one per byte; special tokens follow */
    MICRO_VOCAB = 272
};

enum micro_family { MICRO_LINEAR, MICRO_K3 };
enum micro_gate { MICRO_GATE_NONE, MICRO_GATE_HEAD, MICRO_GATE_ELEMENT };
enum micro_ffn { MICRO_DENSE, MICRO_MOE, MICRO_LATENT };
enum micro_a_log {
    MICRO_A_LOG_4D,     /* [1, 1, H, 1] */
    MICRO_A_LOG_1D,     /* [H] */
    MICRO_A_LOG_PADDED, /* [128], zeros behind the heads */
    MICRO_A_LOG_DIRTY   /* [128], something behind the heads: must be refused */
};

/* All zeros is a valid model: Kimi Linear, "KKKM", dense, F32, softplus and low-rank gates, NoPE.
 */
struct micro_spec {
    uint64_t seed;
    enum micro_family family;
    const char *pattern; /* 'K' or 'M' a layer; NULL: "KKKM" */
    bool bounded_gate, full_rank_gate;
    bool rotary, q_lora;
    enum micro_gate mla_gate;
    enum micro_ffn ffn; /* MoE from the second layer on */
    bool no_shared, no_renormalise, no_latent_norm;
    bool situ;
    uint32_t attn_res_block; /* 0: ordinary residual */
    bool tied;
    int32_t dtype;        /* of matrices and norms: EBRO_F32, F16 or BF16 */
    int32_t small_dtype;  /* of convolutions, A_log, dt_bias, o_norm, score bias */
    bool mxfp4;           /* routed experts packed */
    bool mxfp4_attention; /* q, k, v, o and the low-rank parts of KDA and MLA packed */
    bool mxfp4_all;   /* every matrix packed that may be; test_reference_logits cannot read these */
    bool conv_rank2;  /* [C, 4] instead of [C, 1, 4] */
    uint32_t vocab;   /* 0: MICRO_VOCAB; more rows than that are zeros; float types only */
    uint32_t experts; /* 0: MICRO_EXPERTS */
    uint32_t context; /* 0: 8192 */
    enum micro_a_log a_log;
    /* The files. */
    uint32_t n_shards; /* 0: model.safetensors, else as many shards and an index */
    uint32_t shift;    /* bytes added to the header, so that the data is misaligned */
    const char *drop;  /* this tensor is left out */
    const char *extra; /* a tensor of this name is added */
};

/* Writes config.json, generation_config.json, the weights, tiktoken.model and tokenizer_config.json
 * into an existing folder. */
void micro_write(const char *dir, const struct micro_spec *spec);

/* The same as files in memory; free with micro_files_free. The names belong to the list. */
struct micro_files {
    ebro_file *files;
    uint32_t n;
};
struct micro_files micro_make(const struct micro_spec *spec);
void micro_files_free(struct micro_files *f);
ebro_file *micro_file(const struct micro_files *f, const char *name); /* NULL: none */

/* Named models that between them reach every switch, for tests that go over all. */
struct micro_case {
    const char *name;
    struct micro_spec spec;
};
extern const struct micro_case micro_cases[];
extern const size_t n_micro_cases;

#endif
