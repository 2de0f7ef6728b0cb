/* reference.c: the float64 forward of Kimi Linear and Kimi K3. One token at a time through every
 * layer; the recurrence, the convolution and the attention keep plain arrays of everything seen. */
#include "tests/harness/reference.h"

#include <jansson.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/harness/test.h"

struct ref {
    json_t *config;
    const json_t *text; /* where the language model's keys stand */
    struct test_golden file;
    const char *prefix;
    size_t hidden, vocab, layers;
    double eps;
};

/* What one layer remembers. */
struct memory {
    double *conv[3]; /* raw inputs, [t][channels], grown by one row a token */
    double *s;       /* [heads][k][v] */
    double *rows;    /* latent | key channels, [t][lora + rope] */
};

static double number(const struct ref *r, const char *key, double fallback) {
    const json_t *v = json_object_get(r->text, key);
    if (json_is_true(v)) return 1;
    return json_is_number(v) ? json_number_value(v) : fallback;
}

static double linear_number(const struct ref *r, const char *key, double fallback) {
    const json_t *v = json_object_get(json_object_get(r->text, "linear_attn_config"), key);
    if (json_is_true(v)) return 1;
    return json_is_number(v) ? json_number_value(v) : fallback;
}

static const struct eb_tensor *find(const struct ref *r, size_t layer, const char *name) {
    char full[256];
    if (layer == SIZE_MAX) {
        snprintf(full, sizeof full, "%s%s", r->prefix, name);
    } else {
        snprintf(full, sizeof full, "%smodel.layers.%zu.%s", r->prefix, layer, name);
    }
    return test_tensor_opt(&r->file, "%s", full);
}

static double *load(const struct ref *r, size_t layer, const char *name) {
    const struct eb_tensor *t = find(r, layer, name);
    if (t == NULL) fail_msg("reference: no tensor %s in layer %zu", name, layer);
    return test_f64(t);
}

/* A matrix by its name without ".weight"; MXFP4 decoded where it is packed. *rows may be NULL. */
static double *matrix(const struct ref *r, size_t layer, const char *name, size_t *rows) {
    static const double codes[8] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
    char full[200];
    snprintf(full, sizeof full, "%s.weight", name);
    const struct eb_tensor *t = find(r, layer, full);
    if (t != NULL) {
        if (rows != NULL) *rows = (size_t)t->shape[0];
        return test_f64(t);
    }
    snprintf(full, sizeof full, "%s.weight_packed", name);
    t = find(r, layer, full);
    snprintf(full, sizeof full, "%s.weight_scale", name);
    const struct eb_tensor *sc = find(r, layer, full);
    if (t == NULL || sc == NULL) fail_msg("reference: no weight %s in layer %zu", name, layer);
    size_t n_rows = (size_t)t->shape[0], half = (size_t)t->shape[1];
    double *m = malloc(n_rows * half * 2 * sizeof *m);
    assert_non_null(m);
    for (size_t i = 0; i < n_rows; i++) {
        for (size_t j = 0; j < half * 2; j++) {
            unsigned code = ((unsigned)t->data[i * half + j / 2] >> (4 * (j % 2))) & 15u;
            double v = codes[code & 7u] * pow(2, sc->data[i * (half / 16) + j / 32] - 127.0);
            m[i * half * 2 + j] = code & 8u ? -v : v;
        }
    }
    if (rows != NULL) *rows = n_rows;
    return m;
}

static void multiply(const double *w, size_t rows, size_t cols, const double *x, double *y) {
    for (size_t i = 0; i < rows; i++) {
        double sum = 0;
        for (size_t j = 0; j < cols; j++) sum += w[i * cols + j] * x[j];
        y[i] = sum;
    }
}

/* y = W x for a named matrix; new memory, *n its length. */
static double *project(const struct ref *r, size_t layer, const char *name, const double *x,
                       size_t cols, size_t *n) {
    size_t rows = 0;
    double *w = matrix(r, layer, name, &rows), *y = malloc(rows * sizeof *y);
    assert_non_null(y);
    multiply(w, rows, cols, x, y);
    free(w);
    if (n != NULL) *n = rows;
    return y;
}

