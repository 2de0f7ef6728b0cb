/* backend.h: the module ABI, everything that a backend and the runtime know of each other.
 *
 * A backend is one shared library, `ebro_<name>.so`, with one exported symbol, ebro_backend_entry.
 * The runtime loads it from its own folder or from an explicit path, compares the ABI number before
 * anything else runs, and from then on calls through the table below. A backend never sees a model,
 * a sequence or a prefix: it sees memory, streams and operators.
 *
 * Rules
 *   - runtime/ops validates every argument struct before it gets here; a backend only asserts.
 *   - Ops are asynchronous on their stream and ordered within it. Anything they read on the host
 *     (argument structs, arrays marked "host") is read before the call returns.
 *   - Errors are returned as an ebro_status with a text by host->fail. A backend never aborts,
 *     exits, prints, reads the environment, or moves work to another device by itself.
 *   - Accumulation is fp32. Matrix operands may be narrower only as the rung that was chosen says.
 *   - A stream belongs to one thread at a time; a device may be used from several threads.
 *   - "rows" are packed tokens of one or more sequences; row_offsets says whose is which.
 */
#ifndef EBRO_BACKEND_H
#define EBRO_BACKEND_H

#include "ebro.h"

#ifdef __cplusplus
extern "C" {
#endif

#define EBRO_BACKEND_ABI 5u

enum {
    EBRO_MAX_LINEAR = 8,   /* weights of one linear call */
    EBRO_MAX_SOURCES = 32, /* sources of one attn_res_mix call, the running sum included */
    EBRO_CONV_WIDTH = 4,   /* KDA's short convolution */
    EBRO_MX_GROUP = 32     /* columns that share one MXFP4 scale */
};

/* ---- host services ---------------------------------------------------------------------- */

typedef struct ebro_host {
    size_t size;
    void *user;
    /* As ebro_runtime_options.realloc. */
    void *(*realloc)(void *user, void *p, size_t n);
    void (*log)(void *user, int32_t level, const char *fmt, ...);
    /* Writes status and text to err (NULL-safe) and returns status. */
    int32_t (*fail)(ebro_error *err, int32_t status, const char *fmt, ...);
    /* As ebro_runtime_options.cache_dir; NULL: nothing is kept. */
    const char *cache_dir;
    /* What the log takes: messages above this level are dropped, so that a backend need not do what
     * only they would tell. */
    int32_t log_level;
} ebro_host;

/* ---- capabilities ----------------------------------------------------------------------- */

/* Bits of ebro_caps.bits; caps_mask clears bits before the variant ladder is walked. */
enum {
    EBRO_CAP_F16 = 1u << 0,
    EBRO_CAP_BF16 = 1u << 1,
    EBRO_CAP_DOT8 = 1u << 2,
    EBRO_CAP_SUBGROUP = 1u << 3,
    EBRO_CAP_MATRIX = 1u << 4, /* cooperative matrix, mma, mfma, wmma */
    EBRO_CAP_GRAPHS = 1u << 5,
    EBRO_CAP_UNIFIED = 1u << 6, /* device memory is host memory: mem_import costs no copy */
    EBRO_CAP_STRICT = 1u << 7,  /* can give identical bytes for any split and batch */
    EBRO_CAP_AVX2 = 1u << 16,   /* CPU: AVX2 + FMA + F16C */
    EBRO_CAP_AVX512 = 1u << 17, /* CPU: F, BW, DQ, VL */
    EBRO_CAP_AVX512BF16 = 1u << 18,
    EBRO_CAP_AVX512VNNI = 1u << 19
};

typedef struct ebro_caps {
    size_t size;
    uint64_t bits;
    uint32_t wave_min, wave_max;
    uint64_t shared_bytes;
    uint64_t max_binding_bytes, max_alloc_bytes;
    uint64_t mem_alignment; /* of mem_alloc and, for the fast path, of mem_import; power of two */
    uint64_t total_bytes, free_bytes;
    int32_t default_cache_dtype;
    uint32_t n_threads;
    /* What MLA attention costs a thread (or the device) in each form, in picoseconds per
     * multiply-add, and the number of tokens that the expanded form rounds a context up to. 0: not
     * known, both forms count alike. Constants of the device and its rung, never timed at run time:
     * the same step must take the same form every time. */
    uint32_t mla_expanded_ps, mla_absorbed_ps, mla_expanded_tokens;
    /* Of weights, power of two: those that lie otherwise in an imported file are copied to where
     * they are read fast. 0: the size of their elements will do. */
    uint32_t weight_alignment;
} ebro_caps;

/* Bits of ebro_probe_result.flags. */
enum {
    /* A processor that imitates such a device: right, slow, and never chosen unless it is named. */
    EBRO_PROBE_EMULATED = 1u << 0
};

typedef struct ebro_probe_result {
    char name[32]; /* "CPU", "CUDA0", ... */
    char description[128];
    char id[64];
    uint64_t total_bytes, free_bytes;
    uint32_t flags;
    uint32_t reserved;
} ebro_probe_result;

/* ---- memory ----------------------------------------------------------------------------- */

/* One allocation. Made by mem_alloc or mem_import, released by mem_free. The backend may embed this
 * at the head of a larger struct of its own. */
typedef struct ebro_mem {
    uint64_t bytes;
    /* What device-side tables hold to name a byte: address + offset is linear inside the
     * allocation and never 0. On a backend without raw addresses it is a handle with that rule. */
    uint64_t address;
    void *host; /* mapped pointer, coherent once a ticket is waited for; NULL: not mapped */
} ebro_mem;

enum {
    EBRO_MEM_DEVICE = 0,  /* weights, caches, activations */
    EBRO_MEM_UPLOAD = 1,  /* host writes, device reads; `host` is set */
    EBRO_MEM_READBACK = 2 /* device writes, host reads; `host` is set */
};

typedef struct ebro_span {
    ebro_mem *mem;   /* NULL: absent */
    uint64_t offset; /* bytes */
} ebro_span;

/* A matrix of rows; element (r, c) of dtype at offset + (r * stride + c) * size(dtype). Activations
 * are F32 unless an op says otherwise. */
typedef struct ebro_mat {
    ebro_mem *mem;   /* NULL: absent */
    uint64_t offset; /* bytes, a multiple of the element size */
    uint64_t stride; /* elements between rows */
    int32_t dtype;
} ebro_mat;

/* A weight matrix, [rows = outputs][cols = inputs] as published, used as it is. MXFP4: two codes a
 * byte, the low four bits first, and a scale for every 32. A scale times a code may be beyond f32
 * where the product with x is not: the scale belongs to the product, or to the sum of its 32. */
typedef struct ebro_weight {
    ebro_mem *mem;
    uint64_t offset;
    uint64_t stride; /* elements between rows; MXFP4: cols, rows are dense */
    uint32_t rows, cols;
    int32_t dtype; /* F32, F16, BF16, MXFP4 */
    /* Multiply by the transpose instead: outputs = cols, inputs = rows. Not for MXFP4. */
    int32_t transposed;
    ebro_mem *scale_mem; /* MXFP4: u8 [rows][cols / 32] */
    uint64_t scale_offset;
} ebro_weight;

/* A vector of weights (norms, biases): F32, F16 or BF16. */
typedef struct ebro_vec {
    ebro_mem *mem; /* NULL: absent */
    uint64_t offset;
    int32_t dtype;
} ebro_vec;

/* ---- sequences -------------------------------------------------------------------------- */

/* Whose rows are whose. Sequence s owns rows [row_offsets[s], row_offsets[s+1]); empty sequences
 * are allowed. The host numbers are upper bounds for sizing a grid; the arrays rule. */
typedef struct ebro_rows {
    ebro_span row_offsets; /* i32 [n_seqs + 1], starts at 0 */
    uint32_t n_seqs;
    uint32_t n_rows;   /* row_offsets[n_seqs] at most */
    uint32_t max_rows; /* of one sequence */
} ebro_rows;

/* Where states live. A slot is a list of blocks: `table` holds u64 block addresses,
 * [n_slots][table_stride]. Unit u (one head's S, or one convolution window) of a slot lies at
 *   table[slot * table_stride + first_block + (first_unit + u) / units_per_block]
 *     + block_offset + ((first_unit + u) % units_per_block) * unit_bytes.
 * S of a head is [key][value]; unit u = head. Windows are the last three raw inputs, oldest first,
 * [3][channels], f32; unit 0 = q, 1 = k, 2 = v. */
typedef struct ebro_region {
    ebro_span table;
    uint32_t table_stride;
    uint32_t first_block;
    uint32_t first_unit;
    uint32_t units_per_block;
    uint64_t block_offset;
    uint64_t unit_bytes;
    int32_t dtype; /* S: F32 or BF16; windows: F32 */
} ebro_region;

/* State traffic of one op. state_in and state_out are i32 [n_seqs] slot numbers; they may be equal
 * (in place). state_in -1: start from zeros; state_out -1: do not write. An empty sequence with
 * state_in != state_out still copies.
 * Emitted states: after row emit_rows[i] (a packed row number, any order, no two alike) the state
 * of its sequence is also written to slot emit_slots[i]: that is how a snapshot lands inside a
 * chunked prefill. */
typedef struct ebro_state_io {
    ebro_region region;
    ebro_span state_in, state_out;
    ebro_span emit_rows, emit_slots; /* i32 [n_emit] */
    uint32_t n_emit;
} ebro_state_io;

/* A paged cache of latent rows. `table` holds u64 page addresses, [n_seqs][table_stride]. Token t
 * of sequence s lies at table[s * table_stride + t / page_tokens] + layer_offset
 *   + (t % page_tokens) * row_stride * size(dtype).
 * A row is [latent (kv_lora, normalised) | key channels (rope_dim, raw or rotated)]. */
typedef struct ebro_pages {
    ebro_span table;
    uint32_t table_stride;
    uint32_t page_tokens;
    uint64_t layer_offset; /* bytes */
    uint32_t row_stride;   /* elements */
    int32_t dtype;         /* F32, F16, BF16 */
    ebro_span context;     /* i32 [n_seqs]: tokens in the cache before the rows of this step */
    uint32_t max_context;  /* bound on context + rows of any sequence */
} ebro_pages;

/* ---- op arguments. Every struct starts with size. --------------------------------------- */

typedef struct ebro_embed_args {
    size_t size;
    ebro_span ids; /* i32 [n_rows] */
    uint32_t n_rows;
    ebro_weight table; /* [rows][hidden], of ids first_id on; F32, F16, BF16 */
    ebro_mat out;      /* [n_rows][table.cols] */
    uint32_t first_id; /* first_id + table.rows at most 2^31 */
    /* Rows whose id the table does not hold: 0: they become zeros; else they stay as they are, so
     * that the parts of a table that lie apart follow each other. */
    int32_t keep;
} ebro_embed_args;

typedef struct ebro_sample_params {
    float temperature; /* 0: greedy */
    float top_p;       /* 0 or >= 1: off */
    float min_p;       /* 0: off */
    uint32_t top_k;    /* 0: off */
    uint64_t seed;
    uint64_t position; /* index of the token that is being drawn */
} ebro_sample_params;

/* Changes one logit before the choice: x = x > 0 ? x / repeat : x * repeat, then x = x + add. The
 * runtime sums up penalties and biases, so that a backend sees one such entry per id. */
typedef struct ebro_logit_adjust {
    int32_t id;   /* outside [0, vocab): the entry does nothing */
    float repeat; /* > 0; 1: leaves the logit as it is */
    float add;
} ebro_logit_adjust;

/* Greedy: the largest logit, ties to the lower id. Else: p = softmax(logits / temperature); keep
 * the top_k most probable (ties to the lower id), of those the smallest set whose sum, from the
 * most probable on, reaches top_p of the kept mass, of those the ones with p >= min_p * max p. The
 * draw: u = ebro_uniform(seed, position) times the kept mass; the first kept id, in rising id
 * order, at which the running sum exceeds it. */
typedef struct ebro_sample_args {
    size_t size;
    ebro_mat logits; /* [n_rows][vocab] */
    uint32_t n_rows, vocab;
    ebro_span params; /* ebro_sample_params [n_rows] */
    ebro_span ids;    /* out i32 [n_rows]; -1 where a logit is not finite */
    /* Entries adjust_offsets[r] .. adjust_offsets[r + 1] of adjusts are for row r, an id at most
     * once a row. They act before all of the above and never change `logits`: the changed rows
     * belong in the scratch. -1 also where a changed logit is not finite. Both absent where
     * n_adjusts is 0. */
    ebro_span adjusts;        /* ebro_logit_adjust [n_adjusts] */
    ebro_span adjust_offsets; /* i32 [n_rows + 1], rising from 0 to n_adjusts at most */
    uint32_t n_adjusts;
    ebro_span scratch;
} ebro_sample_args;

/* Uniform in [0, 1) with 24 bits, from two rounds of splitmix64 over (seed, position). */
static inline float ebro_uniform(uint64_t seed, uint64_t position) {
    uint64_t z = seed + 0x9e3779b97f4a7c15u * (position + 1u);
    for (int i = 0; i < 2; i++) {
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
        z = (z ^ (z >> 31)) + 0x9e3779b97f4a7c15u;
    }
    return (float)(z >> 40) * (1.0f / 16777216.0f);
}

/* out = x / sqrt(mean(x^2) + eps) * weight * sigmoid(gate), weight and gate optional. out may be x.
 * Serves the plain norms (rows = tokens) and KDA's output norm (rows = tokens x heads). */
typedef struct ebro_rms_norm_args {
    size_t size;
    ebro_mat x, out; /* [n_rows][n_cols] */
    ebro_mat gate;   /* [n_rows][n_cols], optional */
    ebro_vec weight; /* [n_cols], optional */
    uint32_t n_rows, n_cols;
    float eps;
} ebro_rms_norm_args;

typedef struct ebro_linear_item {
    ebro_weight w;
    ebro_mat out;       /* [n_rows][outputs] */
    int32_t accumulate; /* out += instead of out = */
    int32_t reserved;
    /* Batch b adds these to the offsets: bytes for the weight (MXFP4 is not batched), elements for
     * out. */
    uint64_t w_batch_bytes, out_batch_elements;
} ebro_linear_item;

/* out_i = x W_i^T for 1..8 weights that share x. With n_batch > 1 the call is n_batch independent
 * products (per-head W_uk and W_uv), x advancing by x_batch_elements. */
typedef struct ebro_linear_args {
    size_t size;
    ebro_mat x; /* [n_rows][inputs] */
    uint32_t n_rows, n_items, n_batch;
    uint64_t x_batch_elements;
    ebro_linear_item items[EBRO_MAX_LINEAR];
    ebro_span scratch;
} ebro_linear_args;

enum {
    EBRO_ACT_SILU = 0,   /* silu(gate) * up */
    EBRO_ACT_SITU = 1,   /* beta tanh(gate/beta) sigmoid(gate) * beta2 tanh(up/beta2) */
    EBRO_ACT_SIGMOID = 2 /* sigmoid(gate) * up */
};

typedef struct ebro_act_mul_args {
    size_t size;
    ebro_mat gate;    /* [n_rows][n_cols / gate_group] */
    ebro_mat up, out; /* [n_rows][n_cols]; out may be up or gate (gate_group 1) */
    uint32_t n_rows, n_cols;
    uint32_t gate_group; /* columns of `up` that share one gate value; 1: element-wise */
    int32_t kind;
    float beta, beta2; /* SITU */
} ebro_act_mul_args;

/* Causal depthwise convolution of width 4 and SiLU, for q, k and v at once:
 * y_t = silu(w0 x_{t-3} + w1 x_{t-2} + w2 x_{t-1} + w3 x_t); inputs before the sequence's first row
 * come from its window. out[i] must not overlap x[i]. */
typedef struct ebro_kda_conv_args {
    size_t size;
    ebro_rows rows;
    ebro_mat x[3], out[3]; /* q, k, v: [n_rows][n_channels] */
    ebro_vec weight[3];    /* [n_channels][4], oldest tap first */
    uint32_t n_channels;
    ebro_state_io state; /* windows */
} ebro_kda_conv_args;

enum {
    EBRO_GATE_SOFTPLUS = 0, /* g = -exp(A_log[h]) softplus(raw + dt_bias) */
    EBRO_GATE_BOUNDED = 1   /* g = lower_bound sigmoid(exp(A_log[h]) (raw + dt_bias)) */
};

/* What the KDA ops share. H heads of head_dim keys and head_dim values, head_dim a multiple of 8. q
 * and k are normalised here: x / sqrt(sum x^2 + l2_eps); q is also scaled by head_dim^-1/2; beta =
 * sigmoid(beta_raw). */
typedef struct ebro_kda_gate {
    uint32_t n_heads, head_dim;
    ebro_mat g_raw;    /* [n_rows][H * head_dim] */
    ebro_mat beta_raw; /* [n_rows][H] */
    ebro_vec a_log;    /* [H] */
    ebro_vec dt_bias;  /* [H * head_dim] */
    int32_t form;      /* EBRO_GATE_* */
    float lower_bound;
    float l2_eps;
} ebro_kda_gate;

/* Chunk preparation, parallel over sequences x heads x chunks. The chunk size and the layout of
 * `work` are the backend's own; kda_recur is called with the same rows, gate and emit list. */
typedef struct ebro_kda_prep_args {
    size_t size;
    ebro_rows rows;
    ebro_mat q, k, v; /* [n_rows][H * head_dim], after convolution and SiLU */
    ebro_kda_gate gate;
    ebro_span emit_rows; /* as in ebro_state_io: chunks end there */
    uint32_t n_emit;
    ebro_span work; /* scratch_bytes(EBRO_OP_KDA_PREP, this) */
} ebro_kda_prep_args;

/* Chunk recurrence, serial in chunks, parallel over sequences x heads x value columns. */
typedef struct ebro_kda_recur_args {
    size_t size;
    ebro_rows rows;
    ebro_mat v;   /* as given to kda_prep */
    ebro_mat out; /* [n_rows][H * head_dim], before the output norm */
    uint32_t n_heads, head_dim;
    ebro_state_io state; /* S */
    ebro_span work;      /* as written by kda_prep */
} ebro_kda_recur_args;

/* The whole chain, token by token: convolution, gates, recurrence, gated output norm. Made for one
 * row per sequence; right for any number, with the same bytes for every split. */
typedef struct ebro_kda_step_args {
    size_t size;
    ebro_rows rows;
    ebro_mat x[3]; /* raw q, k, v projections [n_rows][H * head_dim] */
    ebro_vec conv_weight[3];
    ebro_kda_gate gate;
    ebro_state_io windows, state;
    ebro_mat out_gate;    /* [n_rows][H * head_dim], before the sigmoid */
    ebro_vec norm_weight; /* [head_dim] */
    float norm_eps;
    ebro_mat out; /* [n_rows][H * head_dim] */
    ebro_span scratch;
} ebro_kda_step_args;

/* Writes the cache rows of a step: latent = rms_norm(kv[0..kv_lora), weight, eps), then the
 * rope_dim key channels. With rotary_dim > 0 the first rotary_dim key channels, and the same
 * channels of every head of q (in place), turn by position: pairs (2i, 2i+1), angle position *
 * theta^(-2i/dim).*/
typedef struct ebro_mla_append_args {
    size_t size;
    ebro_rows rows;
    ebro_mat kv;          /* [n_rows][kv_lora + rope_dim], as projected */
    ebro_vec norm_weight; /* [kv_lora] */
    float norm_eps;
    uint32_t kv_lora, rope_dim;
    ebro_pages pages;
    uint32_t rotary_dim; /* 0: no rotary */
    float rotary_theta;
    ebro_mat q; /* [n_rows][n_heads * q_head_stride], optional (rotary only) */
    uint32_t n_heads, q_head_stride, q_rope_offset;
} ebro_mla_append_args;

/* Attention of the step's rows over their own contexts, expanded form: row i of a sequence sees
 * cache tokens 0 .. context + i. k = [W_uk c, k_pe], v = W_uv c. */
typedef struct ebro_mla_prefill_args {
    size_t size;
    ebro_rows rows;
    ebro_mat q;       /* [n_rows][H * (nope_dim + rope_dim)] */
    ebro_weight kv_b; /* per head [nope_dim rows of W_uk, v_dim rows of W_uv], cols kv_lora */
    uint32_t n_heads, nope_dim, rope_dim, v_dim, kv_lora;
    float scale;
    ebro_pages pages;
    /* Only tokens in [token_begin, token_end) are seen (0, UINT32_MAX: all): contexts can be tiled
     * and merged by lse. */
    uint32_t token_begin, token_end;
    ebro_mat out; /* [n_rows][H * v_dim]; zeros where nothing is seen */
    ebro_mat lse; /* [n_rows][H], natural log of the sum of exp(score), -inf where nothing is seen;
                     optional */
    ebro_span scratch;
} ebro_mla_prefill_args;

/* The same, absorbed: q = [W_uk^T q_nope, q_pe] per head, scores against cache rows, values are the
 * latents themselves. Split over the context; the splits are fixed by the context alone. */
typedef struct ebro_mla_decode_args {
    size_t size;
    ebro_rows rows;
    ebro_mat q; /* [n_rows][H * (kv_lora + rope_dim)] */
    uint32_t n_heads, kv_lora, rope_dim;
    float scale;
    ebro_pages pages;
    uint32_t token_begin, token_end;
    ebro_mat out; /* [n_rows][H * kv_lora] */
    ebro_mat lse; /* optional */
    ebro_span scratch;
} ebro_mla_decode_args;

/* s = sigmoid(x W^T) in fp32; choose top_k by s + bias (ties: lower index); weights = chosen s (or
 * s + bias), divided by (their sum + 1e-20) if renormalise, times scaling. */
typedef struct ebro_moe_route_args {
    size_t size;
    ebro_mat x;       /* [n_rows][hidden] */
    ebro_weight gate; /* [n_experts][hidden] */
    ebro_vec bias;    /* [n_experts], optional */
    uint32_t n_rows, n_experts, top_k;
    float scaling;
    int32_t renormalise;
    int32_t biased_weights;
    int32_t forced;   /* ids are an input; only the weights are computed */
    ebro_mat ids;     /* i32 [n_rows][top_k], best selection score first */
    ebro_mat weights; /* f32 [n_rows][top_k] */
    /* The same pairs grouped by expert: pairs[offsets[e] .. offsets[e+1]) are row * top_k + choice,
     * rising. */
    ebro_span offsets; /* i32 [n_experts + 1] */
    ebro_span pairs;   /* i32 [n_rows * top_k] */
    ebro_span scratch;
} ebro_moe_route_args;

/* out[r] += sum over r's experts: weight * w2 act(w1 x_r, w3 x_r). */
typedef struct ebro_moe_experts_args {
    size_t size;
    ebro_mat x;   /* [n_rows][in_dim] */
    ebro_mat out; /* [n_rows][in_dim] */
    uint32_t n_rows, n_experts, top_k;
    uint32_t in_dim, inner_dim;
    /* Addresses (ebro_mem.address + offset) of every expert's w1 (gate) and w3 (up) [inner][in] and
     * w2 (down) [in][inner], dense rows: u64 [3][n_experts] in the order w1, w3, w2. */
    ebro_span tables;
    ebro_span scale_tables; /* MXFP4: the same for the scales */
    int32_t dtype;          /* F32, F16, BF16, MXFP4 */
    int32_t act;            /* EBRO_ACT_SILU or EBRO_ACT_SITU */
    float beta, beta2;
    ebro_mat weights; /* as written by moe_route */
    ebro_span offsets, pairs;
    ebro_span scratch;
} ebro_moe_experts_args;

/* out = sum_s softmax_s(score_s) source_s, score_s = <rms_norm(source_s, norm_weight, eps), proj>.
 * One source: out = source. out may be one of the sources. */
typedef struct ebro_attn_res_mix_args {
    size_t size;
    ebro_mat
        sources[EBRO_MAX_SOURCES]; /* [n_rows][n_cols], banked ones oldest first, then the sum */
    uint32_t n_sources, n_rows, n_cols;
    ebro_vec norm_weight, proj; /* [n_cols] */
    float eps;
    ebro_mat out;
    ebro_mat probs; /* [n_rows][n_sources], optional */
} ebro_attn_res_mix_args;

/* n independent copies: dst[i] <- src[i], `bytes` each, addresses as in tables. A src of 0 fills
 * with zeros. Copies do not overlap. */
typedef struct ebro_state_copy_args {
    size_t size;
    ebro_span src, dst; /* u64 [n] */
    uint32_t n;
    uint64_t bytes;
} ebro_state_copy_args;

/* dst[dst_rows[i]] <- src[src_rows[i]], row_bytes each; an absent list means i; a negative src row
 * gives zeros, a negative dst row is skipped. No row is both read and written. */
typedef struct ebro_rows_copy_args {
    size_t size;
    ebro_span src, dst;
    uint64_t src_stride_bytes, dst_stride_bytes, row_bytes;
    uint32_t n;
    ebro_span src_rows, dst_rows; /* i32 [n], optional */
} ebro_rows_copy_args;

/* Exactly one of (src, src_host) and one of (dst, dst_host) is set. Host pointers must stay valid
 * until the ticket of the copy is waited for. */
typedef struct ebro_copy_args {
    size_t size;
    ebro_span src, dst;
    const void *src_host;
    void *dst_host;
    uint64_t bytes;
} ebro_copy_args;

/* Every op, once for all: X(N, name) for EBRO_OP_N, struct ebro_<name>_args and the table's entry
 * <name>. New ones go to the end. */
#define EBRO_OPS(X)               \
    X(EMBED, embed)               \
    X(SAMPLE, sample)             \
    X(RMS_NORM, rms_norm)         \
    X(LINEAR, linear)             \
    X(ACT_MUL, act_mul)           \
    X(KDA_CONV, kda_conv)         \
    X(KDA_PREP, kda_prep)         \
    X(KDA_RECUR, kda_recur)       \
    X(KDA_STEP, kda_step)         \
    X(MLA_APPEND, mla_append)     \
    X(MLA_PREFILL, mla_prefill)   \
    X(MLA_DECODE, mla_decode)     \
    X(MOE_ROUTE, moe_route)       \
    X(MOE_EXPERTS, moe_experts)   \
    X(ATTN_RES_MIX, attn_res_mix) \
    X(STATE_COPY, state_copy)     \
    X(ROWS_COPY, rows_copy)

typedef enum ebro_op {
#define EBRO_OP_NUMBER(N, name) EBRO_OP_##N,
    EBRO_OPS(EBRO_OP_NUMBER) EBRO_N_OPS
#undef EBRO_OP_NUMBER
} ebro_op;

/* ---- the table -------------------------------------------------------------------------- */

/* Opaque to the runtime. */
typedef struct ebro_dev ebro_dev;
typedef struct ebro_stream ebro_stream;
typedef struct ebro_graph ebro_graph;

typedef struct ebro_device_options {
    size_t size;
    uint64_t caps_mask; /* bits to take away from what the device reports */
    uint32_t n_threads; /* CPU; 0: the backend's choice */
    /* Variants that the ladder passes over: names as op_variant gives them, with blanks between
     * them. NULL: none. A name that the backend does not know is INVALID, and the error names those
     * that it knows. */
    const char *avoid;
} ebro_device_options;

/* Entries are required unless marked optional (NULL). Destroying calls accept no NULL. */
typedef struct ebro_backend {
    size_t size;
    uint32_t abi;
    const char *name; /* "cpu", "cuda", "hip", "vulkan", "opencl", "null" */

    /* Cheap, creates no context: fills up to `capacity` entries, sets *count. A machine without
     * such a device is OK with *count = 0 and a reason in *err (status EBRO_NO_DEVICE). */
    int32_t (*probe)(const ebro_host *host, ebro_probe_result *out, uint32_t capacity,
                     uint32_t *count, ebro_error *err);
    /* index: as in probe. UNSUPPORTED when a required op has no variant that fits and is not to be
     * avoided, naming both. The host table stays valid until device_close. */
    int32_t (*device_open)(const ebro_host *host, uint32_t index,
                           const ebro_device_options *options, ebro_dev **out, ebro_error *err);
    void (*device_close)(ebro_dev *dev);
    void (*device_caps)(ebro_dev *dev, ebro_caps *out);

    int32_t (*mem_alloc)(ebro_dev *dev, uint64_t bytes, uint32_t kind, ebro_mem **out,
                         ebro_error *err);          /* contents undefined */
    void (*mem_free)(ebro_dev *dev, ebro_mem *mem); /* no pending work may use it */
    /* Optional. Wraps host memory (read-only use) that stays valid until mem_free. UNSUPPORTED or
     * NOMEM_DEVICE where this range cannot be shared: it is copied then. */
    int32_t (*mem_import)(ebro_dev *dev, const void *host, uint64_t bytes, ebro_mem **out,
                          ebro_error *err);
    /* Optional. May rearrange a weight in place or into new memory, once after upload; *w is
     * rewritten to what ops must be given. */
    int32_t (*weights_prepare)(ebro_dev *dev, ebro_weight *w, ebro_error *err);

    int32_t (*stream_open)(ebro_dev *dev, ebro_stream **out, ebro_error *err);
    void (*stream_close)(ebro_stream *s); /* waits */
    int32_t (*copy)(ebro_stream *s, const ebro_copy_args *a, ebro_error *err);
    int32_t (*fill)(ebro_stream *s, ebro_span dst, uint8_t value, uint64_t bytes, ebro_error *err);
    /* Hands the recorded work to the device; *ticket rises by one or more each time. */
    int32_t (*submit)(ebro_stream *s, uint64_t *ticket, ebro_error *err);
    /* Waits until the ticket's work is done. timeout_ns 0: for ever. */
    int32_t (*wait)(ebro_stream *s, uint64_t ticket, uint64_t timeout_ns, ebro_error *err);

    /* Optional, all four or none: ops between begin and end are recorded, not run. */
    int32_t (*graph_begin)(ebro_stream *s, ebro_error *err);
    int32_t (*graph_end)(ebro_stream *s, ebro_graph **out, ebro_error *err);
    int32_t (*graph_launch)(ebro_stream *s, ebro_graph *g, ebro_error *err);
    void (*graph_free)(ebro_dev *dev, ebro_graph *g);

    /* Bytes of scratch (or work) that the op wants for these arguments or for any with smaller host
     * numbers; memory references may be absent. args: the op's argument struct. */
    uint64_t (*scratch_bytes)(ebro_dev *dev, ebro_op op, const void *args);

    /* The ops: int32_t (*embed)(ebro_stream *s, const ebro_embed_args *a, ebro_error *err) and so
     * on, in the order of EBRO_OPS. Optional: kda_step. */
#define EBRO_OP_ENTRY(N, name) \
    int32_t (*name)(ebro_stream * s, const ebro_##name##_args *a, ebro_error *err);
    EBRO_OPS(EBRO_OP_ENTRY)
#undef EBRO_OP_ENTRY

    /* Optional. Names the code that the device chose for an op when it was opened, as "avx2" or
     * "linear_row:subgroup linear_matrix:f16", cut off where the room ends: two devices of this
     * backend on one piece of hardware that say the same run the same code. */
    void (*op_variant)(ebro_dev *dev, ebro_op op, char *text, size_t bytes);
} ebro_backend;

/* The one symbol. `abi` is the runtime's EBRO_BACKEND_ABI. A module built for another number
 * returns EBRO_UNSUPPORTED and touches nothing else; else *out is a table that lives as long as the
 * module. */
typedef int32_t (*ebro_backend_entry_fn)(uint32_t abi, const ebro_host *host,
                                         const ebro_backend **out);
#define EBRO_BACKEND_ENTRY "ebro_backend_entry"

#ifdef __cplusplus
}
#endif
#endif
