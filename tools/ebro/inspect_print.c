/* inspect_print.c: see inspect.h. */
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "inspect.h"

static const char *const part_names[EB_N_PARTS] = {
    [EBRO_PART_EMBEDDING] = "embedding",
    [EBRO_PART_KDA] = "KDA",
    [EBRO_PART_MLA] = "MLA",
    [EBRO_PART_DENSE_FFN] = "dense FFN",
    [EBRO_PART_ROUTER] = "router",
    [EBRO_PART_EXPERTS] = "routed experts",
    [EBRO_PART_SHARED_EXPERTS] = "shared experts",
    [EBRO_PART_LATENT] = "latent projections",
    [EBRO_PART_NORMS] = "norms",
    [EBRO_PART_HEAD] = "head",
};

static const char *const dtype_names[EB_N_DTYPES] = {
    [EBRO_F32] = "f32",        [EBRO_F16] = "f16", [EBRO_BF16] = "bf16", [EBRO_MXFP4] = "mxfp4",
    [EBRO_U8] = "u8 (packed)", [EBRO_I32] = "i32", [EBRO_I64] = "i64",   [EBRO_F64] = "f64",
};

struct number {
    char text[32];
};

/* "40.0 MiB" */
static struct number size_text(uint64_t bytes) {
    static const char *const units[] = {"KiB", "MiB", "GiB", "TiB"};
    struct number n;
    double v = (double)bytes / 1024.0;
    size_t u = 0;
    for (; v >= 1024.0 && u + 1 < sizeof units / sizeof *units; u++) v /= 1024.0;
    if (bytes < 1024)
        snprintf(n.text, sizeof n.text, "%" PRIu64 " B", bytes);
    else
        snprintf(n.text, sizeof n.text, "%.1f %s", v, units[u]);
    return n;
}

/* "49.1 B": thousands, as parameters are counted */
static struct number count_text(uint64_t count) {
    struct number n;
    double v = (double)count;
    if (v >= 1e9)
        snprintf(n.text, sizeof n.text, "%.2f B", v / 1e9);
    else if (v >= 1e6)
        snprintf(n.text, sizeof n.text, "%.2f M", v / 1e6);
    else
        snprintf(n.text, sizeof n.text, "%" PRIu64, count);
    return n;
}

/* Layers from 1, as configurations count them; runs as "1-3". */
static void print_layers(const struct eb_inspection *x, const char *title, bool moe, bool want) {
    bool any = false;
    for (uint32_t l = 0; l < x->model.n_layers; l++) {
        uint32_t end = l;
        while (end < x->model.n_layers &&
               ((moe ? x->layers[end].is_moe : x->layers[end].is_kda) != 0) == want)
            end++;
        if (end == l) continue;
        if (!any) printf("  %-20s", title);
        printf(end - l == 1 ? "%s%u" : "%s%u-%u", any ? ", " : "", l + 1, end);
        any = true;
        l = end;
    }
    if (any) putchar('\n');
}

static void print_kinds(const char *title, const struct eb_kind *kinds, const char *const *names,
                        size_t n) {
    printf("\n%-22s%10s%16s%14s\n", title, "tensors", "parameters", "bytes");
    for (size_t i = 0; i < n; i++) {
        if (kinds[i].n_tensors == 0) continue;
        printf("  %-20s%10" PRIu64 "%16s%14s\n", names[i], kinds[i].n_tensors,
               count_text(kinds[i].params).text, size_text(kinds[i].bytes).text);
    }
}

static void print_use(const char *use, uint64_t bytes, const char *remark) {
    printf("  %-20s%14s%s%s\n", use, size_text(bytes).text, *remark ? "  " : "", remark);
}

