/* fingerprint.c: hashes over a model. Not its job: comparing them (runtime/mem/store.c). */
#include "model/fingerprint.h"

#include <string.h>
#include <xxhash.h>

#include "model/plan.h"
#include "model/shards.h"

enum {
    SMALL_BYTES = 4096, /* tensors up to here are read whole: norms, gates, biases */
    PIECE_BYTES = 64,
    MOST_PIECES = 64,
    LEAST_PIECES = 2,
    ALL_PIECES = 1 << 16 /* over all tensors: what a cold disk gives in seconds */
};

struct hash {
    XXH3_state_t *state;
    uint32_t pieces; /* of a large tensor */
};

static void add(struct hash *h, const void *data, size_t bytes) {
    if (bytes > 0) XXH3_64bits_update(h->state, data, bytes);
}

/* Little-endian, so that every machine computes the same. */
static void add_u64(struct hash *h, uint64_t v) {
    uint8_t bytes[8];
    for (int i = 0; i < 8; i++) bytes[i] = (uint8_t)(v >> (8 * i));
    add(h, bytes, sizeof bytes);
}

static void add_f32(struct hash *h, float v) {
    uint32_t bits;
    memcpy(&bits, &v, sizeof bits);
    add_u64(h, bits);
}

static void add_text(struct hash *h, const char *s, size_t n) {
    add_u64(h, n);
    add(h, s, n);
}

/* max_context is left out: it limits a sequence and changes nothing in it. */
static void add_config(struct hash *h, const struct ebro_model *m) {
    const struct eb_config *c = &m->config;
    const uint32_t numbers[] = {c->hidden_size,
                                c->vocab_size,
                                c->n_layers,
                                c->kda_heads,
                                c->kda_head_dim,
                                c->kda_gate_bounded,
                                c->kda_full_rank_gate,
                                c->n_heads,
                                c->q_lora_rank,
                                c->kv_lora_rank,
                                c->qk_nope_head_dim,
                                c->qk_rope_head_dim,
                                c->v_head_dim,
                                c->rotary_dim,
                                (uint32_t)c->mla_gate,
                                (uint32_t)c->act,
                                c->intermediate_size,
                                c->n_experts,
                                c->experts_per_token,
                                c->n_shared_experts,
                                c->moe_inner,
                                c->latent_size,
                                c->latent_norm,
                                c->renormalise,
                                c->biased_expert_weights,
                                c->attn_res_block};
    const float reals[] = {c->rms_norm_eps,         c->latent_norm_eps, c->gate_lower_bound,
                           c->rope_theta,           c->situ_beta,       c->situ_linear_beta,
                           c->routed_scaling_factor};
    add_text(h, m->architecture, strlen(m->architecture));
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) add_u64(h, numbers[i]);
    for (size_t i = 0; i < sizeof reals / sizeof *reals; i++) add_f32(h, reals[i]);
    for (uint32_t l = 0; l < c->n_layers; l++)
        add_u64(h, m->layers[l].is_kda + 2u * m->layers[l].is_moe);
}

/* Evenly spread, the first and the last bytes among them. */
static void add_pieces(struct hash *h, const struct eb_tensor *t) {
    if (t->bytes <= SMALL_BYTES) {
        add(h, t->data, (size_t)t->bytes);
        return;
    }
    uint64_t room = t->bytes - PIECE_BYTES, gaps = h->pieces - 1u;
    for (uint64_t i = 0; i <= gaps; i++) {
        /* without the overflow of room * i */
        uint64_t at = room / gaps * i + room % gaps * i / gaps;
        add(h, t->data + at, PIECE_BYTES);
    }
}

static int32_t add_tensor(void *user, const struct eb_tensor *t, ebro_error *err) {
    struct hash *h = user;
    (void)err;
    add_text(h, t->name, strlen(t->name));
    add_u64(h, (uint32_t)t->dtype);
    add_u64(h, t->n_dims);
    for (uint32_t d = 0; d < t->n_dims; d++) add_u64(h, t->shape[d]);
    add_pieces(h, t);
    return EBRO_OK;
}

static void hash_model(struct hash *h, const struct ebro_model *m) {
    uint32_t n = m->n_tensors > 0 ? m->n_tensors : 1;
    h->pieces = ALL_PIECES / n;
    if (h->pieces < LEAST_PIECES) h->pieces = LEAST_PIECES;
    if (h->pieces > MOST_PIECES) h->pieces = MOST_PIECES;
    add_config(h, m);
    eb_plan_each(m, add_tensor, h, NULL);
}

static void hash_tokenizer(struct hash *h, const struct ebro_model *m) {
    uint32_t vocab = eb_tokenizer_vocab(m->tokenizer);
    for (uint32_t id = 0; id < vocab; id++) {
        size_t n = 0;
        bool special = false;
        const char *bytes = eb_token_bytes(m->tokenizer, (int32_t)id, &n, &special);
        add_u64(h, (bytes != NULL) + 2u * special);
        add_text(h, bytes, bytes != NULL ? n : 0);
    }
}

/* Two threads that come at once compute the same number. */
static int32_t once(struct ebro_model *m, _Atomic uint64_t *kept,
                    void (*run)(struct hash *h, const struct ebro_model *m), uint64_t *out,
                    ebro_error *err) {
    *out = atomic_load(kept);
    if (*out != 0) return EBRO_OK;
    struct hash h = {.state = XXH3_createState()};
    if (h.state == NULL)
        return eb_fail(err, EBRO_NOMEM_HOST, "out of host memory for a fingerprint");
    XXH3_64bits_reset(h.state);
    run(&h, m);
    uint64_t sum = XXH3_64bits_digest(h.state);
    XXH3_freeState(h.state);
    /* Zeros may have stood in for bytes that are gone. */
    int32_t st = eb_shards_check(m, err);
    if (st != EBRO_OK) return eb_while(err, st, "computing the model's fingerprint");
    *out = sum != 0 ? sum : 1;
    atomic_store(kept, *out);
    return EBRO_OK;
}

int32_t eb_model_fingerprint(struct ebro_model *m, uint64_t *out, ebro_error *err) {
    return once(m, &m->fingerprint, hash_model, out, err);
}

int32_t eb_tokenizer_fingerprint(struct ebro_model *m, uint64_t *out, ebro_error *err) {
    return once(m, &m->tokenizer_fingerprint, hash_tokenizer, out, err);
}
