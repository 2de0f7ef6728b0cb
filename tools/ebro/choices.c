/* choices.c: see choices.h. */
#include "choices.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "safetensors_in.h"
#include "safetensors_out.h"

/* The MoE layers of a model. */
struct moe {
    int32_t *layers; /* free with free() */
    uint32_t n, top_k;
};

static int find_moe(const struct eb_session *s, struct moe *out) {
    ebro_error err = {0};
    if (!(out->layers = calloc(s->model_info.n_layers, sizeof *out->layers))) {
        eb_complain("out of memory for %u layers", s->model_info.n_layers);
        return EB_EXIT_MEMORY;
    }
    for (uint32_t l = 0; l < s->model_info.n_layers; l++) {
        ebro_layer_info info = {.size = sizeof info};
        if (ebro_model_get_layer(s->model, l, &info, &err) != EBRO_OK)
            return eb_complain_error(&err);
        if (!info.is_moe) continue;
        out->layers[out->n++] = (int32_t)l;
        out->top_k = info.top_k;
    }
    if (out->n > 0) return EB_EXIT_OK;
    eb_complain("the model has no routed experts");
    return EB_EXIT_USAGE;
}

/* Copies what the sequence has kept into [layer][token][choice]. */
static int gather(struct eb_session *s, const struct moe *m, size_t n_tokens, int32_t *experts,
                  float *weights) {
    ebro_error err = {0};
    size_t n = n_tokens * m->top_k;
    for (uint32_t i = 0; i < m->n; i++) {
        const int32_t *ids = NULL;
        const float *w = NULL;
        uint32_t there = 0;
        if (ebro_seq_experts(s->seq, (uint32_t)m->layers[i], &ids, &w, &there, &err) != EBRO_OK)
            return eb_complain_error(&err);
        memcpy(experts + i * n, ids, n * sizeof *ids);
        memcpy(weights + i * n, w, n * sizeof *w);
    }
    return EB_EXIT_OK;
}

int eb_choices_save(struct eb_session *s, const struct eb_tokens *tokens, const char *path) {
    struct moe m = {0};
    int32_t *experts = NULL;
    float *weights = NULL;
    char text[1024];
    int code = find_moe(s, &m);
    if (code != EB_EXIT_OK) goto out;
    size_t n = (size_t)m.n * tokens->n * m.top_k;
    experts = calloc(n, sizeof *experts);
    weights = calloc(n, sizeof *weights);
    if (!experts || !weights) {
        eb_complain("out of memory for %zu expert choices", n);
        code = EB_EXIT_MEMORY;
        goto out;
    }
    if ((code = gather(s, &m, tokens->n, experts, weights)) != EB_EXIT_OK) goto out;
    const struct eb_out_tensor tensors[] = {
        {"experts", "I32", {m.n, tokens->n, m.top_k}, 3, experts},
        {"weights", "F32", {m.n, tokens->n, m.top_k}, 3, weights},
        {"layers", "I32", {m.n}, 1, m.layers},
        {"ids", "I32", {tokens->n}, 1, tokens->ids},
    };
    if (!eb_safetensors_write(path, tensors, sizeof tensors / sizeof *tensors, text, sizeof text)) {
        eb_complain("%s", text);
        code = EB_EXIT_USAGE;
    }
out:
    free(m.layers);
    free(experts);
    free(weights);
    return code;
}

/* What a file must be for this prompt and this model; NULL, or what it is not. */
static const char *check_file(const struct moe *m, const struct eb_tokens *tokens,
                              const uint64_t *n_layers, const int32_t *layers,
                              const uint64_t *n_ids, const int32_t *ids, const uint64_t *shape) {
    if (*n_layers != m->n || memcmp(layers, m->layers, m->n * sizeof *layers) != 0)
        return "its MoE layers are not those of this model";
    if (*n_ids != tokens->n || memcmp(ids, tokens->ids, tokens->n * sizeof *ids) != 0)
        return "it was made for another prompt";
    if (shape[0] != m->n || shape[1] != tokens->n)
        return "\"experts\" does not have a row for every layer and token";
    if (shape[2] != m->top_k) return "a token uses another number of experts in this model";
    return NULL;
}

int eb_choices_force(struct eb_session *s, const struct eb_tokens *tokens, const char *path) {
    struct moe m = {0};
    struct eb_in_file f = {0};
    int32_t *layers = NULL, *ids = NULL, *experts = NULL;
    uint64_t n_layers = 0, n_ids = 0, shape[3] = {0};
    char text[1024];
    ebro_error err = {0};
    int code = find_moe(s, &m);
    if (code != EB_EXIT_OK) goto out;
    code = EB_EXIT_USAGE;
    if (!eb_safetensors_in_open(&f, path, text, sizeof text) ||
        !eb_safetensors_in_i32(&f, "layers", 1, &n_layers, &layers, text, sizeof text) ||
        !eb_safetensors_in_i32(&f, "ids", 1, &n_ids, &ids, text, sizeof text) ||
        !eb_safetensors_in_i32(&f, "experts", 3, shape, &experts, text, sizeof text)) {
        eb_complain("%s", text);
        goto out;
    }
    const char *wrong = check_file(&m, tokens, &n_layers, layers, &n_ids, ids, shape);
    if (wrong) {
        eb_complain("%s: %s", path, wrong);
        goto out;
    }
    for (uint32_t i = 0; i < m.n; i++) {
        const int32_t *of_layer = experts + i * tokens->n * m.top_k;
        if (ebro_seq_force_experts(s->seq, (uint32_t)m.layers[i], of_layer, (uint32_t)tokens->n,
                                   &err) != EBRO_OK) {
            eb_complain("%s: %s", path, err.text);
            goto out;
        }
    }
    code = EB_EXIT_OK;
out:
    eb_safetensors_in_close(&f);
    free(m.layers);
    free(layers);
    free(ids);
    free(experts);
    return code;
}
