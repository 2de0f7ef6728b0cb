/* ladder.h: which variant of each kernel a device gets, for backends whose kernels are listed in a
 * kernels.def: the last one whose needs it meets and that is not to be avoided. Included by one
 * file of such a backend. Not its job: what a variant is made of. */
#ifndef EB_BACKENDS_LADDER_H
#define EB_BACKENDS_LADDER_H

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "ebro/backend.h"
#include "runtime/base/names.h"

/* One VARIANT line. Lines of a kernel go from plain to fast. */
struct eb_rung {
    int kernel;
    const char *variant;
    uint64_t needs; /* EBRO_CAP_* */
};

struct eb_ladder {
    const char *backend;        /* for errors */
    const char *const *kernels; /* their names, by number */
    int n_kernels;
    const struct eb_rung *rungs;
    int n_rungs;
};

enum { EB_RUNG_NAME_BYTES = 64 };

/* ---- whose kernels are whose ------------------------------------------------------------ */

/* By the beginnings of their names. */
static const struct {
    ebro_op op;
    const char *prefix;
} eb_op_kernels[] = {{EBRO_OP_EMBED, "embed"},
                     {EBRO_OP_SAMPLE, "sample_"},
                     {EBRO_OP_RMS_NORM, "norm"},
                     {EBRO_OP_LINEAR, "linear_"},
                     {EBRO_OP_ACT_MUL, "act"},
                     {EBRO_OP_KDA_CONV, "kda_conv"},
                     {EBRO_OP_KDA_CONV, "kda_windows"},
                     {EBRO_OP_KDA_PREP, "kda_plan"},
                     {EBRO_OP_KDA_PREP, "kda_prep"},
                     {EBRO_OP_KDA_RECUR, "kda_recur"},
                     {EBRO_OP_KDA_STEP, "kda_step"},
                     {EBRO_OP_MLA_APPEND, "mla_append"},
                     {EBRO_OP_MLA_APPEND, "mla_rotate"},
                     {EBRO_OP_MLA_PREFILL, "mla_expand"},
                     {EBRO_OP_MLA_PREFILL, "mla_attend"},
                     {EBRO_OP_MLA_DECODE, "mla_decode"},
                     {EBRO_OP_MLA_DECODE, "mla_merge"},
                     {EBRO_OP_MOE_ROUTE, "route_"},
                     {EBRO_OP_MOE_ROUTE, "linear_"},
                     {EBRO_OP_MOE_EXPERTS, "moe_"},
                     {EBRO_OP_ATTN_RES_MIX, "res_mix"},
                     {EBRO_OP_STATE_COPY, "copy"},
                     {EBRO_OP_ROWS_COPY, "copy"}};

static bool eb_is_kernel_of(const struct eb_ladder *l, ebro_op op, int kernel) {
    for (size_t i = 0; i < sizeof eb_op_kernels / sizeof eb_op_kernels[0]; i++) {
        size_t n = strlen(eb_op_kernels[i].prefix);
        if (eb_op_kernels[i].op == op &&
            strncmp(l->kernels[kernel], eb_op_kernels[i].prefix, n) == 0)
            return true;
    }
    return false;
}

static const char *eb_name_of_kernels_op(const struct eb_ladder *l, int kernel) {
#define EB_OP_NAME(N, name) [EBRO_OP_##N] = #name,
    static const char *const names[] = {EBRO_OPS(EB_OP_NAME)};
#undef EB_OP_NAME
    for (int op = 0; op < EBRO_N_OPS; op++)
        if (eb_is_kernel_of(l, (ebro_op)op, kernel)) return names[op];
    return "copies";
}

static bool eb_has_choice(const struct eb_ladder *l, int kernel) {
    int n = 0;
    for (int i = 0; i < l->n_rungs; i++) n += l->rungs[i].kernel == kernel;
    return n > 1;
}

/* ---- names ------------------------------------------------------------------------------ */

/* "kernel:variant", as op_variant names it. Returns its bytes. */
static size_t eb_name_rung(const struct eb_ladder *l, int rung, char name[EB_RUNG_NAME_BYTES]) {
    return (size_t)snprintf(name, EB_RUNG_NAME_BYTES, "%s:%s", l->kernels[l->rungs[rung].kernel],
                            l->rungs[rung].variant);
}

