/* trial.c: memory, random numbers and buffers of a trial. Calls and findings: judge.c. */
#include "check/trial.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

bool eb_trial_over(const struct eb_trial *t) {
    return t->status != EBRO_OK || t->refused;
}

/* Keeps the first status. */
static void stop(struct eb_trial *t, int32_t st) {
    if (t->status == EBRO_OK) t->status = st;
}

static int32_t full(struct eb_trial *t, const char *what, int n) {
    return eb_fail(&t->err, EBRO_INTERNAL, "a case of the check has more than %d %s", n, what);
}

void eb_trial_free(struct eb_trial *t) {
    for (uint32_t i = 0; i < t->n_images; i++) {
        eb_mem_free(t->device, &t->images[i].mem);
        eb_free(t->alloc, t->images[i].before);
        eb_free(t->alloc, t->images[i].after);
    }
    for (uint32_t i = 0; i < t->n_hosts; i++) eb_free(t->alloc, t->hosts[i]);
    t->n_images = t->n_hosts = 0;
}

void eb_trial_shape(struct eb_trial *t, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    vsnprintf(t->shape, sizeof t->shape, fmt, args);
    va_end(args);
}

/* ---- numbers ---------------------------------------------------------------------------- */

uint64_t eb_trial_u64(struct eb_trial *t) {
    /* splitmix64: every seed is a good one. */
    t->rng += 0x9e3779b97f4a7c15u;
    uint64_t z = t->rng;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

uint32_t eb_trial_below(struct eb_trial *t, uint32_t n) {
    return (uint32_t)(eb_trial_u64(t) % n);
}

static double unit(struct eb_trial *t) {
    return (double)(eb_trial_u64(t) >> 11) * 0x1p-53;
}

float eb_trial_uniform(struct eb_trial *t, float lo, float hi) {
    return (float)((double)lo + unit(t) * ((double)hi - (double)lo));
}

float eb_trial_gauss(struct eb_trial *t) {
    /* Box-Muller; 1 - unit keeps the logarithm's argument above zero. */
    double radius = sqrt(-2.0 * log(1.0 - unit(t)));
    return (float)(radius * cos(6.283185307179586 * unit(t)));
}

void *eb_trial_host(struct eb_trial *t, uint64_t n, uint64_t size) {
    if (eb_trial_over(t)) return NULL;
    if (t->n_hosts == EB_TRIAL_MAX_HOSTS) {
        stop(t, full(t, "arrays", EB_TRIAL_MAX_HOSTS));
        return NULL;
    }
    uint64_t bytes;
    if (!eb_mul_u64(n, size, &bytes) || bytes > SIZE_MAX) {
        stop(t, eb_fail(&t->err, EBRO_NOMEM_HOST, "%" PRIu64 " elements overflow", n));
        return NULL;
    }
    void *p = eb_calloc(t->alloc, (size_t)bytes, 1, &t->err);
    if (p == NULL) {
        stop(t, EBRO_NOMEM_HOST);
        return NULL;
    }
    t->hosts[t->n_hosts++] = p;
    return p;
}

float *eb_trial_normal(struct eb_trial *t, uint64_t n, float scale) {
    float *x = eb_trial_host(t, n, sizeof *x);
    for (uint64_t i = 0; x != NULL && i < n; i++) x[i] = scale * eb_trial_gauss(t);
    return x;
}

double *eb_trial_widen(struct eb_trial *t, const float *x, uint64_t n) {
    double *y = eb_trial_host(t, n, sizeof *y);
    for (uint64_t i = 0; y != NULL && i < n; i++) y[i] = (double)x[i];
    return y;
}

float *eb_trial_narrow(struct eb_trial *t, const double *x, uint64_t n) {
    float *y = eb_trial_host(t, n, sizeof *y);
    for (uint64_t i = 0; y != NULL && i < n; i++) y[i] = (float)x[i];
    return y;
}

uint32_t *eb_trial_shuffled(struct eb_trial *t, uint32_t n) {
    uint32_t *order = eb_trial_host(t, n, sizeof *order);
    if (order == NULL) return NULL;
    for (uint32_t i = 0; i < n; i++) order[i] = i;
    for (uint32_t i = n; i > 1; i--) {
        uint32_t j = eb_trial_below(t, i), last = order[i - 1];
        order[i - 1] = order[j];
        order[j] = last;
    }
    return order;
}

/* ---- buffers ---------------------------------------------------------------------------- */

struct eb_trial_buf eb_trial_room(struct eb_trial *t, uint64_t bytes, enum eb_trial_role role) {
    struct eb_trial_buf none = {.bytes = 0};
    if (eb_trial_over(t)) return none;
    if (t->n_images == EB_TRIAL_MAX_BUFS) {
        stop(t, full(t, "buffers", EB_TRIAL_MAX_BUFS));
        return none;
    }
    uint64_t all;
    if (!eb_add_u64(bytes, 2 * EB_TRIAL_GUARD, &all) || all > SIZE_MAX) {
        stop(t, eb_fail(&t->err, EBRO_NOMEM_HOST, "%" PRIu64 " bytes overflow", bytes));
        return none;
    }
    struct eb_trial_image *m = &t->images[t->n_images];
    *m = (struct eb_trial_image){.bytes = bytes, .role = role};
    m->before = eb_calloc(t->alloc, (size_t)all, 1, &t->err);
    m->after = eb_calloc(t->alloc, (size_t)all, 1, &t->err);
    t->n_images++;
    if (m->before == NULL || m->after == NULL) {
        stop(t, EBRO_NOMEM_HOST);
        return none;
    }
    memset(m->before, 0xff, (size_t)all);
    int32_t st = eb_mem_alloc(t->device, all, EBRO_MEM_DEVICE, &m->mem, &t->err);
    if (st != EBRO_OK) {
        stop(t, st);
        return none;
    }
    return (struct eb_trial_buf){
        .span = {m->mem, EB_TRIAL_GUARD}, .image = t->n_images - 1, .bytes = bytes};
}

struct eb_trial_buf eb_trial_data(struct eb_trial *t, const void *data, uint64_t bytes) {
    struct eb_trial_buf b = eb_trial_room(t, bytes, EB_TRIAL_IN);
    uint8_t *to = eb_trial_before(t, &b);
    if (to != NULL && bytes > 0) memcpy(to, data, (size_t)bytes);
    return b;
}

ebro_span eb_trial_i32(struct eb_trial *t, const int32_t *v, uint64_t n) {
    return eb_trial_data(t, v, n * sizeof *v).span;
}

ebro_span eb_trial_scratch(struct eb_trial *t, ebro_op op, const void *args) {
    if (eb_trial_over(t)) return (ebro_span){NULL, 0};
    return eb_trial_room(t, eb_op_scratch(t->device, op, args), EB_TRIAL_SCRATCH).span;
}

uint64_t eb_trial_address(const struct eb_trial_buf *b) {
    return b->span.mem != NULL ? b->span.mem->address + b->span.offset : 0;
}

uint8_t *eb_trial_before(struct eb_trial *t, const struct eb_trial_buf *b) {
    if (eb_trial_over(t)) return NULL;
    return t->images[b->image].before + EB_TRIAL_GUARD;
}

const uint8_t *eb_trial_after(struct eb_trial *t, const struct eb_trial_buf *b) {
    if (eb_trial_over(t)) return NULL;
    return t->images[b->image].after + EB_TRIAL_GUARD;
}

static struct eb_trial_mat matrix(struct eb_trial *t, const void *dense, uint64_t rows,
                                  uint64_t cols, uint64_t padding, enum eb_trial_role role) {
    struct eb_trial_mat r = {.rows = rows, .cols = cols};
    uint64_t stride = cols + padding;
    r.buf = eb_trial_room(t, rows * stride * 4, role);
    r.m = (ebro_mat){r.buf.span.mem, r.buf.span.offset, stride, EBRO_F32};
    uint8_t *to = eb_trial_before(t, &r.buf);
    for (uint64_t i = 0; to != NULL && dense != NULL && i < rows; i++)
        memcpy(to + i * stride * 4, (const uint8_t *)dense + i * cols * 4, (size_t)cols * 4);
    return r;
}

struct eb_trial_mat eb_trial_mat(struct eb_trial *t, const void *dense, uint64_t rows,
                                 uint64_t cols, uint64_t padding) {
    return matrix(t, dense, rows, cols, padding, EB_TRIAL_IN);
}

struct eb_trial_mat eb_trial_out(struct eb_trial *t, const void *dense, uint64_t rows,
                                 uint64_t cols, uint64_t padding) {
    return matrix(t, dense, rows, cols, padding, EB_TRIAL_OUT);
}

void *eb_trial_get(struct eb_trial *t, const struct eb_trial_mat *m) {
    uint8_t *dense = eb_trial_host(t, m->rows * m->cols, 4);
    const uint8_t *all = eb_trial_after(t, &m->buf);
    if (dense == NULL || all == NULL) return NULL;
    for (uint64_t i = 0; i < m->rows; i++) {
        const uint8_t *row = all + i * m->m.stride * 4;
        memcpy(dense + i * m->cols * 4, row, (size_t)m->cols * 4);
        for (uint64_t k = m->cols * 4; k < m->m.stride * 4; k++) {
            if (row[k] == 0xff) continue;
            eb_trial_fail(t, "padding behind row %" PRIu64 " of an output was written", i);
            break;
        }
    }
    return dense;
}

/* ---- weights ---------------------------------------------------------------------------- */

double eb_trial_element(struct eb_trial *t, int32_t dtype, uint8_t *out) {
    uint64_t u = eb_trial_u64(t);
    if (dtype == EBRO_F32) {
        float f = eb_trial_gauss(t);
        memcpy(out, &f, sizeof f);
    } else {
        bool half = dtype == EBRO_F16, tiny = half && (u >> 4 & 63) == 0;
        uint32_t bits = half ? 10 : 7, exponent = (half ? 10u : 122u) + (uint32_t)(u >> 1 & 7);
        uint32_t mantissa = (uint32_t)(u >> 16) & ((1u << bits) - 1u);
        if (tiny) exponent = 0;
        uint16_t h = (uint16_t)((u & 1 ? 0x8000u : 0u) | exponent << bits | mantissa);
        memcpy(out, &h, sizeof h);
    }
    return eb_ref_element(dtype, out);
}

static struct eb_trial_weight mx_weight(struct eb_trial *t, struct eb_trial_weight r,
                                        uint64_t groups) {
    uint8_t *codes = eb_trial_host(t, groups, 16), *scales = eb_trial_host(t, groups, 1);
    if (eb_trial_over(t)) return r;
    for (uint64_t i = 0; i < groups; i++) scales[i] = (uint8_t)(124 + eb_trial_below(t, 8));
    for (uint64_t i = 0; i < groups * 32; i++) {
        uint32_t code = eb_trial_below(t, 16);
        codes[i / 2] = (uint8_t)(codes[i / 2] | code << (i % 2 * 4));
        r.v[i] = eb_ref_mx(code, scales[i / 32]);
    }
    struct eb_trial_buf b = eb_trial_data(t, codes, groups * 16);
    struct eb_trial_buf s = eb_trial_data(t, scales, groups);
    r.w.mem = b.span.mem;
    r.w.offset = b.span.offset;
    r.w.scale_mem = s.span.mem;
    r.w.scale_offset = s.span.offset;
    return r;
}

struct eb_trial_weight eb_trial_weights(struct eb_trial *t, uint32_t n, int32_t dtype,
                                        uint32_t rows, uint32_t cols, uint32_t padding) {
    uint64_t count = (uint64_t)n * rows * cols, size = eb_dtype_size(dtype);
    uint64_t stride = (uint64_t)cols + padding;
    struct eb_trial_weight r = {.v = eb_trial_host(t, count, sizeof *r.v)};
    r.w = (ebro_weight){.rows = rows, .cols = cols, .stride = cols, .dtype = dtype};
    if (dtype == EBRO_MXFP4) return mx_weight(t, r, count / 32);
    r.bytes = rows * stride * size;
    r.w.stride = stride;
    struct eb_trial_buf b = eb_trial_room(t, n * r.bytes, EB_TRIAL_IN);
    uint8_t *data = eb_trial_before(t, &b);
    for (uint64_t i = 0; data != NULL && i < (uint64_t)n * rows; i++) {
        for (uint64_t c = 0; c < cols; c++)
            r.v[i * cols + c] = eb_trial_element(t, dtype, data + (i * stride + c) * size);
    }
    r.w.mem = b.span.mem;
    r.w.offset = b.span.offset;
    return r;
}

struct eb_trial_weight eb_trial_weight(struct eb_trial *t, int32_t dtype, uint32_t rows,
                                       uint32_t cols, uint32_t padding) {
    return eb_trial_weights(t, 1, dtype, rows, cols, padding);
}

ebro_vec eb_trial_vec(struct eb_trial *t, int32_t dtype, uint32_t n, double **values) {
    struct eb_trial_weight w = eb_trial_weight(t, dtype, 1, n, 0);
    *values = w.v;
    return (ebro_vec){w.w.mem, w.w.offset, dtype};
}

ebro_vec eb_trial_vec_from(struct eb_trial *t, const float *v, uint64_t n) {
    struct eb_trial_buf b = eb_trial_data(t, v, n * sizeof *v);
    return (ebro_vec){b.span.mem, b.span.offset, EBRO_F32};
}