static void print_memory(const struct eb_inspection *x) {
    const ebro_estimate *m = &x->memory;
    uint64_t one_state = m->state_bytes / m->n_states, one_window = m->window_bytes / m->n_states;
    char remark[96];
    printf("\nMemory on %s at a context of %u %s, %u a step\n", x->device, m->n_ctx,
           eb_tokens_word(m->n_ctx), m->n_chunk);
    print_use("weights", m->weights_in_place, "used where the files are mapped");
    print_use("weights, copied", m->weights_copied, "");
    print_use("recurrent state", one_state, "f32");
    print_use("conv windows", one_window, "f32");
    if (m->n_states > 1)
        print_use("spare state", (m->n_states - 1) * (one_state + one_window),
                  "what a step writes beside the one that it reads");
    snprintf(remark, sizeof remark, "%s, %" PRIu64 " bytes a token",
             eb_cache_dtype_name(m->cache_dtype), m->cache_token_bytes);
    print_use("latent cache", m->cache_bytes, remark);
    print_use("rounding", m->rounding_bytes, "of pages and states to whole blocks");
    print_use("workspace", m->workspace_bytes, "activations and scratch of a step");
    print_use("other", m->other_bytes, "");
    print_use("total", m->total_bytes, "");
    printf("\nWith a latent cache of  bytes a token         cache         total\n");
    for (size_t i = 0; i < EB_N_CACHES; i++) {
        const ebro_estimate *c = &x->caches[i];
        printf("  %-20s%14" PRIu64 "%14s%14s\n", eb_cache_dtype_name(c->cache_dtype),
               c->cache_token_bytes, size_text(c->cache_bytes).text,
               size_text(c->total_bytes).text);
    }
}

void eb_inspection_print(const struct eb_inspection *x) {
    const ebro_model_info *m = &x->model;
    printf("%s: %u layers, hidden %u, vocabulary %u", m->architecture, m->n_layers, m->hidden,
           m->vocab);
    if (m->max_context) printf(", context up to %u", m->max_context);
    printf("\nparameters: %s, active per token: %s; weights: %s\n", count_text(x->params).text,
           count_text(x->active).text, size_text(x->bytes).text);
    printf("\nLayers: %u KDA, %u MLA; %u with a dense FFN, %u MoE\n", m->n_kda_layers,
           m->n_mla_layers, m->n_layers - x->n_moe, x->n_moe);
    print_layers(x, "KDA", false, true);
    print_layers(x, "MLA", false, false);
    print_layers(x, "dense FFN", true, false);
    print_layers(x, "MoE", true, true);
    for (uint32_t l = 0; l < m->n_layers; l++) {
        if (!x->layers[l].is_moe) continue;
        printf("  %-20s%u of %u routed experts a token\n", "", x->layers[l].top_k,
               x->layers[l].n_experts);
        break;
    }
    print_kinds("Tensors by part", x->parts, part_names, EB_N_PARTS);
    print_kinds("Tensors by dtype", x->dtypes, dtype_names, EB_N_DTYPES);
    print_memory(x);
}

static int32_t print_tensor(void *user, const ebro_tensor_info *t) {
    char shape[160] = "[";
    size_t n = 1;
    (void)user;
    for (uint32_t d = 0; d < t->n_dims && n < sizeof shape - 24; d++)
        n +=
            (size_t)snprintf(shape + n, sizeof shape - n, "%s%" PRIu64, d ? ", " : "", t->shape[d]);
    snprintf(shape + n, sizeof shape - n, "]");
    const char *dtype = t->dtype == EBRO_U8              ? "u8"
                        : (size_t)t->dtype < EB_N_DTYPES ? dtype_names[t->dtype]
                                                         : "?";
    printf("%s\t%s\t%s\t%" PRIu64 "\t%s\n", t->name, shape, dtype, t->bytes, t->file);
    return 0;
}

void eb_inspection_print_tensors(const ebro_model *model) {
    printf("\nname\tshape\tdtype\tbytes\tfile\n");
    ebro_model_each_tensor(model, print_tensor, NULL);
}

/* ---- JSON ------------------------------------------------------------------------------- */

