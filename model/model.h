/* model.h: an immutable model: configuration, tensors in their files, tokenizer, and the plan that
 * says which tensor plays which part in which layer. No device memory: see load.h. */
#ifndef EB_MODEL_H
#define EB_MODEL_H

#include <stdatomic.h>
#include <stdbool.h>

#include "device/runtime.h"
#include "model/chat.h"
#include "model/safetensors.h"
#include "model/tokenizer.h"

/* A weight matrix: [rows = outputs][cols = inputs]. w NULL: this model has none. */
struct eb_matrix {
    const struct eb_tensor *w;     /* MXFP4: the packed codes, U8 [rows][cols / 2] */
    const struct eb_tensor *scale; /* MXFP4 only: U8 [rows][cols / 32] */
    uint32_t rows, cols;
    int32_t dtype;
};

enum eb_mla_gate { EB_MLA_GATE_NONE, EB_MLA_GATE_HEAD, EB_MLA_GATE_ELEMENT };

/* The switches and sizes of a model, named as in config.json where it has a name for them. */
struct eb_config {
    uint32_t hidden_size, vocab_size, n_layers, max_context;
    float rms_norm_eps, latent_norm_eps;
    /* KDA */
    uint32_t kda_heads, kda_head_dim;
    bool kda_gate_bounded;
    float gate_lower_bound;
    bool kda_full_rank_gate;
    /* MLA */
    uint32_t n_heads, q_lora_rank /* 0: q is full */, kv_lora_rank, qk_nope_head_dim,
        qk_rope_head_dim, v_head_dim;
    uint32_t rotary_dim; /* 0: NoPE */
    float rope_theta;
    enum eb_mla_gate mla_gate;
    /* FFN */
    int32_t act; /* EBRO_ACT_SILU or EBRO_ACT_SITU */
    float situ_beta, situ_linear_beta;
    uint32_t intermediate_size, n_experts, experts_per_token, n_shared_experts, moe_inner;
    uint32_t latent_size; /* LatentMoE: width that routed experts work on; 0: hidden_size */
    bool latent_norm;
    float routed_scaling_factor;
    bool renormalise, biased_expert_weights;
    /* residual */
    uint32_t attn_res_block; /* 0: ordinary residual */
};

/* Attention Residuals: a pair of vectors of hidden_size. NULL: absent. */
struct eb_res_pair {
    const struct eb_tensor *norm, *proj;
};

struct eb_layer {
    bool is_kda;
    bool is_moe;
    const struct eb_tensor *input_norm, *post_norm;
    struct eb_res_pair attn_res, ffn_res;
    struct eb_matrix o_proj;
    /* KDA */
    struct eb_matrix q_proj, k_proj, v_proj; /* q_proj also: MLA with a full q */
    const struct eb_tensor *conv[3];         /* q, k, v: [channels][4] */
    struct eb_matrix f_a, f_b, b_proj;
    struct eb_matrix g_a, g_b; /* low-rank output gate */
    struct eb_matrix g_proj;   /* full-rank output gate; MLA: output gate */
    const struct eb_tensor *a_log, *dt_bias, *o_norm;
    /* MLA */
    struct eb_matrix q_a, q_b, kv_a, kv_b;
    const struct eb_tensor *q_a_norm, *kv_a_norm;
    /* FFN: dense, or the shared experts of a MoE layer */
    struct eb_matrix gate_proj, up_proj, down_proj;
    /* MoE */
    struct eb_matrix router;
    const struct eb_tensor *score_bias;
    struct eb_matrix latent_down, latent_up;
    const struct eb_tensor *latent_norm;
    struct eb_matrix *experts[3]; /* w1 gate, w3 up, w2 down: [n_experts] each */
};

struct eb_model_file {
    char *name;
    struct eb_bytes bytes;
    struct eb_safetensors st;
};

struct ebro_model {
    ebro_runtime *rt;
    struct eb_alloc alloc;
    char architecture[32];
    enum eb_chat_family chat;
    struct eb_config config;
    struct eb_model_file *files; /* the weight files */
    uint32_t n_files;
    uint32_t n_tensors;              /* over all files; eb_tensor.index is below it */
    struct eb_matrix embed, lm_head; /* lm_head = embed where tied */
    const struct eb_tensor *final_norm;
    struct eb_res_pair output_res;
    struct eb_layer *layers;
    struct eb_tokenizer *tokenizer;
    int32_t bos;
    int32_t stop_ids[8];
    uint32_t n_stop;
    _Atomic uint64_t fingerprint, tokenizer_fingerprint; /* 0: not computed; fingerprint.h */
};

/* Bytes of one sequence's recurrent state: S (of dtype) and f32 windows, over all KDA layers. */
uint64_t eb_model_state_bytes(const struct eb_config *c, uint32_t n_kda_layers, int32_t dtype);
uint32_t eb_model_count_kda(const struct ebro_model *m);

#endif
