/* safetensors.c: reads the safetensors container: u64 header length, a JSON header, tensor bytes.
 * The header is scanned twice, first to check and count, then to fill one allocation of exactly the
 * size needed, so that a hostile header costs no memory. Not its job: which tensors there should be
 * (bind.c). */
#include "model/safetensors.h"

#include <stdlib.h>
#include <string.h>

#include "model/scan.h"

enum {
    MAX_HEADER = 100000000, /* the limit of the format's own reader */
    MAX_NAME = 512
};

static const struct {
    const char *name;
    int32_t dtype;
    uint32_t bytes;
} dtypes[] = {{"F32", EBRO_F32, 4}, {"F16", EBRO_F16, 2}, {"BF16", EBRO_BF16, 2},
              {"U8", EBRO_U8, 1},   {"I32", EBRO_I32, 4}, {"I64", EBRO_I64, 8},
              {"F64", EBRO_F64, 8}};
enum { N_DTYPES = (int)(sizeof dtypes / sizeof dtypes[0]) };

const char *eb_safetensors_dtype_name(int32_t dtype) {
    for (int i = 0; i < N_DTYPES; i++)
        if (dtypes[i].dtype == dtype) return dtypes[i].name;
    return NULL;
}

/* One pass over a header. tensors NULL: check and count alone. */
struct pass {
    struct eb_scan scan;
    const uint8_t *data; /* first byte after the header */
    uint64_t data_bytes, data_start;
    uint32_t file;
    struct eb_tensor *tensors;
    char *names;
    size_t n_tensors, names_bytes;
    uint64_t sum_bytes;
};

static int32_t bad(const struct pass *p, const char *name, const char *what, ebro_error *err) {
    return eb_fail(err, EBRO_FORMAT, "%s: tensor \"%s\": %s", p->scan.label, name, what);
}

static int32_t read_shape(struct pass *p, const char *name, struct eb_tensor *t, ebro_error *err) {
    int32_t st = eb_scan_expect(&p->scan, '[', err);
    for (size_t n = 0; st == EBRO_OK; n++) {
        bool more;
        if ((st = eb_scan_next(&p->scan, n, ']', &more, err)) != EBRO_OK || !more) break;
        if (n == EB_MAX_DIMS)
            return eb_fail(err, EBRO_FORMAT, "%s: tensor \"%s\": more than %d dimensions",
                           p->scan.label, name, EB_MAX_DIMS);
        st = eb_scan_u64(&p->scan, &t->shape[n], err);
        t->n_dims = (uint32_t)n + 1;
    }
    return st;
}

static int32_t read_offsets(struct pass *p, uint64_t *begin, uint64_t *end, ebro_error *err) {
    int32_t st;
    if ((st = eb_scan_expect(&p->scan, '[', err)) != EBRO_OK) return st;
    if ((st = eb_scan_u64(&p->scan, begin, err)) != EBRO_OK) return st;
    if ((st = eb_scan_expect(&p->scan, ',', err)) != EBRO_OK) return st;
    if ((st = eb_scan_u64(&p->scan, end, err)) != EBRO_OK) return st;
    return eb_scan_expect(&p->scan, ']', err);
}

/* Number in `dtypes`; -1 where the container knows no such one. */
static int find_dtype(const char *name) {
    for (int i = 0; i < N_DTYPES; i++)
        if (strcmp(dtypes[i].name, name) == 0) return i;
    return -1;
}

/* The place of one tensor: inside the file, and as long as shape times type. */
static int32_t check_place(struct pass *p, const char *name, const struct eb_tensor *t,
                           uint32_t element_bytes, uint64_t begin, uint64_t end, ebro_error *err) {
    if (begin > end)
        return eb_fail(err, EBRO_FORMAT,
                       "%s: tensor \"%s\": data_offsets [%llu, %llu] end before they begin",
                       p->scan.label, name, (unsigned long long)begin, (unsigned long long)end);
    if (end > p->data_bytes)
        return eb_fail(err, EBRO_FORMAT,
                       "%s: truncated: tensor \"%s\" ends at byte %llu of the data, the file holds "
                       "%llu",
                       p->scan.label, name, (unsigned long long)end,
                       (unsigned long long)p->data_bytes);
    uint64_t want = element_bytes;
    for (uint32_t d = 0; d < t->n_dims; d++)
        if (!eb_mul_u64(want, t->shape[d], &want))
            return bad(p, name, "the product of its shape exceeds 2^64", err);
    if (want != end - begin)
        return eb_fail(err, EBRO_FORMAT,
                       "%s: tensor \"%s\": shape and dtype need %llu bytes, data_offsets give %llu",
                       p->scan.label, name, (unsigned long long)want,
                       (unsigned long long)(end - begin));
    /* Each tensor lies inside the data, so a larger sum means that some overlap: no need to read
     * the rest of a header that lists the same bytes again and again. */
    p->sum_bytes += want;
    if (p->sum_bytes > p->data_bytes)
        return bad(p, name, "its data overlaps that of another tensor", err);
    return EBRO_OK;
}