static double sigmoid(double x) {
    return 1 / (1 + exp(-x));
}

static void norm(const double *x, const double *w, size_t n, double eps, double *y) {
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += x[i] * x[i];
    double f = 1 / sqrt(sum / (double)n + eps);
    for (size_t i = 0; i < n; i++) y[i] = x[i] * f * (w != NULL ? w[i] : 1);
}

static void norm_by(const struct ref *r, size_t layer, const char *name, const double *x, size_t n,
                    double eps, double *y) {
    double *w = load(r, layer, name);
    norm(x, w, n, eps, y);
    free(w);
}

static double *convolve(const struct ref *r, size_t layer, const char *which, double **seen,
                        size_t t, double *x, size_t n) {
    char name[64];
    snprintf(name, sizeof name, "self_attn.%s_conv1d.weight", which);
    double *w = load(r, layer, name), *y = calloc(n, sizeof *y);
    *seen = realloc(*seen, (t + 1) * n * sizeof **seen);
    assert_true(y != NULL && *seen != NULL);
    memcpy(*seen + t * n, x, n * sizeof *x);
    for (size_t c = 0; c < n; c++) {
        for (size_t k = 0; k < 4; k++) {
            if (t + k >= 3) y[c] += w[c * 4 + k] * (*seen)[(t + k - 3) * n + c];
        }
        y[c] *= sigmoid(y[c]);
    }
    free(w);
    free(x);
    return y;
}

static void l2norm(double *x, size_t n, double scale) {
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += x[i] * x[i];
    for (size_t i = 0; i < n; i++) x[i] *= scale / sqrt(sum + 1e-6);
}

/* One head's recurrence for one token. */
static void recur(double *s, const double *q, const double *k, const double *v, const double *g,
                  double beta, size_t n, double *o) {
    for (size_t i = 0; i < n; i++) {
        for (size_t j = 0; j < n; j++) s[i * n + j] *= exp(g[i]);
    }
    for (size_t j = 0; j < n; j++) {
        double e = v[j];
        for (size_t i = 0; i < n; i++) e -= k[i] * s[i * n + j];
        for (size_t i = 0; i < n; i++) s[i * n + j] += beta * k[i] * e;
        o[j] = 0;
        for (size_t i = 0; i < n; i++) o[j] += q[i] * s[i * n + j];
    }
}