static json_t *memory_object(const ebro_estimate *m) {
    return json_pack("{s:I, s:I, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}",
                     "n_ctx", (json_int_t)m->n_ctx, "n_chunk", (json_int_t)m->n_chunk,
                     "cache_dtype", eb_cache_dtype_name(m->cache_dtype), "n_states",
                     (json_int_t)m->n_states, "weights_in_place", (json_int_t)m->weights_in_place,
                     "weights_copied", (json_int_t)m->weights_copied, "state_bytes",
                     (json_int_t)m->state_bytes, "window_bytes", (json_int_t)m->window_bytes,
                     "cache_token_bytes", (json_int_t)m->cache_token_bytes, "cache_bytes",
                     (json_int_t)m->cache_bytes, "workspace_bytes", (json_int_t)m->workspace_bytes,
                     "other_bytes", (json_int_t)m->other_bytes, "rounding_bytes",
                     (json_int_t)m->rounding_bytes, "block_bytes", (json_int_t)m->block_bytes,
                     "total_bytes", (json_int_t)m->total_bytes);
}

static json_t *layer_list(const struct eb_inspection *x) {
    json_t *all = json_array();
    for (uint32_t l = 0; l < x->model.n_layers; l++) {
        const ebro_layer_info *y = &x->layers[l];
        json_array_append_new(
            all, json_pack("{s:s, s:s, s:i, s:i}", "mixer", y->is_kda ? "KDA" : "MLA", "ffn",
                           y->is_moe ? "MoE" : "dense", "n_experts", (int)y->n_experts, "top_k",
                           (int)y->top_k));
    }
    return all;
}

static json_t *part_object(const struct eb_inspection *x) {
    json_t *all = json_object();
    for (size_t i = 0; i < EB_N_PARTS; i++) {
        const struct eb_kind *k = &x->parts[i];
        if (k->n_tensors == 0) continue;
        json_object_set_new(
            all, part_names[i],
            json_pack("{s:I, s:I, s:I}", "tensors", (json_int_t)k->n_tensors, "parameters",
                      (json_int_t)k->params, "bytes", (json_int_t)k->bytes));
    }
    return all;
}

static int32_t append_tensor(void *user, const ebro_tensor_info *t) {
    json_t *shape = json_array();
    for (uint32_t d = 0; d < t->n_dims; d++)
        json_array_append_new(shape, json_integer((json_int_t)t->shape[d]));
    const char *dtype = t->dtype == EBRO_U8              ? "u8"
                        : (size_t)t->dtype < EB_N_DTYPES ? dtype_names[t->dtype]
                                                         : "?";
    const char *part = (size_t)t->part < EB_N_PARTS ? part_names[t->part] : "?";
    json_t *one =
        json_pack("{s:s, s:o, s:s, s:I, s:I, s:s, s:i, s:s}", "name", t->name, "shape", shape,
                  "dtype", dtype, "bytes", (json_int_t)t->bytes, "parameters",
                  (json_int_t)t->n_params, "part", part, "layer", (int)t->layer, "file", t->file);
    return json_array_append_new(user, one);
}

bool eb_inspection_print_json(const struct eb_inspection *x, const ebro_model *model) {
    const ebro_model_info *m = &x->model;
    bool ok = false;
    json_t *tensors = NULL;
    json_t *caches = json_array();
    for (size_t i = 0; i < EB_N_CACHES; i++)
        if (json_array_append_new(caches, memory_object(&x->caches[i])) != 0) goto out;
    json_t *root = json_pack(
        "{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:s, s:o, s:o, s:o, s:O}", "architecture",
        m->architecture, "n_layers", (json_int_t)m->n_layers, "hidden", (json_int_t)m->hidden,
        "vocab", (json_int_t)m->vocab, "max_context", (json_int_t)m->max_context, "parameters",
        (json_int_t)x->params, "active_parameters", (json_int_t)x->active, "weight_bytes",
        (json_int_t)x->bytes, "device", x->device, "layers", layer_list(x), "parts", part_object(x),
        "memory", memory_object(&x->memory), "memory_by_cache_dtype", caches);
    if (root && model) {
        tensors = json_array();
        ok = ebro_model_each_tensor(model, append_tensor, tensors) == 0 &&
             json_object_set(root, "tensors", tensors) == 0;
    } else {
        ok = root != NULL;
    }
    ok = ok && json_dumpf(root, stdout, JSON_INDENT(2)) == 0;
    putchar('\n');
    json_decref(root);
out:
    json_decref(tensors);
    json_decref(caches);
    return ok;
}
