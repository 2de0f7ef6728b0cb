/* sim.h: what the parts of `ebro cache-sim` share: a trace of prompts, its replay through the
 * memory manager without a model, and how the outcome is shown. */
#ifndef EB_SIM_H
#define EB_SIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "mem/manager.h"

/* ---- the trace (sim_trace.c) ------------------------------------------------------------ */

/* Tokens [from, from + n) of a named endless chain, or of the trace's own list of ids. */
struct eb_sim_part {
    uint64_t name; /* hash of the name; unused where ids stand in the trace */
    uint64_t from;
    uint32_t n;
    bool given; /* `from` counts in eb_sim_trace.ids */
};

struct eb_sim_request {
    uint64_t line;
    uint32_t session, cut; /* EB_SIM_NONE: no session; all of it */
    size_t first_part;
    uint32_t n_parts; /* of the prompt; n_reply more follow: what is generated */
    uint32_t n_reply; /* 0 or 1 */
    size_t first_keep;
    uint32_t n_keep; /* positions of named snapshots */
};

enum { EB_SIM_NONE = UINT32_MAX, EB_SIM_MAX_PROMPT = 1 << 28 };

struct eb_sim_trace {
    const char *label; /* names it in errors; not a copy */
    struct eb_sim_request *requests;
    struct eb_sim_part *parts;
    int32_t *ids;
    uint32_t *keeps;
    size_t n_requests, n_parts, n_ids, n_keeps;
    size_t requests_capacity, parts_capacity, ids_capacity, keeps_capacity;
    uint32_t n_sessions;
    uint64_t n_lines;
};

/* Reads JSON lines to the end. FORMAT names `label`, the line and what would be right; IO where it
 * cannot be read. *out, zeroed before, is to be freed either way; it keeps `label`. */
int32_t eb_sim_read(FILE *f, const char *label, struct eb_sim_trace *out, ebro_error *err);
void eb_sim_trace_free(struct eb_sim_trace *t);

/* Token `index` of a chain, 0 to vocab - 1: the same one always. */
int32_t eb_sim_token(uint64_t name, uint64_t index, uint32_t vocab);
uint64_t eb_sim_name(const char *name); /* FNV-1a, 64 bits */

/* ---- going through a trace (sim_walk.c) ------------------------------------------------- */

/* What a session holds so far. */
struct eb_sim_chain {
    struct eb_sim_part *parts;
    size_t n, capacity;
    uint64_t n_tokens;
};

/* Requests in their order, spelled out. Zero it but for trace and vocab. */
struct eb_sim_walk {
    const struct eb_sim_trace *trace;
    uint32_t vocab;
    size_t next;
    struct eb_sim_chain *sessions;
    int32_t *ids; /* the prompt, then what is generated */
    size_t capacity;
    uint32_t n_prompt, n_reply;
    const struct eb_sim_request *request;
};

/* False at the end, and on an error (*st). An id beyond the vocabulary, a cut behind a session's
 * end and an empty or too long prompt are INVALID, with the trace's label and line. */
bool eb_sim_step(struct eb_sim_walk *w, int32_t *st, ebro_error *err);
void eb_sim_walk_free(struct eb_sim_walk *w);

/* ---- traces to try (sim_generate.c) ----------------------------------------------------- */

enum eb_sim_kind { EB_SIM_MULTI_TURN, EB_SIM_AGENTIC, EB_SIM_SHARED_SYSTEM, EB_SIM_ONE_OFF };

struct eb_sim_load {
    enum eb_sim_kind kind;
    uint64_t n_requests, n_sessions, n_turns; /* sessions at once; turns of each */
    uint64_t system, user, reply;             /* mean tokens */
    uint64_t seed;
};
/* The same numbers give the same text. False: errno. */
bool eb_sim_generate(const struct eb_sim_load *load, FILE *f);

/* ---- the replay (sim_replay.c) ---------------------------------------------------------- */

struct eb_sim_setting {
    struct eb_layout layout;
    struct eb_manager_options options; /* make is ignored */
    uint32_t vocab, n_chunk;
    uint32_t n_ctx;   /* longer prompts are refused; 0: no limit but the budget */
    bool cancellable; /* steps of prompts never write a state in place */
};

struct eb_sim_result {
    struct eb_manager_stats stats; /* before anything that is kept is given up */
    uint64_t n_refused;            /* requests that did not fit, or not to their end */
    uint64_t asked_tokens;         /* of the prompts of all requests */
    uint64_t refused_tokens;       /* of them, those of refused requests */
    uint64_t saved_tokens;         /* reused by requests that were not refused */
};

/* Each request in its turn, as an engine does it: appended, evaluated n_chunk tokens at a time, the
 * generated tokens one by one, closed. NOMEM_DEVICE where the budget holds no sequence at all. */
int32_t eb_sim_replay(const struct eb_sim_trace *t, const struct eb_sim_setting *s,
                      struct eb_sim_result *out, ebro_error *err);

/* ---- showing (sim_print.c, sim_plot.c) -------------------------------------------------- */

struct eb_sim_row {
    uint64_t budget;
    const char *policy;
    struct eb_sim_result result;
};
struct eb_sim_table {
    const char *geometry, *keep;
    struct eb_layout layout;
    uint32_t interval;
    double token_cost, depth_cost; /* that the policy "cost" went by */
    struct eb_sim_row *rows;       /* [n_budgets][n_policies] */
    size_t n_budgets, n_policies;
    uint64_t n_requests;
};

/* Prompt tokens that a row saved nothing of: recomputed or refused. */
uint64_t eb_sim_unsaved(const struct eb_sim_row *r);
bool eb_sim_any_refused(const struct eb_sim_table *t); /* in any row */
void eb_sim_print(const struct eb_sim_table *t, FILE *f);
bool eb_sim_write_csv(FILE *f, const void *table);
/* eb_sim_unsaved against the budget, a line for each policy. Rows with refusals are marked. */
bool eb_sim_write_svg(FILE *f, const void *table);
int eb_sim_print_json(const struct eb_sim_table *t); /* an exit code */
/* "1.5 GiB" into out. */
void eb_sim_bytes(uint64_t bytes, char *out, size_t capacity);

/* ---- shapes (sim_shape.c) --------------------------------------------------------------- */

struct eb_sim_shape {
    struct eb_shape shape;
    uint32_t vocab;
};
/* "kimi-linear-48b", "kimi-k3": constant; false: no such name. */
bool eb_sim_shape_named(const char *name, struct eb_sim_shape *out);
/* config.json of a model, from memory. Only its sizes are used. */
int32_t eb_sim_shape_of(const void *config, size_t bytes, struct eb_sim_shape *out,
                        ebro_error *err);
/* The same of a folder. */
int32_t eb_sim_shape_read(const char *folder, struct eb_sim_shape *out, ebro_error *err);

#endif