/* The variants of a kernel, or (-1) of all that have several. */
static void eb_list_rungs(const struct eb_ladder *l, int kernel, char *text, size_t bytes) {
    char name[EB_RUNG_NAME_BYTES];
    size_t n = 0;
    text[0] = '\0';
    for (int i = 0; i < l->n_rungs && n < bytes; i++) {
        int own = l->rungs[i].kernel;
        if (kernel >= 0 ? own != kernel : !eb_has_choice(l, own)) continue;
        (void)eb_name_rung(l, i, name);
        n += (size_t)snprintf(text + n, bytes - n, " %s", name);
    }
}

/* INVALID for a name that is no rung's. */
static int32_t eb_check_avoided(const struct eb_ladder *l, const ebro_host *host, const char *avoid,
                                ebro_error *err) {
    size_t bytes;
    for (const char *name; (name = eb_next_name(&avoid, &bytes)) != NULL;) {
        char known[900], rung[EB_RUNG_NAME_BYTES];
        bool found = false;
        for (int i = 0; i < l->n_rungs && !found; i++)
            found = eb_name_rung(l, i, rung) == bytes && memcmp(rung, name, bytes) == 0;
        if (found) continue;
        eb_list_rungs(l, -1, known, sizeof known);
        return host->fail(err, EBRO_INVALID,
                          "%s: there is no variant \"%.*s\" to avoid; there are:%s", l->backend,
                          (int)bytes, name, known);
    }
    return EBRO_OK;
}

/* ---- the ladder ------------------------------------------------------------------------- */

static int32_t eb_no_rung(const struct eb_ladder *l, const ebro_host *host, int kernel,
                          ebro_error *err) {
    char known[512];
    eb_list_rungs(l, kernel, known, sizeof known);
    return host->fail(
        err, EBRO_UNSUPPORTED,
        "%s: kernel %s, of %s, has no variant left that this device can run and that is "
        "not to be avoided; there are:%s",
        l->backend, l->kernels[kernel], eb_name_of_kernels_op(l, kernel), known);
}

/* Fills chosen, a rung for each kernel. A kernel without one is UNSUPPORTED, naming it and its op,
 * an unknown name in `avoid` (ebro_device_options) INVALID. Says once in the log what was chosen.
 */
static int32_t eb_choose_rungs(const struct eb_ladder *l, const ebro_host *host, uint64_t caps,
                               const char *avoid, int *chosen, ebro_error *err) {
    int n_fast = 0;
    int32_t st = eb_check_avoided(l, host, avoid, err);
    if (st != EBRO_OK) return st;
    for (int k = 0; k < l->n_kernels; k++) chosen[k] = -1;
    for (int i = 0; i < l->n_rungs; i++) {
        char name[EB_RUNG_NAME_BYTES];
        size_t n = eb_name_rung(l, i, name);
        bool fits = (caps & l->rungs[i].needs) == l->rungs[i].needs;
        if (fits && !eb_has_name(avoid, name, n)) chosen[l->rungs[i].kernel] = i;
    }
    for (int k = 0; k < l->n_kernels; k++) {
        if (chosen[k] < 0) return eb_no_rung(l, host, k, err);
        n_fast += l->rungs[chosen[k]].needs != 0;
        host->log(host->user, EBRO_LOG_DEBUG, "%s: kernel %s: variant %s", l->backend,
                  l->kernels[k], l->rungs[chosen[k]].variant);
    }
    host->log(host->user, EBRO_LOG_INFO, "%s: %d of %d kernels in a faster variant than plain",
              l->backend, n_fast, l->n_kernels);
    return EBRO_OK;
}

/* As ebro_backend.op_variant: what was chosen for the kernels of an op, those with one variant
 * alone left out, which are "plain". */
static void eb_name_variants(const struct eb_ladder *l, const int *chosen, ebro_op op, char *text,
                             size_t bytes) {
    size_t n = 0;
    snprintf(text, bytes, "plain");
    for (int k = 0; k < l->n_kernels && n < bytes; k++) {
        if (!eb_is_kernel_of(l, op, k) || !eb_has_choice(l, k)) continue;
        n += (size_t)snprintf(text + n, bytes - n, "%s%s:%s", n > 0 ? " " : "", l->kernels[k],
                              l->rungs[chosen[k]].variant);
    }
}

#endif
