/* modelcheck.c: the model, its golden results, and one device after the other. */
#include "modelcheck/modelcheck.h"

#include "device/runtime.h"
#include "modelcheck/bench.h"

/* Golden results of another model would judge this one wrong. */
static int32_t match(struct eb_modelcheck *c, ebro_error *err) {
    const struct eb_golden *g = &c->golden;
    uint32_t n = 0;
    for (uint32_t i = 0; i < c->info.n_layers; i++) {
        ebro_layer_info layer = {.size = sizeof layer};
        int32_t st = ebro_model_get_layer(c->model, i, &layer, err);
        if (st != EBRO_OK) return st;
        if (!layer.is_moe) continue;
        if (n < sizeof c->layers / sizeof c->layers[0]) c->layers[n] = i;
        n++;
    }
    if (c->info.vocab == g->vocab && n == g->n_layers) return EBRO_OK;
    return eb_fail(err, EBRO_FORMAT,
                   "the golden results are of another model: a vocabulary of %u and %u MoE layers, "
                   "not %u and %u",
                   g->vocab, g->n_layers, c->info.vocab, n);
}

int32_t eb_modelcheck_open(ebro_runtime *rt, const struct eb_modelcheck_options *o,
                           struct eb_modelcheck **out, ebro_error *err) {
    const ebro_model_options model = {
        .size = sizeof model, .files = o->files, .n_files = o->n_files};
    struct eb_modelcheck *c = eb_calloc(&rt->alloc, 1, sizeof *c, err);
    *out = NULL;
    if (c == NULL) return EBRO_NOMEM_HOST;
    c->rt = rt;
    c->options = *o;
    int32_t st = eb_golden_read(&c->golden, &rt->alloc, o->golden, o->golden_bytes, err);
    if (st == EBRO_OK) st = ebro_model_open(rt, &model, &c->model, err);
    if (st == EBRO_OK) {
        ebro_model_get_info(c->model, &c->info);
        st = match(c, err);
    }
    *out = c;
    if (st != EBRO_OK) eb_modelcheck_close(out);
    return st;
}

void eb_modelcheck_close(struct eb_modelcheck **check) {
    struct eb_modelcheck *c = *check;
    if (c == NULL) return;
    for (uint32_t i = 0; i < EB_MODELCHECK_MAX_DEVICES; i++)
        eb_model_bench_close(c, &c->benches[i]);
    ebro_model_close(&c->model);
    eb_golden_free(&c->golden);
    eb_free(&c->rt->alloc, c);
    *check = NULL;
}

int32_t eb_modelcheck_device(struct eb_modelcheck *c, uint32_t device,
                             const struct eb_modelcheck_rung *rung, ebro_error *err) {
    struct eb_model_bench *b = &c->benches[device];
    *b = (struct eb_model_bench){
        .check = c, .number = device, .rung = rung->name, .full = c->options.full};
    int32_t st = eb_model_bench_open(b, rung, err);
    if (st == EBRO_OK) st = eb_model_check_prompts(b, true, err);
    b->rung = "best";
    if (st != EBRO_OK) eb_model_bench_close(c, b);
    return st;
}

int32_t eb_modelcheck_rung(struct eb_modelcheck *c, uint32_t device,
                           const struct eb_modelcheck_rung *rung, ebro_error *err) {
    struct eb_model_bench b = {.check = c, .number = device, .rung = rung->name};
    int32_t st = eb_model_bench_open(&b, rung, err);
    if (st == EBRO_OK) st = eb_model_check_prompts(&b, false, err);
    eb_model_bench_close(c, &b);
    return st;
}