static double *kda(const struct ref *r, size_t layer, struct memory *m, size_t t, const double *x) {
    size_t heads = (size_t)linear_number(r, "num_heads", 0);
    size_t d = (size_t)linear_number(r, "head_dim", 0), n = heads * d, rank = 0;
    double *q = project(r, layer, "self_attn.q_proj", x, r->hidden, NULL);
    double *k = project(r, layer, "self_attn.k_proj", x, r->hidden, NULL);
    double *v = project(r, layer, "self_attn.v_proj", x, r->hidden, NULL);
    q = convolve(r, layer, "q", &m->conv[0], t, q, n);
    k = convolve(r, layer, "k", &m->conv[1], t, k, n);
    v = convolve(r, layer, "v", &m->conv[2], t, v, n);
    double *f = project(r, layer, "self_attn.f_a_proj", x, r->hidden, &rank);
    double *g = project(r, layer, "self_attn.f_b_proj", f, rank, NULL);
    double *beta = project(r, layer, "self_attn.b_proj", x, r->hidden, NULL);
    double *a_log = load(r, layer, "self_attn.A_log"), *dt = load(r, layer, "self_attn.dt_bias");
    double bound = linear_number(r, "gate_lower_bound", 0);
    double *gate = NULL, *ga = NULL;
    if (find(r, layer, "self_attn.g_proj.weight") != NULL) {
        gate = project(r, layer, "self_attn.g_proj", x, r->hidden, NULL);
    } else {
        ga = project(r, layer, "self_attn.g_a_proj", x, r->hidden, &rank);
        gate = project(r, layer, "self_attn.g_b_proj", ga, rank, NULL);
    }
    if (m->s == NULL) m->s = calloc(heads * d * d, sizeof *m->s);
    double *o = malloc(n * sizeof *o);
    assert_true(m->s != NULL && o != NULL);
    for (size_t h = 0; h < heads; h++) {
        double a = exp(a_log[h]);
        for (size_t i = h * d; i < (h + 1) * d; i++) {
            double raw = g[i] + dt[i];
            g[i] = bound < 0 ? bound * sigmoid(a * raw)
                             : -a * (raw > 0 ? raw + log1p(exp(-raw)) : log1p(exp(raw)));
        }
        l2norm(q + h * d, d, 1 / sqrt((double)d));
        l2norm(k + h * d, d, 1);
        recur(m->s + h * d * d, q + h * d, k + h * d, v + h * d, g + h * d, sigmoid(beta[h]), d,
              o + h * d);
        norm_by(r, layer, "self_attn.o_norm.weight", o + h * d, d, r->eps, o + h * d);
        for (size_t i = h * d; i < (h + 1) * d; i++) o[i] *= sigmoid(gate[i]);
    }
    double *out = project(r, layer, "self_attn.o_proj", o, n, NULL);
    double *all[] = {q, k, v, f, g, beta, a_log, dt, gate, ga, o};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) free(all[i]);
    return out;
}

static void rotate(double *x, size_t dim, size_t t, double theta) {
    for (size_t i = 0; i < dim; i += 2) {
        double angle = (double)t * pow(theta, -(double)i / (double)dim);
        double a = x[i], b = x[i + 1];
        x[i] = a * cos(angle) - b * sin(angle);
        x[i + 1] = a * sin(angle) + b * cos(angle);
    }
}

/* One head's attention over t + 1 rows, expanded: k = [W_uk c, k_pe], v = W_uv c. */
static void attend(const double *rows, size_t t, size_t lora, size_t rope, const double *q,
                   const double *uk, size_t nope, const double *uv, size_t v_dim, double *o) {
    double scale = 1 / sqrt((double)(nope + rope)), top = -INFINITY, sum = 0;
    double *p = malloc((t + 1) * sizeof *p), *k = malloc((nope + v_dim) * sizeof *k);
    assert_true(p != NULL && k != NULL);
    for (size_t s = 0; s <= t; s++) {
        const double *row = rows + s * (lora + rope);
        multiply(uk, nope, lora, row, k);
        p[s] = 0;
        for (size_t i = 0; i < nope; i++) p[s] += q[i] * k[i] * scale;
        for (size_t i = 0; i < rope; i++) p[s] += q[nope + i] * row[lora + i] * scale;
        if (p[s] > top) top = p[s];
    }
    for (size_t s = 0; s <= t; s++) sum += exp(p[s] - top);
    for (size_t i = 0; i < v_dim; i++) o[i] = 0;
    for (size_t s = 0; s <= t; s++) {
        multiply(uv, v_dim, lora, rows + s * (lora + rope), k);
        for (size_t i = 0; i < v_dim; i++) o[i] += exp(p[s] - top) / sum * k[i];
    }
    free(p);
    free(k);
}

