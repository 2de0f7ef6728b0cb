/* golden.c: see golden.h. */
#include "modelcheck/golden.h"

#include <string.h>

#include "ebro/ebro.h"

static const char magic[] = "EBGOLD1\n";
/* Far above what any prompt of the file has, and far below where a product overflows. */
enum { MAX_IDS = 1 << 16, MAX_ROWS = 64, MAX_VOCAB = 1 << 18, MAX_LAYERS = 256, MAX_TOP_K = 4 };

struct reader {
    struct eb_golden *g;
    const uint8_t *at, *end;
    ebro_error *err;
    bool short_of_bytes, no_memory;
};

static const uint8_t *take(struct reader *in, size_t n) {
    static const uint8_t zeros[8];
    if ((size_t)(in->end - in->at) < n) {
        in->short_of_bytes = true;
        return zeros;
    }
    in->at += n;
    return in->at - n;
}

static uint32_t u16(struct reader *in) {
    const uint8_t *p = take(in, 2);
    return p[0] | (uint32_t)p[1] << 8;
}

static uint32_t u32(struct reader *in) {
    uint32_t low = u16(in);
    return low | u16(in) << 16;
}

static float f32(struct reader *in) {
    uint32_t bits = u32(in);
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static void name(struct reader *in, char *out) {
    if ((size_t)(in->end - in->at) < EB_GOLDEN_NAME)
        in->short_of_bytes = true;
    else
        memcpy(out, take(in, EB_GOLDEN_NAME), EB_GOLDEN_NAME);
}

static void *room(struct reader *in, size_t n, size_t size) {
    void *p = eb_calloc(in->g->alloc, n, size, in->err);
    in->no_memory = in->no_memory || p == NULL;
    return p;
}

static int32_t *ids(struct reader *in, uint32_t n) {
    int32_t *p = room(in, n, sizeof *p);
    for (uint32_t i = 0; p != NULL && i < n; i++) p[i] = (int32_t)u16(in);
    return p;
}

static void read_logits(struct reader *in, struct eb_golden_prompt *p) {
    uint32_t columns = eb_golden_columns(in->g);
    if (p->n_rows == 0 || (p->logits = room(in, (size_t)p->n_rows * columns, 8)) == NULL) return;
    for (uint32_t r = 0; r < p->n_rows; r++) {
        double first = (double)f32(in), step = (double)f32(in);
        double *row = p->logits + (size_t)r * columns;
        for (uint32_t i = 0; i < columns; i++) row[i] = first + step * u16(in);
    }
}

static void read_experts(struct reader *in, struct eb_golden_prompt *p) {
    const struct eb_golden *g = in->g;
    size_t n = (size_t)g->n_layers * p->n_ids;
    if ((p->experts = room(in, n * g->top_k, sizeof *p->experts)) == NULL) return;
    for (size_t i = 0; i < n; i++) {
        uint32_t four = u16(in);
        for (uint32_t k = 0; k < g->top_k; k++)
            p->experts[i * g->top_k + k] = (int32_t)(four >> (4 * k) & 15);
    }
}

static bool read_prompt(struct reader *in, struct eb_golden_prompt *p) {
    name(in, p->name);
    name(in, p->answer);
    p->n_ids = u32(in);
    p->n_rows = u32(in);
    p->n_next = u32(in);
    p->shift = u32(in);
    bool has_experts = u32(in) != 0;
    if (in->short_of_bytes || p->n_ids > MAX_IDS || p->n_rows > MAX_ROWS || p->n_next > MAX_IDS)
        return false;
    if (p->n_ids == 0 || p->n_next == 0 || p->n_rows > p->n_ids) return false;
    p->shift %= in->g->stride;
    p->ids = ids(in, p->n_ids);
    p->best = ids(in, p->n_next);
    p->second = ids(in, p->n_next);
    p->margin = room(in, p->n_next, sizeof *p->margin);
    for (uint32_t i = 0; p->margin != NULL && i < p->n_next; i++) p->margin[i] = f32(in);
    read_logits(in, p);
    if (has_experts) read_experts(in, p);
    return !in->short_of_bytes && !in->no_memory;
}

int32_t eb_golden_read(struct eb_golden *g, const struct eb_alloc *alloc, const void *data,
                       size_t bytes, ebro_error *err) {
    struct reader in = {.g = g, .at = data, .end = (const uint8_t *)data + bytes, .err = err};
    *g = (struct eb_golden){.alloc = alloc};
    bool good = memcmp(take(&in, 8), magic, 8) == 0;
    uint32_t n = u32(&in);
    g->vocab = u32(&in);
    g->stride = u32(&in);
    g->n_layers = u32(&in);
    g->top_k = u32(&in);
    good = good && n <= EB_GOLDEN_MAX_PROMPTS && g->vocab <= MAX_VOCAB && g->stride > 0 &&
           g->vocab % g->stride == 0 && g->n_layers <= MAX_LAYERS && g->top_k <= MAX_TOP_K;
    while (good && g->n_prompts < n) good = read_prompt(&in, &g->prompts[g->n_prompts++]);
    if (in.no_memory) return EBRO_NOMEM_HOST;
    if (good && in.at == in.end) return EBRO_OK;
    return eb_fail(err, EBRO_FORMAT, "the golden results are damaged: %s",
                   in.short_of_bytes ? "they end early" : "a number in them is out of range");
}

void eb_golden_free(struct eb_golden *g) {
    for (uint32_t i = 0; i < g->n_prompts; i++) {
        struct eb_golden_prompt *p = &g->prompts[i];
        void *const all[] = {p->ids, p->best, p->second, p->margin, p->logits, p->experts};
        for (size_t k = 0; k < sizeof all / sizeof all[0]; k++) eb_free(g->alloc, all[k]);
    }
    g->n_prompts = 0;
}
