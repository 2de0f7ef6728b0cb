/* sim_print.c: the outcome of a simulation as a table, CSV and JSON. */
#include <jansson.h>
#include <string.h>

#include "bench.h"
#include "sim.h"

static const char *const miss_names[EB_N_MISSES] = {
    [EB_MISS_NONE] = "none",       [EB_MISS_NEW] = "new",
    [EB_MISS_OFF] = "off",         [EB_MISS_NO_SNAPSHOT] = "no_snapshot",
    [EB_MISS_EVICTED] = "evicted", [EB_MISS_EARLIER] = "earlier"};

void eb_sim_bytes(uint64_t bytes, char *out, size_t capacity) {
    static const char *const units[] = {"KiB", "MiB", "GiB", "TiB"};
    double v = (double)bytes / 1024.0;
    size_t u = 0;
    for (; v >= 1024.0 && u < 3; u++) v /= 1024.0;
    snprintf(out, capacity, v < 10.0 && v != (double)(int)v ? "%.1f %s" : "%.0f %s", v, units[u]);
}

static double share(uint64_t part, uint64_t of) {
    return of > 0 ? (double)part / (double)of : 0.0;
}

static uint64_t recomputed(const struct eb_manager_stats *s) {
    return s->prompt_tokens - s->reused_tokens;
}

/* Of all that was asked for, so that what was refused does not look like a gain. */
static double saved_share(const struct eb_sim_row *r) {
    return share(r->result.saved_tokens, r->result.asked_tokens);
}

uint64_t eb_sim_unsaved(const struct eb_sim_row *r) {
    return r->result.asked_tokens - r->result.saved_tokens;
}

bool eb_sim_any_refused(const struct eb_sim_table *t) {
    for (size_t i = 0; i < t->n_budgets * t->n_policies; i++)
        if (t->rows[i].result.n_refused > 0) return true;
    return false;
}

static void print_head(const struct eb_sim_table *t, FILE *f) {
    const struct eb_layout *l = &t->layout;
    uint64_t asked = t->rows[0].result.asked_tokens;
    char block[24], state[24];
    eb_sim_bytes(l->block_bytes, block, sizeof block);
    eb_sim_bytes(l->slot_blocks * l->block_bytes, state, sizeof state);
    fprintf(f,
            "%s: a state of %s, %llu bytes a token, pages of %u tokens, blocks of %s\n"
            "%llu request%s with %llu prompt token%s, keeping %s",
            t->geometry, state, (unsigned long long)l->row_bytes, l->page_tokens, block,
            (unsigned long long)t->n_requests, t->n_requests == 1 ? "" : "s",
            (unsigned long long)asked, asked == 1 ? "" : "s", t->keep);
    if (t->interval == 1) fputs(" (every token)", f);
    if (t->interval > 1) fprintf(f, " (every %u tokens)", t->interval);
    for (size_t i = 0; i < t->n_policies; i++) {
        if (strcmp(t->rows[i].policy, "cost") == 0)
            fprintf(f, "\ncost: a token after t others costs %g + %g t", t->token_cost,
                    t->depth_cost);
    }
    fputs("\n\n", f);
}

static void print_row_head(const struct eb_sim_row *r, FILE *f) {
    char budget[24];
    eb_sim_bytes(r->budget, budget, sizeof budget);
    fprintf(f, "%9s %-6s", budget, r->policy);
}

static void print_tokens(const struct eb_sim_table *t, FILE *f) {
    fprintf(f, "prompt tokens\n%9s %-6s %11s %11s %11s %11s %11s %6s\n", "budget", "policy",
            "refused", "read", "matched", "reused", "recomputed", "saved");
    for (size_t i = 0; i < t->n_budgets * t->n_policies; i++) {
        const struct eb_sim_row *r = &t->rows[i];
        const struct eb_manager_stats *s = &r->result.stats;
        print_row_head(r, f);
        const uint64_t columns[] = {r->result.refused_tokens, s->prompt_tokens, s->matched_tokens,
                                    s->reused_tokens, recomputed(s)};
        for (size_t c = 0; c < sizeof columns / sizeof *columns; c++)
            fprintf(f, " %11llu", (unsigned long long)columns[c]);
        fprintf(f, " %5.1f%%%s\n", 100.0 * saved_share(r), r->result.n_refused > 0 ? " !" : "");
    }
}

static int miss_width(int m) {
    int n = (int)strlen(miss_names[m]);
    return n > 8 ? n : 8;
}

static void print_requests(const struct eb_sim_table *t, FILE *f) {
    fprintf(f, "\nrequests: refused; read, by why no more of their prompt was reused\n%9s %-6s %8s",
            "budget", "policy", "refused");
    for (int m = 0; m < EB_N_MISSES; m++) fprintf(f, " %*s", miss_width(m), miss_names[m]);
    fputc('\n', f);
    for (size_t i = 0; i < t->n_budgets * t->n_policies; i++) {
        const struct eb_sim_row *r = &t->rows[i];
        print_row_head(r, f);
        fprintf(f, " %8llu", (unsigned long long)r->result.n_refused);
        for (int m = 0; m < EB_N_MISSES; m++)
            fprintf(f, " %*llu", miss_width(m), (unsigned long long)r->result.stats.misses[m]);
        fputc('\n', f);
    }
}

