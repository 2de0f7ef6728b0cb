/* load.c: puts a model's tensors into a device's memory, in place where the device shares host
 * memory, else copied into a few allocations of bounded size. Not its job: which tensors there are
 * (plan.c). */
#include "model/load.h"

#include <stdlib.h>
#include <string.h>

#include "model/plan.h"
#include "model/shards.h"
#include "ops/ops.h"

enum {
    GROUP_BYTES = 256 << 20, /* of one allocation, unless a single tensor is larger */
    TENSOR_ALIGNMENT = 256   /* of tensors inside an allocation: wide loads and binding offsets */
};

/* Where one tensor lies. group NOWHERE: not placed. */
enum { NOWHERE = -1 };
struct place {
    int64_t group; /* number of the memory in `mems` */
    uint64_t offset;
    /* Not 0: every so many rows have a memory of their own, from `group` on. A power of two, so
     * that an MXFP4 matrix and its scales have parts that fit into each other. */
    uint32_t part_rows;
};

struct eb_weights {
    struct ebro_device *device;
    struct eb_alloc alloc;
    struct place *places; /* by tensor index */
    uint32_t n_places;
    ebro_mem **mems;
    size_t n_mems, mem_capacity;
    /* Expert tables of all MoE layers in one memory; offsets by layer. */
    ebro_mem *tables;
    uint64_t *table_offsets;
    uint32_t n_layers;
    uint32_t n_experts;
    bool in_place; /* some memory may be a weight file itself */
};

struct load {
    const struct ebro_model *m;
    struct eb_weights *w;
    struct eb_stream *s;
    const struct eb_progress *progress;
    uint64_t group_limit;
    /* Uploads: tensors in order of placement. */
    const struct eb_tensor **queue;
    size_t n_queue;
};

/* Where in an imported file a tensor can be used. */
static uint64_t alignment_of(const struct ebro_device *d, const struct eb_tensor *t) {
    uint32_t size = eb_dtype_size(t->dtype), wanted = d->caps.weight_alignment;
    if (size == 0) size = 1;
    return wanted > size ? wanted : size;
}

static int32_t add_mem(struct eb_weights *w, ebro_mem *mem, ebro_error *err) {
    void *mems = w->mems;
    int32_t st = eb_grow(&w->alloc, &mems, &w->mem_capacity, w->n_mems + 1, sizeof *w->mems, err);
    w->mems = mems;
    if (st == EBRO_OK) w->mems[w->n_mems++] = mem;
    return st;
}

static bool can_import(const struct ebro_device *d) {
    return (d->caps.bits & EBRO_CAP_UNIFIED) != 0 && d->be->mem_import != NULL;
}

/* What one import may hold: a sixteenth of an allocation is left to devices that widen it to whole
 * pages. */
static uint64_t most_imported(const struct ebro_device *d) {
    uint64_t most = d->caps.max_alloc_bytes;
    return most == 0 ? UINT64_MAX : most - most / 16;
}

static int by_place(const void *a, const void *b) {
    const struct eb_tensor *x = *(const struct eb_tensor *const *)a;
    const struct eb_tensor *y = *(const struct eb_tensor *const *)b;
    return (x->data > y->data) - (x->data < y->data);
}

/* The tensors of a file in the order of their bytes; free with eb_free. NULL: no memory. */
static const struct eb_tensor **in_order(const struct load *l, const struct eb_model_file *file,
                                         ebro_error *err) {
    const size_t n = file->st.n_tensors;
    const struct eb_tensor **t = eb_calloc(&l->w->alloc, n + 1, sizeof *t, err);
    if (t == NULL) return NULL;
    for (size_t i = 0; i < n; i++) t[i] = &file->st.tensors[i];
    qsort(t, n, sizeof *t, by_place);
    return t;
}

/* Imports bytes [begin, end) and uses these tensors where they are; those whose place does not fit
 * the device, and bytes that it cannot share, are left for the upload. */
static int32_t import_range(struct load *l, const uint8_t *begin, const uint8_t *end,
                            const struct eb_tensor *const *tensors, size_t n, ebro_error *err) {
    ebro_mem *mem = NULL;
    ebro_error why = {0};
    int32_t st = eb_mem_share(l->w->device, begin, (uint64_t)(end - begin), &mem, &why);
    if (st == EBRO_UNSUPPORTED || st == EBRO_NOMEM_DEVICE) return EBRO_OK;
    if (st != EBRO_OK) {
        if (err != NULL) *err = why;
        return st;
    }
    if ((st = add_mem(l->w, mem, err)) != EBRO_OK) {
        eb_mem_free(l->w->device, &mem);
        return st;
    }
    for (size_t i = 0; i < n; i++) {
        const struct eb_tensor *t = tensors[i];
        uint64_t offset = (uint64_t)(t->data - begin), align = alignment_of(l->w->device, t);
        if (offset % align != 0 || (mem->address + offset) % align != 0) continue;
        l->w->places[t->index].group = (int64_t)l->w->n_mems - 1;
        l->w->places[t->index].offset = offset;
    }
    return EBRO_OK;
}