static double *mla(const struct ref *r, size_t layer, struct memory *m, size_t t, const double *x) {
    size_t heads = (size_t)number(r, "num_attention_heads", 0);
    size_t lora = (size_t)number(r, "kv_lora_rank", 0), rank = (size_t)number(r, "q_lora_rank", 0);
    size_t nope = (size_t)number(r, "qk_nope_head_dim", 0);
    size_t rope = (size_t)number(r, "qk_rope_head_dim", 0), dim = nope + rope;
    size_t v_dim = (size_t)number(r, "v_head_dim", 0), n_gate = 0;
    bool turns = number(r, "mla_use_nope", 0) == 0;
    double theta = number(r, "rope_theta", 10000), *q = NULL, *gate = NULL;
    if (rank > 0) {
        double *qa = project(r, layer, "self_attn.q_a_proj", x, r->hidden, NULL);
        norm_by(r, layer, "self_attn.q_a_layernorm.weight", qa, rank, 1e-6, qa);
        q = project(r, layer, "self_attn.q_b_proj", qa, rank, NULL);
        free(qa);
    } else {
        q = project(r, layer, "self_attn.q_proj", x, r->hidden, NULL);
    }
    double *kv = project(r, layer, "self_attn.kv_a_proj_with_mqa", x, r->hidden, NULL);
    norm_by(r, layer, "self_attn.kv_a_layernorm.weight", kv, lora, 1e-6, kv);
    if (turns) rotate(kv + lora, rope, t, theta);
    m->rows = realloc(m->rows, (t + 1) * (lora + rope) * sizeof *m->rows);
    assert_non_null(m->rows);
    memcpy(m->rows + t * (lora + rope), kv, (lora + rope) * sizeof *kv);
    double *kv_b = matrix(r, layer, "self_attn.kv_b_proj", NULL);
    double *o = malloc(heads * v_dim * sizeof *o);
    assert_non_null(o);
    for (size_t h = 0; h < heads; h++) {
        if (turns) rotate(q + h * dim + nope, rope, t, theta);
        const double *uk = kv_b + h * (nope + v_dim) * lora;
        attend(m->rows, t, lora, rope, q + h * dim, uk, nope, uk + nope * lora, v_dim,
               o + h * v_dim);
    }
    if (find(r, layer, "self_attn.g_proj.weight") != NULL) {
        gate = project(r, layer, "self_attn.g_proj", x, r->hidden, &n_gate);
        for (size_t i = 0; i < heads * v_dim; i++) {
            o[i] *= sigmoid(gate[n_gate == heads ? i / v_dim : i]);
        }
    }
    double *out = project(r, layer, "self_attn.o_proj", o, heads * v_dim, NULL);
    free(q);
    free(kv);
    free(kv_b);
    free(o);
    free(gate);
    return out;
}

static double act(const struct ref *r, double gate, double up) {
    const char *name = json_string_value(json_object_get(r->text, "hidden_act"));
    if (name != NULL && strcmp(name, "situ") == 0) {
        double b = number(r, "activation_situ_beta", 4),
               c = number(r, "activation_situ_linear_beta", 25);
        return b * tanh(gate / b) * sigmoid(gate) * c * tanh(up / c);
    }
    return gate * sigmoid(gate) * up;
}

/* out += weight * down(act(gate x, up x)). */
static void mlp(const struct ref *r, size_t layer, const char *gate_name, const char *up_name,
                const char *down_name, const double *x, size_t n, double weight, double *out) {
    size_t inner = 0, rows = 0;
    double *g = project(r, layer, gate_name, x, n, &inner);
    double *u = project(r, layer, up_name, x, n, NULL);
    for (size_t i = 0; i < inner; i++) g[i] = act(r, g[i], u[i]);
    double *y = project(r, layer, down_name, g, inner, &rows);
    for (size_t i = 0; i < rows; i++) out[i] += weight * y[i];
    free(g);
    free(u);
    free(y);
}