static void print_memory(const struct eb_sim_table *t, FILE *f) {
    fprintf(f, "\nmemory: the most bytes held at once; snapshots\n%9s %-6s %9s %9s %9s %11s\n",
            "budget", "policy", "held most", "kept", "not kept", "given up");
    for (size_t i = 0; i < t->n_budgets * t->n_policies; i++) {
        const struct eb_sim_row *r = &t->rows[i];
        const struct eb_manager_stats *s = &r->result.stats;
        char peak[24];
        eb_sim_bytes(s->peak_bytes, peak, sizeof peak);
        print_row_head(r, f);
        fprintf(f, " %9s %9llu %9llu %11llu\n", peak, (unsigned long long)s->snapshots_kept,
                (unsigned long long)s->snapshots_refused, (unsigned long long)s->evictions);
    }
}

void eb_sim_print(const struct eb_sim_table *t, FILE *f) {
    print_head(t, f);
    print_tokens(t, f);
    if (eb_sim_any_refused(t))
        fputs(
            "! requests were refused: less was read, so that fewer recomputed tokens are no gain;\n"
            "  compare `saved`\n",
            f);
    print_requests(t, f);
    print_memory(t, f);
}

bool eb_sim_write_csv(FILE *f, const void *table) {
    const struct eb_sim_table *t = table;
    fputs(
        "budget_bytes,policy,requests,refused,prompt_tokens,matched_tokens,reused_tokens,"
        "recomputed_tokens,evaluated_tokens,peak_bytes,snapshots_kept,snapshots_refused,"
        "evictions,copied_pages",
        f);
    for (int m = 0; m < EB_N_MISSES; m++) fprintf(f, ",miss_%s", miss_names[m]);
    fputs(",asked_tokens,refused_tokens,saved_tokens\n", f);
    for (size_t i = 0; i < t->n_budgets * t->n_policies; i++) {
        const struct eb_sim_row *r = &t->rows[i];
        const struct eb_manager_stats *s = &r->result.stats;
        const uint64_t columns[] = {t->n_requests,        r->result.n_refused, s->prompt_tokens,
                                    s->matched_tokens,    s->reused_tokens,    recomputed(s),
                                    s->evaluated_tokens,  s->peak_bytes,       s->snapshots_kept,
                                    s->snapshots_refused, s->evictions,        s->copied_pages};
        fprintf(f, "%llu,%s", (unsigned long long)r->budget, r->policy);
        for (size_t c = 0; c < sizeof columns / sizeof *columns; c++)
            fprintf(f, ",%llu", (unsigned long long)columns[c]);
        for (int m = 0; m < EB_N_MISSES; m++) fprintf(f, ",%llu", (unsigned long long)s->misses[m]);
        fprintf(f, ",%llu,%llu,%llu\n", (unsigned long long)r->result.asked_tokens,
                (unsigned long long)r->result.refused_tokens,
                (unsigned long long)r->result.saved_tokens);
    }
    return !ferror(f);
}

static json_t *row_json(const struct eb_sim_row *r) {
    const struct eb_manager_stats *s = &r->result.stats;
    json_t *misses = json_object();
    for (int m = 0; m < EB_N_MISSES; m++)
        json_object_set_new(misses, miss_names[m], json_integer((json_int_t)s->misses[m]));
    return json_pack(
        "{s:I, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:I, s:I, s:I, s:I, s:I, s:o}",
        "budget_bytes", (json_int_t)r->budget, "policy", r->policy, "refused",
        (json_int_t)r->result.n_refused, "refused_tokens", (json_int_t)r->result.refused_tokens,
        "saved_tokens", (json_int_t)r->result.saved_tokens, "prompt_tokens",
        (json_int_t)s->prompt_tokens, "matched_tokens", (json_int_t)s->matched_tokens,
        "reused_tokens", (json_int_t)s->reused_tokens, "recomputed_tokens",
        (json_int_t)recomputed(s), "evaluated_tokens", (json_int_t)s->evaluated_tokens, "hit_share",
        saved_share(r), "peak_bytes", (json_int_t)s->peak_bytes, "snapshots_kept",
        (json_int_t)s->snapshots_kept, "snapshots_refused", (json_int_t)s->snapshots_refused,
        "evictions", (json_int_t)s->evictions, "copied_pages", (json_int_t)s->copied_pages,
        "misses", misses);
}

int eb_sim_print_json(const struct eb_sim_table *t) {
    const struct eb_layout *l = &t->layout;
    json_t *rows = json_array();
    json_t *o = json_pack(
        "{s:s, s:s, s:s, s:s, s:I, s:f, s:f, s:I, s:I, s:I, s:I, s:I, s:I, s:O?}", "schema",
        "ebro-cache-sim-1", "version", ebro_version(), "geometry", t->geometry, "keep", t->keep,
        "interval", (json_int_t)t->interval, "token_cost", t->token_cost, "depth_cost",
        t->depth_cost, "requests", (json_int_t)t->n_requests, "asked_tokens",
        (json_int_t)t->rows[0].result.asked_tokens, "block_bytes", (json_int_t)l->block_bytes,
        "page_tokens", (json_int_t)l->page_tokens, "token_bytes", (json_int_t)l->row_bytes,
        "state_bytes", (json_int_t)(l->slot_blocks * l->block_bytes), "rows", rows);
    bool ok = o && rows;
    for (size_t i = 0; i < t->n_budgets * t->n_policies && ok; i++)
        ok = json_array_append_new(rows, row_json(&t->rows[i])) == 0;
    json_decref(rows);
    if (ok) return eb_bench_print_json(o);
    json_decref(o);
    return eb_bench_print_json(NULL);
}