/* Imports a weight file: all of it where the device can have that at once, else as many whole
 * tensors at a time as it can. Tensors that are larger are left for the upload. */
static int32_t import_tensors(struct load *l, const struct eb_model_file *file,
                              const struct eb_tensor *const *tensors, ebro_error *err) {
    const struct ebro_device *d = l->w->device;
    const uint8_t *start = file->bytes.data;
    const size_t n = file->st.n_tensors;
    const uint64_t most = most_imported(d);
    int32_t st = EBRO_OK;
    if (file->bytes.bytes <= most)
        return import_range(l, start, start + file->bytes.bytes, tensors, n, err);
    for (size_t first = 0, next; st == EBRO_OK && first < n; first = next) {
        uint64_t slack = (uintptr_t)tensors[first]->data % d->caps.mem_alignment;
        const uint8_t *begin = tensors[first]->data, *end = begin;
        if (slack <= (uint64_t)(begin - start)) begin -= slack;
        for (next = first; next < n; next++) {
            const uint8_t *after = tensors[next]->data + tensors[next]->bytes;
            if ((uint64_t)(after - begin) > most) break;
            end = after;
        }
        if (next > first)
            st = import_range(l, begin, end, &tensors[first], next - first, err);
        else
            next++;
    }
    return st;
}

static int32_t import_file(struct load *l, uint32_t f, ebro_error *err) {
    const struct eb_model_file *file = &l->m->files[f];
    int32_t st = eb_progress_tell(l->progress, "mapping weights", 0.5 * f / l->m->n_files, err);
    if (st != EBRO_OK) return st;
    const struct eb_tensor **tensors = in_order(l, file, err);
    if (tensors == NULL) return EBRO_NOMEM_HOST;
    st = import_tensors(l, file, tensors, err);
    eb_free(&l->w->alloc, tensors);
    return st;
}

static uint64_t round_up(uint64_t n) {
    return (n + TENSOR_ALIGNMENT - 1) / TENSOR_ALIGNMENT * TENSOR_ALIGNMENT;
}

/* Rows of a part of a matrix that is larger than an allocation; 0: it stays whole. */
static uint32_t part_rows_of(const struct ebro_device *d, const struct eb_tensor *t) {
    const uint64_t most = d->caps.max_alloc_bytes;
    if (most == 0 || round_up(t->bytes) <= most || t->n_dims != 2 || t->shape[0] == 0) return 0;
    uint64_t row_bytes = t->bytes / t->shape[0];
    if (row_bytes == 0 || round_up(row_bytes) > most) return 0;
    uint32_t rows = 1;
    while (round_up(2 * (uint64_t)rows * row_bytes) <= most) rows *= 2;
    return rows;
}

/* Queues a tensor of the plan that has no place yet; its place is marked so that it comes once. */
static int32_t enqueue(void *user, const struct eb_plan_entry *entry, ebro_error *err) {
    (void)err;
    struct load *l = user;
    const struct eb_tensor *t = entry->tensor;
    struct place *p = &l->w->places[t->index];
    if (p->group != NOWHERE) return EBRO_OK;
    p->group = INT64_MAX;
    p->part_rows = entry->by_rows ? part_rows_of(l->w->device, t) : 0;
    l->queue[l->n_queue++] = t;
    return EBRO_OK;
}

/* A new memory at the end of the list. */
static int32_t new_mem(struct load *l, uint64_t bytes, ebro_mem **out, ebro_error *err) {
    int32_t st = eb_mem_alloc(l->w->device, bytes, EBRO_MEM_DEVICE, out, err);
    if (st == EBRO_OK && (st = add_mem(l->w, *out, err)) != EBRO_OK) eb_mem_free(l->w->device, out);
    return st;
}

static int32_t tell_uploaded(const struct load *l, size_t done, ebro_error *err) {
    double begin = can_import(l->w->device) ? 0.5 : 0.0;
    double share = (double)done / (double)l->n_queue;
    return eb_progress_tell(l->progress, "uploading weights", begin + (1.0 - begin) * share, err);
}

/* Tensors [first, end) of the queue into one new memory of `bytes`, at the offsets in their places.
 * Waits, so that what is staged on the way stays bounded. */