static void experts(const struct ref *r, size_t layer, const double *x, const double *z, size_t n,
                    double *out) {
    size_t n_experts = 0, k = (size_t)number(r, "num_experts_per_token", 0);
    double *s = project(r, layer, "block_sparse_moe.gate", x, r->hidden, &n_experts);
    double *bias = load(r, layer, "block_sparse_moe.gate.e_score_correction_bias"), sum = 0;
    size_t chosen[64];
    bool *taken = calloc(n_experts, sizeof *taken);
    assert_true(taken != NULL && k <= 64);
    for (size_t i = 0; i < n_experts; i++) s[i] = sigmoid(s[i]);
    for (size_t j = 0; j < k; j++) {
        size_t best = SIZE_MAX;
        for (size_t i = 0; i < n_experts; i++) {
            if (!taken[i] && (best == SIZE_MAX || s[i] + bias[i] > s[best] + bias[best])) best = i;
        }
        chosen[j] = best;
        taken[best] = true;
        sum += s[best];
    }
    if (number(r, "moe_renormalize", 0) == 0) sum = 1;
    for (size_t j = 0; j < k; j++) {
        char w[3][96];
        for (int i = 0; i < 3; i++) {
            snprintf(w[i], sizeof w[i], "block_sparse_moe.experts.%zu.w%d", chosen[j], i + 1);
        }
        double weight = s[chosen[j]] / sum * number(r, "routed_scaling_factor", 1);
        mlp(r, layer, w[0], w[2], w[1], z, n, weight, out);
    }
    free(s);
    free(bias);
    free(taken);
}

static void ffn(const struct ref *r, size_t layer, const double *x, double *out) {
    if (find(r, layer, "mlp.gate_proj.weight") != NULL) {
        mlp(r, layer, "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj", x, r->hidden, 1, out);
        return;
    }
    if (find(r, layer, "block_sparse_moe.routed_expert_down_proj.weight") != NULL) {
        size_t n = 0;
        double *z = project(r, layer, "block_sparse_moe.routed_expert_down_proj", x, r->hidden, &n);
        double *y = calloc(n, sizeof *y);
        assert_non_null(y);
        experts(r, layer, x, z, n, y);
        if (find(r, layer, "block_sparse_moe.routed_expert_norm.weight") != NULL) {
            norm_by(r, layer, "block_sparse_moe.routed_expert_norm.weight", y, n, r->eps, y);
        }
        double *up = project(r, layer, "block_sparse_moe.routed_expert_up_proj", y, n, NULL);
        for (size_t i = 0; i < r->hidden; i++) out[i] += up[i];
        free(z);
        free(y);
        free(up);
    } else {
        experts(r, layer, x, x, r->hidden, out);
    }
    if (find(r, layer, "block_sparse_moe.shared_experts.gate_proj.weight") != NULL) {
        mlp(r, layer, "block_sparse_moe.shared_experts.gate_proj",
            "block_sparse_moe.shared_experts.up_proj", "block_sparse_moe.shared_experts.down_proj",
            x, r->hidden, 1, out);
    }
}

/* Sources: n banked sums and the running one, [n + 1][hidden]. */
static void mix(const struct ref *r, size_t layer, const char *stem, const double *sources,
                size_t n, double *out) {
    char name[96];
    double score[65], top = -INFINITY, sum = 0;
    assert_true(n < 65);
    snprintf(name, sizeof name, "%s_norm.weight", stem);
    if (n == 0 || find(r, layer, name) == NULL) {
        memcpy(out, sources + n * r->hidden, r->hidden * sizeof *out);
        return;
    }
    double *w = load(r, layer, name), *y = malloc(r->hidden * sizeof *y);
    snprintf(name, sizeof name, "%s_proj.weight", stem);
    double *p = load(r, layer, name);
    assert_non_null(y);
    for (size_t s = 0; s <= n; s++) {
        norm(sources + s * r->hidden, w, r->hidden, r->eps, y);
        score[s] = 0;
        for (size_t i = 0; i < r->hidden; i++) score[s] += y[i] * p[i];
        if (score[s] > top) top = score[s];
    }
    for (size_t s = 0; s <= n; s++) sum += exp(score[s] - top);
    for (size_t i = 0; i < r->hidden; i++) {
        y[i] = 0;
        for (size_t s = 0; s <= n; s++) {
            y[i] += exp(score[s] - top) / sum * sources[s * r->hidden + i];
        }
    }
    memcpy(out, y, r->hidden * sizeof *out);
    free(w);
    free(p);
    free(y);
}

