/* shards.c: weight files and the index that lists them. Not its job: the container (safetensors.c),
 * and which tensors a model needs (bind.c). */
#include "model/shards.h"

#include <string.h>

#include "model/scan.h"

enum {
    MAX_SHARDS = 4096,
    MAX_NAME = 512 /* of a tensor or a shard */
};

static const char single_name[] = "model.safetensors";
static const char index_name[] = "model.safetensors.index.json";

/* The number of the first file whose name is not below `name`; files are in rising order of name.
 */
static uint32_t lower_bound(const struct ebro_model *m, const char *name) {
    uint32_t lo = 0, hi = m->n_files;
    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        if (strcmp(m->files[mid].name, name) < 0) {
            lo = mid + 1;
        } else {
            hi = mid;
        }
    }
    return lo;
}

static bool is_file(const struct ebro_model *m, uint32_t i, const char *name) {
    return i < m->n_files && strcmp(m->files[i].name, name) == 0;
}

/* Adds a file, not yet open, in its place; one that is there already is left alone. */
static int32_t add_file(struct ebro_model *m, size_t *capacity, const char *name, ebro_error *err) {
    uint32_t at = lower_bound(m, name);
    if (is_file(m, at, name)) return EBRO_OK;
    if (m->n_files == MAX_SHARDS)
        return eb_fail(err, EBRO_UNSUPPORTED, "more than %d weight files", MAX_SHARDS);
    void *files = m->files;
    int32_t st =
        eb_grow(&m->alloc, &files, capacity, (size_t)m->n_files + 1, sizeof *m->files, err);
    m->files = files;
    if (st != EBRO_OK) return st;
    struct eb_model_file f = {.name = eb_strndup(&m->alloc, name, strlen(name), err)};
    if (f.name == NULL) return EBRO_NOMEM_HOST;
    memmove(m->files + at + 1, m->files + at, (m->n_files - at) * sizeof *m->files);
    m->files[at] = f;
    m->n_files++;
    return EBRO_OK;
}

/* What to do with one entry of weight_map. */
typedef int32_t (*entry_fn)(void *user, const char *tensor, const char *shard, ebro_error *err);

static int32_t scan_weight_map(struct eb_scan *s, entry_fn entry, void *user, ebro_error *err) {
    int32_t st = eb_scan_expect(s, '{', err);
    for (size_t n = 0; st == EBRO_OK; n++) {
        char tensor[MAX_NAME + 1], shard[MAX_NAME + 1];
        bool more;
        if ((st = eb_scan_next(s, n, '}', &more, err)) != EBRO_OK || !more) break;
        if ((st = eb_scan_key(s, tensor, sizeof tensor, err)) != EBRO_OK) break;
        if ((st = eb_scan_string(s, shard, sizeof shard, err)) != EBRO_OK) break;
        st = entry(user, tensor, shard, err);
    }
    return st;
}

static int32_t scan_index(const struct eb_bytes *text, entry_fn entry, void *user,
                          ebro_error *err) {
    struct eb_scan s = {index_name, text->data, text->data, text->data + text->bytes};
    bool has_map = false;
    int32_t st = eb_scan_expect(&s, '{', err);
    for (size_t n = 0; st == EBRO_OK; n++) {
        char key[MAX_NAME + 1];
        bool more;
        if ((st = eb_scan_next(&s, n, '}', &more, err)) != EBRO_OK) return st;
        if (!more) break;
        if ((st = eb_scan_key(&s, key, sizeof key, err)) != EBRO_OK) return st;
        if (strcmp(key, "weight_map") != 0) {
            st = eb_scan_skip(&s, err);
        } else if (has_map) {
            return eb_fail(err, EBRO_FORMAT, "%s: key \"weight_map\" stands twice", index_name);
        } else {
            has_map = true;
            st = scan_weight_map(&s, entry, user, err);
        }
    }
    if (st != EBRO_OK) return st;
    if (!has_map) return eb_fail(err, EBRO_FORMAT, "%s: no key \"weight_map\"", index_name);
    return eb_scan_end(&s, err);
}

struct collect {
    struct ebro_model *m;
    size_t capacity;
};

static int32_t collect_shard(void *user, const char *tensor, const char *shard, ebro_error *err) {
    struct collect *c = user;
    (void)tensor;
    return add_file(c->m, &c->capacity, shard, err);
}