static int32_t upload_group(struct load *l, size_t first, size_t end, uint64_t bytes,
                            ebro_error *err) {
    ebro_mem *mem = NULL;
    int32_t st = tell_uploaded(l, first, err);
    if (st != EBRO_OK) return st;
    st = new_mem(l, bytes, &mem, err);
    if (st != EBRO_OK && end - first == 1)
        return eb_while(err, st, "placing tensor %s", l->queue[first]->name);
    if (st != EBRO_OK) return st;
    for (size_t i = first; i < end; i++) {
        const struct eb_tensor *t = l->queue[i];
        struct place *p = &l->w->places[t->index];
        const ebro_span dst = {mem, p->offset};
        p->group = (int64_t)l->w->n_mems - 1;
        if (t->bytes > 0 && (st = eb_upload(l->s, dst, t->data, t->bytes, err)) != EBRO_OK) break;
    }
    int32_t wait = eb_stream_sync(l->s, st == EBRO_OK ? err : NULL);
    return st == EBRO_OK ? wait : st;
}

/* Tensor i of the queue in parts, each in a memory of its own. */
static int32_t upload_parts(struct load *l, size_t i, ebro_error *err) {
    const struct eb_tensor *t = l->queue[i];
    struct place *p = &l->w->places[t->index];
    const uint64_t part = t->bytes / t->shape[0] * p->part_rows;
    int32_t st = tell_uploaded(l, i, err);
    p->group = (int64_t)l->w->n_mems;
    for (uint64_t at = 0; st == EBRO_OK && at < t->bytes; at += part) {
        const uint64_t bytes = t->bytes - at < part ? t->bytes - at : part;
        ebro_mem *mem = NULL;
        if ((st = new_mem(l, round_up(bytes), &mem, err)) != EBRO_OK)
            return eb_while(err, st, "placing a part of tensor %s", t->name);
        const ebro_span dst = {mem, 0};
        st = eb_upload(l->s, dst, t->data + at, bytes, err);
        int32_t wait = eb_stream_sync(l->s, st == EBRO_OK ? err : NULL);
        if (st == EBRO_OK) st = wait;
    }
    return st;
}

/* Splits the queue into groups of at most group_limit bytes. Sums cannot wrap: all these bytes lie
 * in memory already. */
static int32_t upload_queue(struct load *l, ebro_error *err) {
    size_t first = 0;
    uint64_t bytes = 0;
    for (size_t i = 0; i < l->n_queue; i++) {
        const struct eb_tensor *t = l->queue[i];
        struct place *p = &l->w->places[t->index];
        bool in_parts = p->part_rows > 0;
        if (i > first && (in_parts || bytes + round_up(t->bytes) > l->group_limit)) {
            int32_t st = upload_group(l, first, i, bytes, err);
            if (st != EBRO_OK) return st;
            first = i;
            bytes = 0;
        }
        if (in_parts) {
            int32_t st = upload_parts(l, i, err);
            if (st != EBRO_OK) return st;
            first = i + 1;
        } else {
            p->offset = bytes;
            bytes += round_up(t->bytes);
        }
    }
    return first < l->n_queue ? upload_group(l, first, l->n_queue, bytes, err) : EBRO_OK;
}

static int32_t upload_rest(struct load *l, ebro_error *err) {
    l->queue = eb_calloc(&l->w->alloc, l->m->n_tensors, sizeof(const struct eb_tensor *), err);
    if (l->queue == NULL) return EBRO_NOMEM_HOST;
    int32_t st = eb_plan_each_part(l->m, enqueue, l, err);
    if (st == EBRO_OK) st = upload_queue(l, err);
    eb_free(&l->w->alloc, l->queue);
    l->queue = NULL;
    return st;
}

static ebro_span span_of(const struct eb_weights *w, const struct eb_tensor *t) {
    ebro_span s = {0};
    if (t == NULL) return s;
    s.mem = w->mems[w->places[t->index].group];
    s.offset = w->places[t->index].offset;
    return s;
}

static uint64_t address_of(const struct eb_weights *w, const struct eb_tensor *t) {
    ebro_span s = span_of(w, t);
    return s.mem == NULL ? 0 : s.mem->address + s.offset;
}

/* Two tables a layer, codes and scales (zeros where there are none), each [3][n_experts]. */
static void fill_tables(const struct eb_weights *w, const struct eb_layer *y, uint64_t *out) {
    const size_t n = w->n_experts;
    for (size_t i = 0; i < 3; i++)
        for (size_t e = 0; e < n; e++) {
            out[i * n + e] = address_of(w, y->experts[i][e].w);
            out[(3 + i) * n + e] = address_of(w, y->experts[i][e].scale);
        }
}