static bool is_kda(const struct ref *r, size_t layer) {
    const json_t *list =
        json_object_get(json_object_get(r->text, "linear_attn_config"), "kda_layers");
    for (size_t i = 0; i < json_array_size(list); i++) {
        if (json_integer_value(json_array_get(list, i)) == (json_int_t)layer + 1) return true;
    }
    return false;
}

/* One token through all layers; `logits` NULL: not wanted. */
static void token(const struct ref *r, struct memory *mem, size_t t, int32_t id, double *logits) {
    size_t block = (size_t)number(r, "attn_res_block_size", 0), n = 0, d = r->hidden;
    double *sources = calloc((r->layers + 1) * d, sizeof *sources);
    double *read = malloc(d * sizeof *read);
    double *embed = load(r, SIZE_MAX, "model.embed_tokens.weight");
    assert_true(sources != NULL && read != NULL);
    memcpy(sources, embed + (size_t)id * d, d * sizeof *embed);
    for (size_t l = 0; l < r->layers; l++) {
        mix(r, l, "self_attention_res", sources, n, read);
        norm_by(r, l, "input_layernorm.weight", read, d, r->eps, read);
        double *o = is_kda(r, l) ? kda(r, l, &mem[l], t, read) : mla(r, l, &mem[l], t, read);
        if (block > 0 && l % block == 0) n++;
        double *h = sources + n * d;
        for (size_t i = 0; i < d; i++) h[i] += o[i];
        free(o);
        mix(r, l, "mlp_res", sources, n, read);
        norm_by(r, l, "post_attention_layernorm.weight", read, d, r->eps, read);
        ffn(r, l, read, h);
    }
    if (logits != NULL) {
        mix(r, SIZE_MAX, "model.output_attn_res", sources, n, read);
        norm_by(r, SIZE_MAX, "model.norm.weight", read, d, r->eps, read);
        bool tied = find(r, SIZE_MAX, "lm_head.weight") == NULL;
        double *head = tied ? embed : load(r, SIZE_MAX, "lm_head.weight");
        multiply(head, r->vocab, d, read, logits);
        if (!tied) free(head);
    }
    free(embed);
    free(sources);
    free(read);
}

static void open_reference(struct ref *r, const char *dir) {
    char path[512];
    json_error_t je;
    ebro_error err;
    snprintf(path, sizeof path, "%s/config.json", dir);
    r->config = json_load_file(path, 0, &je);
    if (r->config == NULL) fail_msg("reference: %s: %s", path, je.text);
    r->text = json_object_get(r->config, "text_config");
    r->prefix = r->text != NULL ? "language_model." : "";
    if (r->text == NULL) r->text = r->config;
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    test_ok(eb_file_map(path, &r->file.bytes, &err), &err);
    test_ok(eb_safetensors_read(NULL, path, &r->file.bytes, 0, &r->file.st, &err), &err);
    r->hidden = (size_t)number(r, "hidden_size", 0);
    r->vocab = (size_t)number(r, "vocab_size", 0);
    r->layers = (size_t)number(r, "num_hidden_layers", 0);
    r->eps = number(r, "rms_norm_eps", 0);
}

double *test_reference_logits(const char *dir, const int32_t *ids, size_t n, size_t n_last,
                              size_t *vocab) {
    struct ref r = {0};
    open_reference(&r, dir);
    struct memory *mem = calloc(r.layers, sizeof *mem);
    double *logits = malloc(n_last * r.vocab * sizeof *logits);
    assert_true(mem != NULL && logits != NULL && n_last <= n);
    for (size_t t = 0; t < n; t++) {
        token(&r, mem, t, ids[t], t + n_last < n ? NULL : logits + (t + n_last - n) * r.vocab);
    }
    for (size_t l = 0; l < r.layers; l++) {
        for (int i = 0; i < 3; i++) free(mem[l].conv[i]);
        free(mem[l].s);
        free(mem[l].rows);
    }
    free(mem);
    *vocab = r.vocab;
    eb_safetensors_close(NULL, &r.file.st);
    eb_bytes_close(&r.file.bytes);
    json_decref(r.config);
    return logits;
}
