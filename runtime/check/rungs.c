/* rungs.c: every rung of a device, by taking capabilities away, each once. */
#include <stdio.h>
#include <string.h>

#include "check/run.h"

/* What a backend chooses code by, as far as this build knows it. */
static const struct {
    uint64_t bit;
    const char *name;
} choices[] = {{EBRO_CAP_F16, "f16"},
               {EBRO_CAP_BF16, "bf16"},
               {EBRO_CAP_DOT8, "dot8"},
               {EBRO_CAP_SUBGROUP, "subgroup"},
               {EBRO_CAP_MATRIX, "matrix"},
               {EBRO_CAP_AVX2, "avx2"},
               {EBRO_CAP_AVX512, "avx512"},
               {EBRO_CAP_AVX512BF16, "avx512bf16"},
               {EBRO_CAP_AVX512VNNI, "avx512vnni"}};
enum { N_CHOICES = sizeof choices / sizeof choices[0], MAX_RUNGS = N_CHOICES + 2 };

struct walk {
    ebro_runtime *rt;
    const char *device;
    ebro_device_options settings;
    struct eb_opcheck_run run;
    /* What was checked already. */
    char seen[MAX_RUNGS][EBRO_N_OPS][EB_VARIANT_BYTES];
    uint32_t n_seen;
};

void eb_opcheck_variants(struct ebro_device *d, char variants[EBRO_N_OPS][EB_VARIANT_BYTES]) {
    for (int op = 0; op < EBRO_N_OPS; op++) {
        variants[op][0] = '\0';
        if (d->be->op_variant != NULL)
            d->be->op_variant(d->dev, (ebro_op)op, variants[op], EB_VARIANT_BYTES);
        variants[op][EB_VARIANT_BYTES - 1] = '\0';
    }
}

/* Leaves out ops whose code was checked on an earlier rung. True: something is left. */
static bool choose_ops(struct walk *w) {
    bool any = false;
    for (int op = 0; op < EBRO_N_OPS; op++) {
        w->run.skip[op] = false;
        for (uint32_t i = 0; i < w->n_seen; i++)
            if (strcmp(w->seen[i][op], w->run.variants[op]) == 0) w->run.skip[op] = true;
        any = any || !w->run.skip[op];
    }
    return any;
}

static void name_rung(uint64_t mask, char *out, size_t bytes) {
    size_t n = (size_t)snprintf(out, bytes, mask == 0 ? "best" : "without");
    for (size_t i = 0, k = 0; i < N_CHOICES && n < bytes; i++) {
        if ((mask & choices[i].bit) == 0) continue;
        n += (size_t)snprintf(out + n, bytes - n, "%s %s", k++ > 0 ? "," : "", choices[i].name);
    }
}

/* Opens the device without `mask`; *bits: what it reports then. */
static int32_t run_rung(struct walk *w, uint64_t mask, uint64_t *bits, ebro_error *err) {
    char rung[128];
    ebro_device_options options = w->settings;
    struct ebro_device *d = NULL;
    options.caps_mask |= mask;
    int32_t st = eb_device_open(w->rt, w->device, &options, &d, err);
    /* That a backend cannot do without a capability is for it to say, and no fault. */
    if (st == EBRO_UNSUPPORTED && mask != 0) return EBRO_OK;
    if (st != EBRO_OK) return st;
    *bits = d->caps.bits;
    name_rung(mask, rung, sizeof rung);
    w->run.rung = rung;
    eb_opcheck_variants(d, w->run.variants);
    if (choose_ops(w)) {
        const struct eb_opcheck_options *o = w->run.options;
        if (o->rung != NULL) o->rung(o->user, rung, mask, &d->caps);
        st = eb_opcheck_cases(&w->run, d, err);
        memcpy(w->seen[w->n_seen++], w->run.variants, sizeof w->run.variants);
    }
    ebro_device_close(&d);
    return st;
}

int32_t eb_opcheck_rungs(ebro_runtime *rt, const char *device, const ebro_device_options *settings,
                         const struct eb_opcheck_options *o, struct eb_opcheck_tally *tally,
                         ebro_error *err) {
    struct walk *w = eb_calloc(&rt->alloc, 1, sizeof *w, err);
    if (w == NULL) return EBRO_NOMEM_HOST;
    w->rt = rt;
    w->device = device;
    w->settings = (ebro_device_options){.size = sizeof w->settings};
    if (settings != NULL) w->settings = *settings;
    w->run.options = o;
    w->run.tally = tally;
    uint64_t bits = 0, unused, all = 0;
    int32_t st = run_rung(w, 0, &bits, err);
    for (size_t i = 0; i < N_CHOICES; i++) all |= bits & choices[i].bit;
    for (size_t i = 0; i < N_CHOICES && st == EBRO_OK; i++)
        if ((bits & choices[i].bit) != 0) st = run_rung(w, choices[i].bit, &unused, err);
    if (st == EBRO_OK && all != 0) st = run_rung(w, all, &unused, err);
    eb_free(&rt->alloc, w);
    return st;
}