/* The object of one tensor; its name was read. */
static int32_t read_tensor(struct pass *p, const char *name, struct eb_tensor *t, ebro_error *err) {
    bool has_shape = false, has_offsets = false;
    int dtype = -1;
    uint64_t begin = 0, end = 0;
    char key[32], text[32];
    int32_t st = eb_scan_expect(&p->scan, '{', err);
    for (size_t n = 0; st == EBRO_OK; n++) {
        bool more;
        if ((st = eb_scan_next(&p->scan, n, '}', &more, err)) != EBRO_OK) return st;
        if (!more) break;
        if ((st = eb_scan_key(&p->scan, key, sizeof key, err)) != EBRO_OK) return st;
        if (strcmp(key, "dtype") == 0 && dtype < 0) {
            if ((st = eb_scan_string(&p->scan, text, sizeof text, err)) != EBRO_OK) return st;
            dtype = find_dtype(text);
            if (dtype < 0)
                return eb_fail(err, EBRO_UNSUPPORTED,
                               "%s: tensor \"%s\": dtype \"%s\" (known: F32 F16 BF16 U8 I32 I64 "
                               "F64)",
                               p->scan.label, name, text);
        } else if (strcmp(key, "shape") == 0 && !has_shape) {
            has_shape = true;
            st = read_shape(p, name, t, err);
        } else if (strcmp(key, "data_offsets") == 0 && !has_offsets) {
            has_offsets = true;
            st = read_offsets(p, &begin, &end, err);
        } else {
            return eb_fail(err, EBRO_FORMAT,
                           "%s: tensor \"%s\": key \"%s\" is unknown or stands twice",
                           p->scan.label, name, key);
        }
    }
    if (st != EBRO_OK) return st;
    if (dtype < 0) return bad(p, name, "no \"dtype\"", err);
    if (!has_shape) return bad(p, name, "no \"shape\"", err);
    if (!has_offsets) return bad(p, name, "no \"data_offsets\"", err);
    st = check_place(p, name, t, dtypes[dtype].bytes, begin, end, err);
    if (st != EBRO_OK) return st;
    t->dtype = dtypes[dtype].dtype;
    t->bytes = end - begin;
    t->data = p->data + begin;
    t->file = p->file;
    return EBRO_OK;
}

/* "__metadata__": an object of strings; nothing in it is used. */
static int32_t skip_metadata(struct pass *p, ebro_error *err) {
    int32_t st = eb_scan_expect(&p->scan, '{', err);
    for (size_t n = 0; st == EBRO_OK; n++) {
        bool more;
        if ((st = eb_scan_next(&p->scan, n, '}', &more, err)) != EBRO_OK || !more) break;
        for (int part = 0; part < 2 && st == EBRO_OK; part++) {
            bool string = eb_scan_accept(&p->scan, '"');
            if (!string) return eb_scan_fail(&p->scan, "a string in __metadata__", err);
            p->scan.p--;
            st = eb_scan_skip(&p->scan, err);
            if (st == EBRO_OK && part == 0) st = eb_scan_expect(&p->scan, ':', err);
        }
    }
    return st;
}

static int32_t check_name(const struct pass *p, const char *name, ebro_error *err) {
    if (name[0] == 0)
        return eb_fail(err, EBRO_FORMAT, "%s: a tensor without a name", p->scan.label);
    for (const char *c = name; *c != 0; c++)
        if ((uint8_t)*c < 0x20 || *c == 0x7f)
            return eb_fail(err, EBRO_FORMAT, "%s: a tensor name holds the control character 0x%02x",
                           p->scan.label, (uint8_t)*c);
    return EBRO_OK;
}

static int32_t scan_header(struct pass *p, ebro_error *err) {
    bool has_metadata = false;
    int32_t st = eb_scan_expect(&p->scan, '{', err);
    for (size_t n = 0; st == EBRO_OK; n++) {
        char name[MAX_NAME + 1];
        bool more;
        if ((st = eb_scan_next(&p->scan, n, '}', &more, err)) != EBRO_OK) return st;
        if (!more) break;
        if ((st = eb_scan_key(&p->scan, name, sizeof name, err)) != EBRO_OK) return st;
        if (strcmp(name, "__metadata__") == 0) {
            if (has_metadata)
                return eb_fail(err, EBRO_FORMAT, "%s: __metadata__ stands twice", p->scan.label);
            has_metadata = true;
            st = skip_metadata(p, err);
            continue;
        }
        struct eb_tensor t = {0};
        if ((st = check_name(p, name, err)) != EBRO_OK) return st;
        if ((st = read_tensor(p, name, &t, err)) != EBRO_OK) return st;
        size_t bytes = strlen(name) + 1;
        if (p->tensors != NULL) {
            t.name = memcpy(p->names + p->names_bytes, name, bytes);
            p->tensors[p->n_tensors] = t;
        }
        p->n_tensors++;
        p->names_bytes += bytes;
    }
    return st == EBRO_OK ? eb_scan_end(&p->scan, err) : st;
}