static int32_t open_files(const struct eb_source *source, struct ebro_model *m,
                          const struct eb_progress *progress, ebro_error *err) {
    uint64_t n_tensors = 0;
    for (uint32_t f = 0; f < m->n_files; f++) {
        struct eb_model_file *file = &m->files[f];
        int32_t st =
            eb_progress_tell(progress, "reading tensor lists", 0.1 + 0.6 * f / m->n_files, err);
        if (st != EBRO_OK) return st;
        st = eb_source_open(source, file->name, &file->bytes, err);
        if (st != EBRO_OK) return st;
        st = eb_safetensors_read(&m->alloc, file->name, &file->bytes, f, &file->st, err);
        if (st != EBRO_OK) return st;
        n_tensors += file->st.n_tensors;
        if (n_tensors > UINT32_MAX)
            return eb_fail(err, EBRO_UNSUPPORTED, "more than %u tensors", UINT32_MAX);
    }
    for (uint32_t f = 0; f < m->n_files; f++)
        for (size_t i = 0; i < m->files[f].st.n_tensors; i++)
            m->files[f].st.tensors[i].index = m->n_tensors++;
    return EBRO_OK;
}

struct verify {
    const struct ebro_model *m;
    uint8_t *listed; /* by tensor index */
};

static int32_t verify_entry(void *user, const char *tensor, const char *shard, ebro_error *err) {
    const struct verify *v = user;
    uint32_t f = lower_bound(v->m, shard);
    const struct eb_tensor *t =
        is_file(v->m, f, shard) ? eb_safetensors_find(&v->m->files[f].st, tensor) : NULL;
    if (t == NULL)
        return eb_fail(err, EBRO_FORMAT, "%s: tensor \"%s\" is not in %s, where the index puts it",
                       index_name, tensor, shard);
    if (v->listed[t->index])
        return eb_fail(err, EBRO_FORMAT, "%s: tensor \"%s\" is listed twice", index_name, tensor);
    v->listed[t->index] = 1;
    return EBRO_OK;
}

static int32_t verify_index(const struct eb_bytes *index, struct ebro_model *m, ebro_error *err) {
    struct verify v = {m, eb_calloc(&m->alloc, m->n_tensors, 1, err)};
    if (v.listed == NULL) return EBRO_NOMEM_HOST;
    int32_t st = scan_index(index, verify_entry, &v, err);
    eb_free(&m->alloc, v.listed);
    return st;
}

static int32_t open_sharded(const struct eb_source *source, struct ebro_model *m,
                            const struct eb_progress *progress, ebro_error *err) {
    struct collect c = {m, 0};
    struct eb_bytes index;
    int32_t st = eb_source_open(source, index_name, &index, err);
    if (st != EBRO_OK) return st;
    if ((st = scan_index(&index, collect_shard, &c, err)) == EBRO_OK &&
        (st = open_files(source, m, progress, err)) == EBRO_OK)
        st = verify_index(&index, m, err);
    return eb_source_close(index_name, &index, st, err);
}

int32_t eb_shards_open(const struct eb_source *source, struct ebro_model *m,
                       const struct eb_progress *progress, ebro_error *err) {
    bool single, sharded;
    int32_t st;
    if ((st = eb_source_has(source, single_name, &single, err)) != EBRO_OK) return st;
    if (single) {
        size_t capacity = 0;
        st = add_file(m, &capacity, single_name, err);
        return st == EBRO_OK ? open_files(source, m, progress, err) : st;
    }
    if ((st = eb_source_has(source, index_name, &sharded, err)) != EBRO_OK) return st;
    if (sharded) return open_sharded(source, m, progress, err);
    return eb_fail(err, EBRO_INVALID, "no weights: neither %s nor %s", single_name, index_name);
}

int32_t eb_shards_check(const struct ebro_model *m, ebro_error *err) {
    for (uint32_t f = 0; f < m->n_files; f++) {
        int32_t st = eb_bytes_check(&m->files[f].bytes, m->files[f].name, err);
        if (st != EBRO_OK) return st;
    }
    return EBRO_OK;
}

void eb_shards_close(struct ebro_model *m) {
    for (uint32_t f = 0; f < m->n_files; f++) {
        eb_safetensors_close(&m->alloc, &m->files[f].st);
        eb_bytes_close(&m->files[f].bytes);
        eb_free(&m->alloc, m->files[f].name);
    }
    eb_free(&m->alloc, m->files);
    m->files = NULL;
    m->n_files = 0;
}
