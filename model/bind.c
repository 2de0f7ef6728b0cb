/* bind.c: the look-up behind every plan: one sorted list over all files, so that binding n tensors
 * takes n log n steps. Not its job: which tensors a model has (arch_*.c). */
#include "model/bind.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/quant/format.h"

enum { MAX_NAME = 256 };

static int by_name(const void *a, const void *b) {
    const struct eb_tensor *const *x = a, *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

int32_t eb_binder_init(struct eb_binder *b, ebro_error *err) {
    struct ebro_model *m = b->m;
    b->by_name = eb_calloc(&m->alloc, m->n_tensors, sizeof(const struct eb_tensor *), err);
    if (b->by_name == NULL) return EBRO_NOMEM_HOST;
    b->used = eb_calloc(&m->alloc, m->n_tensors, 1, err);
    if (b->used == NULL) return EBRO_NOMEM_HOST;
    size_t n = 0;
    for (uint32_t f = 0; f < m->n_files; f++)
        for (size_t i = 0; i < m->files[f].st.n_tensors; i++)
            b->by_name[n++] = &m->files[f].st.tensors[i];
    qsort(b->by_name, n, sizeof *b->by_name, by_name);
    for (size_t i = 1; i < n; i++) {
        const struct eb_tensor *t = b->by_name[i - 1], *u = b->by_name[i];
        if (strcmp(t->name, u->name) == 0)
            return eb_fail(err, EBRO_FORMAT, "tensor \"%s\" stands in %s and in %s", t->name,
                           m->files[t->file].name, m->files[u->file].name);
    }
    return EBRO_OK;
}

void eb_binder_free(struct eb_binder *b) {
    eb_free(&b->m->alloc, b->by_name);
    eb_free(&b->m->alloc, b->used);
    b->by_name = NULL;
    b->used = NULL;
}

void eb_bind_problem(struct eb_binder *b, int32_t status, const char *fmt, ...) {
    if (b->n_problems++ > 0) return;
    char text[sizeof b->first.text];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    eb_fail(&b->first, status, "%s", text);
}

static const struct eb_tensor *look_up(const struct eb_binder *b, const char *name) {
    struct eb_tensor key = {.name = name};
    const struct eb_tensor *p = &key;
    if (b->m->n_tensors == 0) return NULL;
    const struct eb_tensor **at =
        bsearch(&p, b->by_name, b->m->n_tensors, sizeof *b->by_name, by_name);
    return at == NULL ? NULL : *at;
}

/* The prefix and a printed name; false when it does not fit, which no real name comes near. */
static void full_name(const struct eb_binder *b, char out[MAX_NAME], const char *fmt,
                      va_list args) {
    int n = snprintf(out, MAX_NAME, "%s", b->prefix);
    vsnprintf(out + n, (size_t)(MAX_NAME - n), fmt, args);
}

/* "[2, 3]" of up to EB_MAX_DIMS numbers; cut off rather than overrun. */
static void shape_text(const uint64_t *shape, uint32_t n_dims, char out[96]) {
    size_t n = (size_t)snprintf(out, 96, "[");
    for (uint32_t d = 0; d < n_dims && n < 70; d++)
        n += (size_t)snprintf(out + n, 96 - n, "%s%llu", d ? ", " : "",
                              (unsigned long long)shape[d]);
    snprintf(out + n, 96 - n, "]");
}

static void wrong_shape(struct eb_binder *b, const struct eb_tensor *t, const char *want) {
    char found[96];
    shape_text(t->shape, t->n_dims, found);
    eb_bind_problem(b, EBRO_FORMAT, "%s: tensor \"%s\" has shape %s, wanted %s",
                    b->m->files[t->file].name, t->name, found, want);
}

static void wrong_dtype(struct eb_binder *b, const struct eb_tensor *t, const char *want) {
    eb_bind_problem(b, EBRO_FORMAT, "%s: tensor \"%s\" has dtype %s, wanted %s",
                    b->m->files[t->file].name, t->name, eb_safetensors_dtype_name(t->dtype), want);
}

static void missing(struct eb_binder *b, const char *name, const char *want) {
    eb_bind_problem(b, EBRO_FORMAT, "no tensor \"%s\" (wanted with shape %s)", name, want);
}

static bool is_float(const struct eb_tensor *t) {
    return t->dtype == EBRO_F32 || t->dtype == EBRO_F16 || t->dtype == EBRO_BF16;
}

static bool is_shape2(const struct eb_tensor *t, uint64_t rows, uint64_t cols) {
    return t->n_dims == 2 && t->shape[0] == rows && t->shape[1] == cols;
}

static const struct eb_tensor *take(struct eb_binder *b, const struct eb_tensor *t) {
    b->used[t->index] = 1;
    return t;
}

/* The codes or the scales of an MXFP4 matrix: U8 [rows, cols]. NULL: missing or wrong. */
static const struct eb_tensor *bind_bytes(struct eb_binder *b, const char *name, uint32_t rows,
                                          uint32_t cols) {
    char want[96];
    const uint64_t shape[2] = {rows, cols};
    shape_text(shape, 2, want);
    const struct eb_tensor *t = look_up(b, name);
    if (t == NULL) {
        missing(b, name, want);
        return NULL;
    }
    take(b, t);
    if (t->dtype != EBRO_U8) {
        wrong_dtype(b, t, "U8");
        return NULL;
    }
    if (is_shape2(t, rows, cols)) return t;
    wrong_shape(b, t, want);
    return NULL;
}

/* `name` ends in ".weight_packed". */
static void bind_packed(struct eb_binder *b, struct eb_matrix *out, uint32_t rows, uint32_t cols,
                        char name[MAX_NAME], size_t stem) {
    if (cols % EBRO_MX_GROUP != 0) {
        take(b, look_up(b, name));
        eb_bind_problem(b, EBRO_FORMAT, "tensor \"%s\": %u columns are no multiple of %d", name,
                        cols, EBRO_MX_GROUP);
        return;
    }
    const struct eb_tensor *codes = bind_bytes(b, name, rows, cols / 2);
    snprintf(name + stem, MAX_NAME - stem, ".weight_scale");
    const struct eb_tensor *scale = bind_bytes(b, name, rows, cols / EBRO_MX_GROUP);
    if (codes == NULL || scale == NULL) return;
    out->w = codes;
    out->scale = scale;
    out->dtype = EBRO_MXFP4;
}

void eb_bind_matrix(struct eb_binder *b, struct eb_matrix *out, uint32_t rows, uint32_t cols,
                    enum eb_bind_form form, const char *fmt, ...) {
    char name[MAX_NAME], want[96];
    va_list args;
    va_start(args, fmt);
    full_name(b, name, fmt, args);
    va_end(args);
    size_t stem = strlen(name);
    struct eb_matrix m = {.rows = rows, .cols = cols};
    *out = m;
    if (form == EB_BIND_PACKED && b->file->mxfp4) {
        snprintf(name + stem, MAX_NAME - stem, ".weight_packed");
        if (look_up(b, name) != NULL) {
            bind_packed(b, out, rows, cols, name, stem);
            return;
        }
    }
    snprintf(name + stem, MAX_NAME - stem, ".weight");
    const uint64_t shape[2] = {rows, cols};
    shape_text(shape, 2, want);
    const struct eb_tensor *t = look_up(b, name);
    if (t == NULL) {
        missing(b, name, want);
        return;
    }
    take(b, t);
    if (!is_float(t)) {
        wrong_dtype(b, t, "F32, F16 or BF16");
    } else if (!is_shape2(t, rows, cols)) {
        wrong_shape(b, t, want);
    } else {
        out->w = t;
        out->dtype = t->dtype;
    }
}

/* A float tensor by its full name, its shape not looked at; NULL: missing or no float. */
static const struct eb_tensor *bind_float(struct eb_binder *b, const char *name, const char *want) {
    const struct eb_tensor *t = look_up(b, name);
    if (t == NULL) {
        missing(b, name, want);
        return NULL;
    }
    take(b, t);
    if (is_float(t)) return t;
    wrong_dtype(b, t, "F32, F16 or BF16");
    return NULL;
}

const struct eb_tensor *eb_bind_vec(struct eb_binder *b, uint32_t n, const char *fmt, ...) {
    char name[MAX_NAME], want[96];
    va_list args;
    va_start(args, fmt);
    full_name(b, name, fmt, args);
    va_end(args);
    snprintf(want, sizeof want, "[%u]", n);
    const struct eb_tensor *t = bind_float(b, name, want);
    if (t == NULL) return NULL;
    if ((t->n_dims == 1 && t->shape[0] == n) || is_shape2(t, 1, n)) return t;
    wrong_shape(b, t, want);
    return NULL;
}

const struct eb_tensor *eb_bind_conv(struct eb_binder *b, uint32_t channels, const char *fmt, ...) {
    char name[MAX_NAME], want[96];
    va_list args;
    va_start(args, fmt);
    full_name(b, name, fmt, args);
    va_end(args);
    snprintf(want, sizeof want, "[%u, 1, %d] or [%u, %d]", channels, EBRO_CONV_WIDTH, channels,
             EBRO_CONV_WIDTH);
    const struct eb_tensor *t = bind_float(b, name, want);
    if (t == NULL || is_shape2(t, channels, EBRO_CONV_WIDTH)) return t;
    if (t->n_dims == 3 && t->shape[0] == channels && t->shape[1] == 1 &&
        t->shape[2] == EBRO_CONV_WIDTH)
        return t;
    wrong_shape(b, t, want);
    return NULL;
}

static float element(const struct eb_tensor *t, uint64_t i) {
    uint16_t half;
    float f;
    if (t->dtype == EBRO_F32) {
        memcpy(&f, t->data + 4 * i, sizeof f);
        return f;
    }
    memcpy(&half, t->data + 2 * i, sizeof half);
    return t->dtype == EBRO_BF16 ? eb_bf16_to_f32(half) : eb_f16_to_f32(half);
}

const struct eb_tensor *eb_bind_a_log(struct eb_binder *b, uint32_t heads, const char *fmt, ...) {
    char name[MAX_NAME], want[96];
    va_list args;
    va_start(args, fmt);
    full_name(b, name, fmt, args);
    va_end(args);
    snprintf(want, sizeof want, "[%u], [1, 1, %u, 1] or a longer vector padded with zeros", heads,
             heads);
    const struct eb_tensor *t = bind_float(b, name, want);
    if (t == NULL) return NULL;
    if (t->n_dims == 4 && t->shape[0] == 1 && t->shape[1] == 1 && t->shape[2] == heads &&
        t->shape[3] == 1)
        return t;
    if (t->n_dims != 1 || t->shape[0] < heads) {
        wrong_shape(b, t, want);
        return NULL;
    }
    for (uint64_t i = heads; i < t->shape[0]; i++)
        if (element(t, i) != 0.0f) {
            eb_bind_problem(b, EBRO_FORMAT,
                            "%s: tensor \"%s\" has %llu values for %u heads, and value %llu of the "
                            "padding is not zero",
                            b->m->files[t->file].name, t->name, (unsigned long long)t->shape[0],
                            heads, (unsigned long long)i);
            return NULL;
        }
    return t;
}

uint64_t eb_bind_peek_rows(const struct eb_binder *b, const char *fmt, ...) {
    char name[MAX_NAME];
    va_list args;
    va_start(args, fmt);
    full_name(b, name, fmt, args);
    va_end(args);
    const struct eb_tensor *t = look_up(b, name);
    return t == NULL || t->n_dims == 0 ? 0 : t->shape[0];
}

static bool starts_with(const char *s, const char *start) {
    return strncmp(s, start, strlen(start)) == 0;
}

static bool ends_with(const char *s, const char *end) {
    size_t n = strlen(s), m = strlen(end);
    return n >= m && strcmp(s + n - m, end) == 0;
}

/* A tensor of a layer behind the last: the extra layers that predict further tokens. */
static bool is_beyond_layers(const struct eb_binder *b, const char *name) {
    static const char layers[] = "model.layers.";
    if (!starts_with(name, b->prefix)) return false;
    name += strlen(b->prefix);
    if (!starts_with(name, layers)) return false;
    name += sizeof layers - 1;
    uint64_t l = 0;
    const char *digits = name;
    while (*name >= '0' && *name <= '9' && l < UINT32_MAX) l = l * 10 + (uint64_t)(*name++ - '0');
    return name != digits && *name == '.' && l >= b->m->config.n_layers;
}

static bool is_skipped(const struct eb_binder *b, const char *name) {
    for (const char *const *p = b->skip_prefixes; *p != NULL; p++)
        if (starts_with(name, *p)) return true;
    return ends_with(name, "rotary_emb.inv_freq");
}

static int32_t check_unused(const struct eb_binder *b, ebro_error *err) {
    const struct eb_tensor *first = NULL;
    uint32_t n_unknown = 0, n_beyond = 0;
    for (uint32_t i = 0; i < b->m->n_tensors; i++) {
        const struct eb_tensor *t = b->by_name[i];
        if (b->used[t->index] || is_skipped(b, t->name)) continue;
        if (is_beyond_layers(b, t->name)) {
            n_beyond++;
        } else if (n_unknown++ == 0) {
            first = t;
        }
    }
    if (n_beyond > 0)
        eb_log(&b->m->rt->log, EBRO_LOG_INFO,
               "%u tensors of layers behind the last of %u are not used", n_beyond,
               b->m->config.n_layers);
    if (n_unknown == 0) return EBRO_OK;
    return eb_fail(err, EBRO_FORMAT,
                   "%s: tensor \"%s\" has no place in this architecture and configuration; %u such "
                   "tensors in all",
                   b->m->files[first->file].name, first->name, n_unknown);
}

int32_t eb_bind_finish(struct eb_binder *b, ebro_error *err) {
    if (b->n_problems == 0) return check_unused(b, err);
    if (b->n_problems == 1) return eb_fail(err, b->first.status, "%s", b->first.text);
    return eb_fail(err, b->first.status, "%s; %u more tensors are missing or wrong", b->first.text,
                   b->n_problems - 1);
}