static int by_data(const void *a, const void *b) {
    const struct eb_tensor *x = a, *y = b;
    if (x->data != y->data) return x->data < y->data ? -1 : 1;
    return x->bytes < y->bytes ? -1 : x->bytes > y->bytes; /* empty ones first */
}

static int by_name(const void *a, const void *b) {
    const struct eb_tensor *x = a, *y = b;
    return strcmp(x->name, y->name);
}

/* The data must be used up by the tensors, in some order, without overlap or holes: the format says
 * so, and it keeps anything else from hiding in a weight file. */
static int32_t check_cover(const struct pass *p, ebro_error *err) {
    const uint8_t *at = p->data;
    for (size_t i = 0; i < p->n_tensors; i++) {
        const struct eb_tensor *t = &p->tensors[i];
        if (t->data < at) return bad(p, t->name, "its data overlaps that of another tensor", err);
        if (t->data > at)
            return eb_fail(err, EBRO_FORMAT,
                           "%s: %llu bytes before tensor \"%s\" belong to no tensor", p->scan.label,
                           (unsigned long long)(t->data - at), t->name);
        at += t->bytes;
    }
    uint64_t left = p->data_bytes - (uint64_t)(at - p->data);
    if (left > 0)
        return eb_fail(err, EBRO_FORMAT, "%s: the last %llu bytes belong to no tensor",
                       p->scan.label, (unsigned long long)left);
    return EBRO_OK;
}

static int32_t check_duplicates(const struct pass *p, ebro_error *err) {
    for (size_t i = 1; i < p->n_tensors; i++)
        if (strcmp(p->tensors[i - 1].name, p->tensors[i].name) == 0)
            return bad(p, p->tensors[i].name, "the name stands twice", err);
    return EBRO_OK;
}

static int32_t header_length(const char *label, const struct eb_bytes *bytes, uint64_t *out,
                             ebro_error *err) {
    if (bytes->bytes < 8)
        return eb_fail(err, EBRO_FORMAT,
                       "%s: %zu bytes, too short for the 8 that give the length of a safetensors "
                       "header",
                       label, bytes->bytes);
    uint64_t n = 0;
    for (int i = 7; i >= 0; i--) n = n << 8 | bytes->data[i];
    if (n > MAX_HEADER)
        return eb_fail(err, EBRO_FORMAT,
                       "%s: header length %llu is above %d: not a safetensors file", label,
                       (unsigned long long)n, MAX_HEADER);
    if (n > bytes->bytes - 8)
        return eb_fail(err, EBRO_FORMAT,
                       "%s: truncated: the header has %llu bytes, the file %zu after its length",
                       label, (unsigned long long)n, bytes->bytes - 8);
    *out = n;
    return EBRO_OK;
}

int32_t eb_safetensors_read(const struct eb_alloc *a, const char *label,
                            const struct eb_bytes *bytes, uint32_t file, struct eb_safetensors *out,
                            ebro_error *err) {
    uint64_t n_header = 0;
    out->tensors = NULL;
    out->n_tensors = 0;
    int32_t st = header_length(label, bytes, &n_header, err);
    if (st != EBRO_OK) return st;

    const uint8_t *header = bytes->data + 8;
    struct pass p = {.scan = {label, header, header, header + n_header},
                     .data = header + n_header,
                     .data_bytes = bytes->bytes - 8 - n_header,
                     .file = file};
    if ((st = scan_header(&p, err)) != EBRO_OK) return st;

    uint64_t need;
    if (!eb_mul_u64(p.n_tensors, sizeof *p.tensors, &need) ||
        !eb_add_u64(need, p.names_bytes, &need) || need > SIZE_MAX)
        return eb_fail(err, EBRO_NOMEM_HOST, "%s: header too large", label);
    p.tensors = eb_calloc(a, 1, (size_t)need, err);
    if (p.tensors == NULL) return EBRO_NOMEM_HOST;
    p.names = (char *)(p.tensors + p.n_tensors);
    p.n_tensors = p.names_bytes = 0;
    p.sum_bytes = 0;
    p.scan.p = p.scan.begin;
    if ((st = scan_header(&p, err)) != EBRO_OK) goto out;
    qsort(p.tensors, p.n_tensors, sizeof *p.tensors, by_data);
    if ((st = check_cover(&p, err)) != EBRO_OK) goto out;
    qsort(p.tensors, p.n_tensors, sizeof *p.tensors, by_name);
    if ((st = check_duplicates(&p, err)) != EBRO_OK) goto out;
    out->tensors = p.tensors;
    out->n_tensors = p.n_tensors;
    p.tensors = NULL;
out:
    eb_free(a, p.tensors);
    return st;
}

void eb_safetensors_close(const struct eb_alloc *a, struct eb_safetensors *st) {
    eb_free(a, st->tensors);
    st->tensors = NULL;
    st->n_tensors = 0;
}

const struct eb_tensor *eb_safetensors_find(const struct eb_safetensors *st, const char *name) {
    struct eb_tensor key = {.name = name};
    if (st->n_tensors == 0) return NULL;
    return bsearch(&key, st->tensors, st->n_tensors, sizeof *st->tensors, by_name);
}