static uint64_t table_bytes(const struct eb_weights *w) {
    return 3 * (uint64_t)w->n_experts * sizeof(uint64_t);
}

static int32_t upload_tables(struct load *l, ebro_error *err) {
    struct eb_weights *w = l->w;
    const struct ebro_model *m = l->m;
    uint64_t n_moe = 0, layer_bytes = 2 * table_bytes(w);
    for (uint32_t i = 0; i < m->config.n_layers; i++)
        if (m->layers[i].is_moe) w->table_offsets[i] = n_moe++ * layer_bytes;
    if (n_moe == 0) return EBRO_OK;

    uint8_t *host = eb_calloc(&w->alloc, (size_t)n_moe, (size_t)layer_bytes, err);
    if (host == NULL) return EBRO_NOMEM_HOST;
    for (uint32_t i = 0; i < m->config.n_layers; i++)
        if (m->layers[i].is_moe)
            fill_tables(w, &m->layers[i], (uint64_t *)(void *)(host + w->table_offsets[i]));
    int32_t st = eb_mem_alloc(w->device, n_moe * layer_bytes, EBRO_MEM_DEVICE, &w->tables, err);
    if (st == EBRO_OK) {
        const ebro_span dst = {w->tables, 0};
        st = eb_upload(l->s, dst, host, n_moe * layer_bytes, err);
        int32_t wait = eb_stream_sync(l->s, st == EBRO_OK ? err : NULL);
        if (st == EBRO_OK) st = wait;
    }
    eb_free(&w->alloc, host);
    return st;
}

static struct eb_weights *create(const struct ebro_model *m, struct ebro_device *d,
                                 ebro_error *err) {
    struct eb_weights *w = eb_calloc(&m->alloc, 1, sizeof *w, err);
    if (w == NULL) return NULL;
    w->device = d;
    w->alloc = m->alloc;
    w->n_layers = m->config.n_layers;
    w->n_experts = m->config.n_experts;
    w->n_places = m->n_tensors;
    w->places = eb_calloc(&w->alloc, m->n_tensors, sizeof *w->places, err);
    if (w->places != NULL)
        w->table_offsets = eb_calloc(&w->alloc, w->n_layers, sizeof *w->table_offsets, err);
    if (w->table_offsets == NULL) {
        eb_weights_free(&w);
        return NULL;
    }
    for (uint32_t i = 0; i < w->n_places; i++) w->places[i].group = NOWHERE;
    for (uint32_t i = 0; i < w->n_layers; i++) w->table_offsets[i] = UINT64_MAX;
    return w;
}

int32_t eb_weights_load(const struct ebro_model *m, struct eb_stream *s,
                        const struct eb_progress *progress, struct eb_weights **out,
                        ebro_error *err) {
    int32_t st = EBRO_OK;
    *out = NULL;
    struct eb_weights *w = create(m, s->device, err);
    if (w == NULL) return EBRO_NOMEM_HOST;
    struct load l = {.m = m, .w = w, .s = s, .progress = progress, .group_limit = GROUP_BYTES};
    const uint64_t largest = s->device->caps.max_alloc_bytes;
    if (largest > 0 && largest < l.group_limit) l.group_limit = largest;
    w->in_place = can_import(s->device);
    for (uint32_t f = 0; w->in_place && f < m->n_files; f++)
        if ((st = import_file(&l, f, err)) != EBRO_OK) goto out;
    if ((st = upload_rest(&l, err)) != EBRO_OK) goto out;
    if ((st = eb_shards_check(m, err)) != EBRO_OK) goto out;
    if ((st = upload_tables(&l, err)) != EBRO_OK) goto out;
    *out = w;
    w = NULL;
out:
    eb_weights_free(&w);
    return st == EBRO_OK ? st : eb_while(err, st, "loading weights onto %s", s->device->info.name);
}

int32_t eb_weights_check(const struct eb_weights *w, const struct ebro_model *m, ebro_error *err) {
    return w->in_place ? eb_shards_check(m, err) : EBRO_OK;
}

struct sizes {
    const struct ebro_model *m;
    const struct ebro_device *device;
    bool import;
    uint64_t most; /* of an import */
    uint64_t in_place, copied;
    bool embed_seen;
};

