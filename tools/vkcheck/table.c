/* table.c: see table.h. Lines are those of backends/vulkan/statistics.h; each driver has names of
 * its own for what it tells. */
#include "table.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "ebro/backend.h"

/* ---- reading ---------------------------------------------------------------------------- */

/* The figure of the first of these names (separated by '|') that the line has, else EB_UNTOLD. */
static int64_t figure(const char *line, const char *names) {
    for (const char *name = names; *name != '\0'; name += strcspn(name, "|")) {
        if (*name == '|') name++;
        char key[64];
        int n = snprintf(key, sizeof key, " %.*s=", (int)strcspn(name, "|"), name);
        const char *at = n > 0 ? strstr(line, key) : NULL;
        if (at != NULL) return strtoll(at + n, NULL, 10);
    }
    return EB_UNTOLD;
}

static bool same(const struct eb_pipeline_row *a, const struct eb_pipeline_row *b) {
    return strcmp(a->kernel, b->kernel) == 0 && strcmp(a->variant, b->variant) == 0 &&
           strcmp(a->specs, b->specs) == 0 && a->threads == b->threads;
}

void eb_table_add(struct eb_table *t, const char *line, const char *what) {
    static const char head[] = "vulkan: pipeline ";
    struct eb_pipeline_row r = {.threads = 0};
    char threads[10];
    if (strncmp(line, head, sizeof head - 1) != 0) return;
    if (t->n_rows == EB_MAX_PIPELINES ||
        sscanf(line + sizeof head - 1, "%31s %23s threads=%9[0-9] specs=%95[^:]:", r.kernel,
               r.variant, threads, r.specs) != 4) {
        t->n_lost++;
        return;
    }
    r.threads = (uint32_t)strtoul(threads, NULL, 10);
    snprintf(r.what, sizeof r.what, "%s", what);
    r.subgroup = figure(line, "Subgroup size");
    r.registers = figure(line, "VGPRs|Number of GPRs|Register Count|GRF registers");
    r.scalar_registers = figure(line, "SGPRs");
    r.spills = figure(line, "Spilled VGPRs|Spills to memory|Spill count");
    r.scalar_spills = figure(line, "Spilled SGPRs");
    r.scratch_bytes = figure(line, "Scratch size|SLM size|Local Memory Size");
    r.shared_bytes = figure(line, "LDS size|Shared memory|Shared Memory Size");
    r.occupancy = figure(line, "Subgroups per SIMD|Max warps/SM");
    r.instructions = figure(line, "Instructions|Instruction count|Instruction Count");
    r.matrix = figure(line, "Matrix instructions");
    for (uint32_t i = 0; i < t->n_rows; i++)
        if (same(&t->rows[i], &r)) return;
    t->rows[t->n_rows++] = r;
}

/* ---- writing ---------------------------------------------------------------------------- */

static int by_kernel(const void *a, const void *b) {
    const struct eb_pipeline_row *x = a, *y = b;
    int c = strcmp(x->kernel, y->kernel);
    if (c == 0) c = strcmp(x->variant, y->variant);
    if (c == 0) c = (x->threads > y->threads) - (x->threads < y->threads);
    return c != 0 ? c : strcmp(x->specs, y->specs);
}

static void cell(FILE *to, int width, int64_t figure_) {
    if (figure_ == EB_UNTOLD) {
        fprintf(to, " %*s", width, "-");
    } else {
        fprintf(to, " %*" PRId64, width, figure_);
    }
}

