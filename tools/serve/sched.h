/* sched.h: the engine's thread. Takes jobs (a prompt, and how to go on from it) from a bounded
 * queue, evaluates all that run together, step by step, and tells each one's listener what it
 * wrote. Knows no protocol: HTTP and JSON are other files'. Uses the public API alone. */
#ifndef EB_SCHED_H
#define EB_SCHED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ebro/ebro.h"

struct eb_grammar; /* grammar.h */
struct eb_vocab;

/* ---- what a listener hears ---------------------------------------------------------------- */

enum eb_finish {
    EB_FINISH_STOP,       /* a stop token or a stop string */
    EB_FINISH_LENGTH,     /* max_tokens, or the context is full */
    EB_FINISH_TOOL_CALLS, /* a stop token, after calls of tools */
    EB_FINISH_CANCELLED,  /* the listener was gone */
    EB_FINISH_ERROR       /* see the error */
};

struct eb_token_prob {
    int32_t id;
    float logprob; /* natural logarithm; of the model's own distribution, before sampling options */
};

struct eb_token_info {
    struct eb_token_prob chosen;
    uint32_t n_top;
    const struct eb_token_prob *top; /* [n_top], likeliest first */
};

enum eb_piece_kind {
    EB_PIECE_CONTENT,
    EB_PIECE_REASONING,
    EB_PIECE_TOOL_BEGIN,    /* text is the tool's name */
    EB_PIECE_TOOL_ARGUMENTS /* text is a piece of the arguments, JSON when joined */
};

/* A piece of a reply. Text is cut between characters alone; bytes that a model wrote and that are
 * no UTF-8 are in it as they are. */
struct eb_piece {
    enum eb_piece_kind kind;
    const char *text; /* not NUL-terminated */
    size_t bytes;
    uint32_t call;                      /* number of the tool call, from 0 */
    const char *id;                     /* EB_PIECE_TOOL_BEGIN: what the model calls it; may be */
    size_t id_bytes;                    /* empty; not NUL-terminated */
    const struct eb_token_info *tokens; /* content only, and where logprobs were asked for: the */
    uint32_t n_tokens; /* tokens that end in this piece; joined over all pieces they end with it */
};

struct eb_usage {
    uint32_t prompt_tokens;
    uint32_t matched_tokens;    /* leading ones that were seen before */
    uint32_t cached_tokens;     /* of those, ones that were not evaluated again */
    const char *miss;           /* why not more were; constant */
    uint32_t completion_tokens; /* stop token included */
    uint32_t reasoning_tokens;  /* of them: inside the think channel */
    double queue_seconds, prompt_seconds, decode_seconds;
};

/* All but `gone` are called by the engine's thread and must return soon; none may call the
 * scheduler. `user` must stay valid until `finish` returns, which is the last call, always made and
 * once. */
struct eb_listener {
    void *user;
    /* The prompt is evaluated; the first piece follows. Not called where that never happens. */
    void (*start)(void *user, const struct eb_usage *usage);
    void (*piece)(void *user, const struct eb_piece *piece);
    /* err: EB_FINISH_ERROR only, else NULL. */
    void (*finish)(void *user, enum eb_finish how, const struct eb_usage *usage,
                   const ebro_error *err);
    /* True once nobody waits for the reply any more. Asked before every step, by the engine's
     * thread, whether the job waits or runs. */
    bool (*gone)(void *user);
};

/* ---- jobs --------------------------------------------------------------------------------- */

/* All of it is copied by eb_sched_submit, but for the grammar. */
struct eb_job_spec {
    const int32_t *ids; /* [n_ids], at least one */
    size_t n_ids;
    ebro_sampling sampling; /* choice number i draws with seed + i */
    uint32_t max_tokens;    /* 0: until the context is full */
    const char *const *stops;
    size_t n_stops;
    bool chat;     /* what is written is a reply in the model's chat format, else plain text */
    bool thinking; /* chat: the prompt has opened the think channel */
    bool ignore_stop_tokens;
    bool logprobs;
    uint32_t n_top;                   /* logprobs: how many of the likeliest tokens, 0 to 20 */
    const struct eb_grammar *grammar; /* NULL: none. Must live until every choice has finished */
};

struct eb_sched_options {
    ebro_runtime *runtime;
    ebro_model *model;
    ebro_engine *engine; /* the scheduler's alone while it is open */
    uint32_t n_seqs;     /* as the engine was opened with: jobs that run at once */
    uint32_t n_ctx, n_chunk;
    uint32_t n_queue; /* jobs that may wait */
    /* Of the cache, for last_cache_bytes: what a token takes, what a sequence's state takes. */
    uint64_t token_bytes, state_bytes;
};

struct eb_sched;

/* Starts the thread. Fails with NOMEM_HOST or INTERNAL. */
int32_t eb_sched_open(const struct eb_sched_options *options, struct eb_sched **out,
                      ebro_error *err);
/* Cancels what runs and waits, and ends the thread; NULL-safe. The engine stays the caller's. */
void eb_sched_close(struct eb_sched **sched);

/* Queues n_choices replies to one prompt, with a listener each (copied). They share the prompt: it
 * is evaluated once. From any thread. INVALID where the spec is wrong: a prompt that does not fit
 * the context names both lengths. TIMEOUT: the queue is full, nothing is queued: try again later.
 * DEVICE_LOST and other errors of the engine: it does not run any more. CANCELLED: it drains.
 * Where it fails no listener is called. */
int32_t eb_sched_submit(struct eb_sched *sched, const struct eb_job_spec *spec,
                        const struct eb_listener *listeners, uint32_t n_choices, ebro_error *err);

/* No new jobs from now on; true once none runs or waits. From any thread. */
bool eb_sched_drain(struct eb_sched *sched);

/* ---- what it does ------------------------------------------------------------------------- */

enum eb_slot_state { EB_SLOT_IDLE, EB_SLOT_PROMPT, EB_SLOT_DECODE };

struct eb_slot_info {
    enum eb_slot_state state;
    uint64_t job;                                  /* number of the job, from 1; 0: idle */
    uint32_t prompt_tokens, cached_tokens, tokens; /* held now, prompt included */
    uint32_t pending;                              /* of them, not evaluated yet */
    const char *miss;
};

enum { EB_HISTOGRAM_BUCKETS = 16 };
/* Counts of seconds up to 1 ms, 2 ms, 4 ms ... 2^14 ms, and more. */
struct eb_histogram {
    uint64_t counts[EB_HISTOGRAM_BUCKETS]; /* not summed up */
    uint64_t n;
    double sum;
};

struct eb_sched_stats {
    int32_t status; /* EBRO_OK, or why the engine does not run any more */
    bool draining;
    uint32_t n_waiting, n_running;
    uint64_t submitted, refused, finished[EB_FINISH_ERROR + 1], preempted;
    uint64_t prompt_tokens, cached_tokens, completion_tokens;
    uint64_t steps, step_rows; /* rows: tokens evaluated by all steps */
    uint64_t step_sequences;   /* sequences in all steps: the mean batch is this / steps */
    struct eb_histogram queue, first, gap; /* waiting; until the first token; between two tokens */
    struct eb_histogram step;              /* one step of the engine */
    struct eb_usage last;                  /* of the job whose prompt was evaluated last */
    uint64_t last_cache_bytes;             /* pages and state of that prompt */
    ebro_memory memory;
};
/* A consistent copy; slots: up to `capacity` of n_seqs. From any thread. */
void eb_sched_get_stats(struct eb_sched *sched, struct eb_sched_stats *out,
                        struct eb_slot_info *slots, uint32_t capacity);

#endif
