/* watch.c: what the server does now: /health and /slots. Counters for machines are metrics.c's. */
#include <stdlib.h>

#include "answer.h"
#include "routes.h"

static const char *status_word(const struct eb_sched_stats *stats) {
    if (stats->status != EBRO_OK) return "failed";
    return stats->draining ? "draining" : "ok";
}

/* ---- /health ------------------------------------------------------------------------------ */

void eb_answer_health(const struct eb_service *s, struct eb_exchange *x) {
    struct eb_sched_stats stats;
    eb_sched_get_stats(s->sched, &stats, NULL, 0);
    bool good = stats.status == EBRO_OK && !stats.draining;
    eb_exchange_give_with(
        x, good ? 200 : 503,
        json_pack("{s:s, s:s*}", "status", status_word(&stats), "reason",
                  stats.status == EBRO_OK ? NULL : ebro_status_name(stats.status)));
}

/* ---- /slots ------------------------------------------------------------------------------- */

/* What no prompt has missed is no reason. */
static const char *reason(const char *miss) {
    return miss && miss[0] ? miss : NULL;
}

static json_t *slot_list(const struct eb_slot_info *slots, uint32_t n) {
    static const char *const states[] = {"idle", "prompt", "decode"};
    json_t *list = json_array();
    for (uint32_t i = 0; list && i < n; i++) {
        const struct eb_slot_info *slot = &slots[i];
        json_t *one = json_pack("{s:I, s:s, s:I, s:I, s:I, s:I, s:I, s:s?}", "id", (json_int_t)i,
                                "state", states[slot->state], "job", (json_int_t)slot->job,
                                "prompt_tokens", (json_int_t)slot->prompt_tokens, "cached_tokens",
                                (json_int_t)slot->cached_tokens, "tokens", (json_int_t)slot->tokens,
                                "pending", (json_int_t)slot->pending, "miss", reason(slot->miss));
        if (json_array_append_new(list, one) == 0) continue;
        json_decref(list);
        list = NULL;
    }
    return list;
}

struct figure {
    const char *name;
    uint64_t value;
};

static json_t *figures(const struct figure *list, size_t n) {
    json_t *object = json_object();
    for (size_t i = 0; object && i < n; i++) {
        if (json_object_set_new(object, list[i].name, json_integer((json_int_t)list[i].value)) == 0)
            continue;
        json_decref(object);
        object = NULL;
    }
    return object;
}

static json_t *memory_object(const ebro_memory *m) {
    const struct figure list[] = {{"budget_bytes", m->budget_bytes},
                                  {"taken_bytes", m->taken_bytes},
                                  {"peak_bytes", m->peak_bytes},
                                  {"live_page_bytes", m->live_page_bytes},
                                  {"live_state_bytes", m->live_state_bytes},
                                  {"kept_page_bytes", m->kept_page_bytes},
                                  {"kept_state_bytes", m->kept_state_bytes},
                                  {"host_bytes", m->host_bytes},
                                  {"host_budget_bytes", m->host_budget_bytes},
                                  {"snapshots", m->n_snapshots},
                                  {"snapshots_kept", m->snapshots_kept},
                                  {"snapshots_refused", m->snapshots_refused},
                                  {"evictions", m->evictions},
                                  {"copied_pages", m->copied_pages},
                                  {"host_saves", m->host_saves},
                                  {"host_loads", m->host_loads}};
    return figures(list, sizeof list / sizeof *list);
}

static json_t *reuse_object(const ebro_memory *m) {
    const struct figure list[] = {{"prompts", m->prompts},
                                  {"prompt_tokens", m->prompt_tokens},
                                  {"matched_tokens", m->matched_tokens},
                                  {"reused_tokens", m->reused_tokens},
                                  {"evaluated_tokens", m->evaluated_tokens}};
    return figures(list, sizeof list / sizeof *list);
}

static json_t *last_object(const struct eb_sched_stats *stats) {
    const struct eb_usage *u = &stats->last;
    if (u->prompt_tokens == 0) return json_null();
    return json_pack("{s:I, s:I, s:I, s:s?, s:I, s:f, s:f}", "prompt_tokens",
                     (json_int_t)u->prompt_tokens, "matched_tokens", (json_int_t)u->matched_tokens,
                     "cached_tokens", (json_int_t)u->cached_tokens, "miss", reason(u->miss),
                     "cache_bytes", (json_int_t)stats->last_cache_bytes, "queue_seconds",
                     u->queue_seconds, "prompt_seconds", u->prompt_seconds);
}

static json_t *slots_object(const struct eb_service *s) {
    struct eb_sched_stats stats;
    struct eb_slot_info *slots = calloc(s->n_slots, sizeof *slots);
    if (!slots) return NULL;
    eb_sched_get_stats(s->sched, &stats, slots, s->n_slots);
    const struct figure steps[] = {
        {"steps", stats.steps}, {"rows", stats.step_rows}, {"sequences", stats.step_sequences}};
    json_t *object =
        json_pack("{s:s, s:s, s:I, s:{s:s, s:s}, s:I, s:I, s:o, s:o, s:o, s:o, s:o}", "status",
                  status_word(&stats), "model", s->offer.names[0], "context",
                  (json_int_t)s->offer.n_ctx, "device", "name", s->device.name, "description",
                  s->device.description, "waiting", (json_int_t)stats.n_waiting, "running",
                  (json_int_t)stats.n_running, "slots", slot_list(slots, s->n_slots), "memory",
                  memory_object(&stats.memory), "reuse", reuse_object(&stats.memory), "last",
                  last_object(&stats), "steps", figures(steps, sizeof steps / sizeof *steps));
    free(slots);
    return object;
}

void eb_answer_slots(const struct eb_service *s, struct eb_exchange *x) {
    eb_exchange_give(x, slots_object(s));
}