void eb_table_print(struct eb_table *t, FILE *to) {
    qsort(t->rows, t->n_rows, sizeof t->rows[0], by_kernel);
    fprintf(to, "%-16s %-9s %7s %4s %5s %5s %6s %6s %8s %7s %4s %6s %6s  %-28s %s\n", "kernel",
            "variant", "threads", "wave", "regs", "sregs", "spills", "sspill", "scratch", "shared",
            "occ", "instr", "matrix", "constants", "first made for");
    for (uint32_t i = 0; i < t->n_rows; i++) {
        const struct eb_pipeline_row *r = &t->rows[i];
        fprintf(to, "%-16s %-9s %7" PRIu32, r->kernel, r->variant, r->threads);
        cell(to, 4, r->subgroup);
        cell(to, 5, r->registers);
        cell(to, 5, r->scalar_registers);
        cell(to, 6, r->spills);
        cell(to, 6, r->scalar_spills);
        cell(to, 8, r->scratch_bytes);
        cell(to, 7, r->shared_bytes);
        cell(to, 4, r->occupancy);
        cell(to, 6, r->instructions);
        cell(to, 6, r->matrix);
        fprintf(to, "  %-28s %s\n", r->specs, r->what);
    }
}

/* What needs nothing is a kernel's first variant. */
static const struct {
    const char *kernel, *variant;
    uint64_t needs;
} variants[] = {
#define KERNEL(name, args, place)
#define VARIANT(kernel, variant, source, needs, defines) {#kernel, #variant, (needs)},
#include "shaders/vulkan/kernels.def"
#undef KERNEL
#undef VARIANT
};

uint32_t eb_table_unseen(const struct eb_table *t, FILE *to) {
    uint32_t n = 0;
    for (size_t i = 0; i < sizeof variants / sizeof *variants; i++) {
        bool seen = variants[i].needs != 0 || strcmp(variants[i].variant, "absent") == 0;
        for (uint32_t j = 0; j < t->n_rows && !seen; j++)
            seen = strcmp(t->rows[j].kernel, variants[i].kernel) == 0;
        if (seen) continue;
        fprintf(to, "no call of tools/vkcheck/walk.c uses the kernel %s\n", variants[i].kernel);
        n++;
    }
    return n;
}

static bool spills(const struct eb_pipeline_row *r) {
    return r->spills > 0 || r->scratch_bytes > 0;
}

uint32_t eb_table_spilling(const struct eb_table *t) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < t->n_rows; i++) n += spills(&t->rows[i]);
    return n;
}

/* The row with the most (sign 1) or the least (-1) of what lies `offset` bytes into it; NULL where
 * no row tells. */
static const struct eb_pipeline_row *extreme(const struct eb_table *t, size_t offset, int sign) {
    const struct eb_pipeline_row *best = NULL;
    int64_t best_value = 0;
    for (uint32_t i = 0; i < t->n_rows; i++) {
        int64_t value;
        memcpy(&value, (const char *)&t->rows[i] + offset, sizeof value);
        if (value == EB_UNTOLD) continue;
        if (best != NULL && (sign > 0 ? value <= best_value : value >= best_value)) continue;
        best = &t->rows[i];
        best_value = value;
    }
    return best;
}

void eb_table_sum_up(const struct eb_table *t, const char *device, uint32_t n_failed, FILE *to) {
    const struct eb_pipeline_row *most = extreme(t, offsetof(struct eb_pipeline_row, registers), 1);
    const struct eb_pipeline_row *least =
        extreme(t, offsetof(struct eb_pipeline_row, occupancy), -1);
    const struct eb_pipeline_row *shared =
        extreme(t, offsetof(struct eb_pipeline_row, shared_bytes), 1);
    uint32_t n_matrix = 0;
    for (uint32_t i = 0; i < t->n_rows; i++) n_matrix += t->rows[i].matrix > 0;
    fprintf(to,
            "%s: %" PRIu32 " pipelines, %" PRIu32 " failed calls, %" PRIu32 " spilling, %" PRIu32
            " with matrix instructions",
            device, t->n_rows, n_failed, eb_table_spilling(t), n_matrix);
    if (most != NULL)
        fprintf(to, "; most registers %" PRId64 " (%s)", most->registers, most->kernel);
    if (least != NULL)
        fprintf(to, "; lowest occupancy %" PRId64 " (%s)", least->occupancy, least->kernel);
    if (shared != NULL)
        fprintf(to, "; most shared memory %" PRId64 " (%s)", shared->shared_bytes, shared->kernel);
    fprintf(to, "\n");
}