static int32_t add_size(void *user, const struct eb_tensor *t, ebro_error *err) {
    struct sizes *s = user;
    (void)err;
    /* nothing but a tied head comes twice */
    if (t == s->m->embed.w && s->embed_seen) return EBRO_OK;
    if (t == s->m->embed.w) s->embed_seen = true;
    bool fits = s->m->files[t->file].bytes.bytes <= s->most || t->bytes <= s->most;
    if (s->import && fits && (uintptr_t)t->data % alignment_of(s->device, t) == 0)
        s->in_place += t->bytes;
    else
        s->copied += round_up(t->bytes);
    return EBRO_OK;
}

void eb_weights_bytes(const struct ebro_model *m, const struct ebro_device *d, uint64_t *in_place,
                      uint64_t *copied) {
    struct sizes s = {.m = m, .device = d, .import = can_import(d), .most = most_imported(d)};
    eb_plan_each(m, add_size, &s, NULL);
    for (uint32_t i = 0; i < m->config.n_layers; i++)
        if (m->layers[i].is_moe) s.copied += 6 * (uint64_t)m->config.n_experts * sizeof(uint64_t);
    *in_place = s.in_place;
    *copied = s.copied;
}

void eb_weights_free(struct eb_weights **weights) {
    if (weights == NULL || *weights == NULL) return;
    struct eb_weights *w = *weights;
    const struct eb_alloc a = w->alloc;
    *weights = NULL;
    eb_mem_free(w->device, &w->tables);
    for (size_t i = 0; i < w->n_mems; i++) eb_mem_free(w->device, &w->mems[i]);
    eb_free(&a, w->mems);
    eb_free(&a, w->places);
    eb_free(&a, w->table_offsets);
    eb_free(&a, w);
}

ebro_weight eb_weight(const struct eb_weights *w, const struct eb_matrix *m) {
    ebro_weight out = {0};
    if (m->w == NULL) return out;
    const ebro_span data = span_of(w, m->w), scale = span_of(w, m->scale);
    out.mem = data.mem;
    out.offset = data.offset;
    out.stride = m->cols;
    out.rows = m->rows;
    out.cols = m->cols;
    out.dtype = m->dtype;
    out.scale_mem = scale.mem;
    out.scale_offset = scale.offset;
    return out;
}

/* Where row r of a tensor starts, and how many from it on lie in the same memory, *n at most. */
static ebro_span rows_from(const struct eb_weights *w, const struct eb_tensor *t, uint32_t r,
                           uint32_t *n) {
    ebro_span s = span_of(w, t);
    if (t == NULL || t->n_dims == 0 || t->shape[0] == 0) return s;
    const struct place *p = &w->places[t->index];
    uint32_t part = 0;
    if (p->part_rows > 0) {
        part = r / p->part_rows;
        r %= p->part_rows;
        if (*n > p->part_rows - r) *n = p->part_rows - r;
    }
    s.mem = w->mems[p->group + part];
    s.offset += t->bytes / t->shape[0] * r;
    return s;
}

ebro_weight eb_weight_part(const struct eb_weights *w, const struct eb_matrix *m, uint32_t first,
                           uint32_t *next) {
    ebro_weight out = eb_weight(w, m);
    uint32_t n = m->rows - first;
    const ebro_span data = rows_from(w, m->w, first, &n), scale = rows_from(w, m->scale, first, &n);
    out.mem = data.mem;
    out.offset = data.offset;
    out.scale_mem = scale.mem;
    out.scale_offset = scale.offset;
    out.rows = n;
    *next = first + n;
    return out;
}

ebro_weight eb_weight_rows(const struct eb_weights *w, const struct eb_matrix *m, uint32_t first,
                           uint32_t n) {
    ebro_weight out = eb_weight(w, m);
    if (out.mem == NULL) return out;
    out.offset += (uint64_t)first * m->cols * eb_dtype_size(m->dtype);
    out.rows = n;
    return out;
}

ebro_vec eb_vec(const struct eb_weights *w, const struct eb_tensor *t) {
    ebro_vec out = {0};
    if (t == NULL) return out;
    const ebro_span data = span_of(w, t);
    out.mem = data.mem;
    out.offset = data.offset;
    out.dtype = t->dtype;
    return out;
}

static ebro_span table_of(const struct eb_weights *w, uint32_t layer, uint64_t extra) {
    ebro_span s = {0};
    if (layer >= w->n_layers || w->table_offsets[layer] == UINT64_MAX) return s;
    s.mem = w->tables;
    s.offset = w->table_offsets[layer] + extra;
    return s;
}

ebro_span eb_expert_table(const struct eb_weights *w, uint32_t layer) {
    return table_of(w, layer, 0);
}

ebro_span eb_expert_scale_table(const struct eb_weights *w, uint32_t layer) {
    return table_of(w, layer, table_bytes(w));
}
