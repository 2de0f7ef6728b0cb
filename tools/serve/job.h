/* job.h: one reply: its prompt, its sequence, and what becomes of each token: sampled within a
 * grammar, cut into channels, held back where a stop string may begin, given to the listener.
 * Everything here belongs to the scheduler's thread, but for eb_job_create and eb_job_free. */
#ifndef EB_JOB_H
#define EB_JOB_H

#include "grammar.h"
#include "sched.h"

/* Logprobs of tokens whose text is still held back. */
struct eb_probs {
    struct eb_prob {
        struct eb_token_prob chosen, top[20];
        size_t begin, end; /* bytes of content before it, and with it */
    } * list;
    struct eb_token_info *infos; /* as they are handed out */
    size_t n, capacity;
    size_t n_taken; /* the first of them, handed out by the last call */
};

/* What can be said of a job's text so far. */
struct eb_job_text {
    ebro_reply *reply; /* NULL: plain text */
    ebro_text_stream *content, *reasoning, *arguments;
    size_t content_in, content_out; /* bytes written by the model; handed out */
    uint32_t n_calls;
    bool stopped; /* by a stop string */
    bool thought; /* by the last token: into the think channel alone */
    struct eb_probs probs;
};

struct eb_job {
    struct eb_job *next;
    uint64_t number; /* from 1, in the order of submission */
    struct eb_listener listener;
    ebro_runtime *runtime;
    ebro_model *model;
    int32_t *ids; /* [n_ctx] prompt and what was written; n_ids of them */
    size_t n_prompt, n_ids;
    ebro_sampling sampling;
    ebro_logit_bias *biases;
    uint32_t max_tokens;
    char **stops; /* one allocation, texts included */
    size_t n_stops;
    bool chat, thinking, ignore_stop_tokens, logprobs;
    uint32_t n_top;
    const struct eb_grammar *grammar;
    uint64_t leader; /* the number of the job that evaluates its prompt; 0: it does so itself */
    uint32_t vocab;

    ebro_seq *seq; /* NULL: waits */
    bool started;  /* its prompt was evaluated once */
    struct eb_walk *walk;
    uint32_t *mask; /* [vocab / 32], with a walk */
    struct eb_job_text text;
    struct eb_usage usage;
    double submitted, admitted, prompted, last_token; /* moments of eb_serve_clock */
};

/* A monotonic clock, in seconds. */
double eb_serve_clock(void);

/* NULL on failure, with err: NOMEM_HOST, or INVALID for what cannot be a stop string. */
struct eb_job *eb_job_create(const struct eb_sched_options *o, const struct eb_job_spec *spec,
                             const struct eb_listener *listener, uint32_t choice, ebro_error *err);
/* Also destroys the sequence, which only the scheduler's thread may do. NULL-safe. */
void eb_job_free(struct eb_job *job);

/* Readies what the reply is read with: parser, streams, walk. Once, before the first token. */
int32_t eb_job_begin(struct eb_job *job, const struct eb_vocab *vocab, ebro_error *err);

enum eb_job_next { EB_JOB_GOES_ON, EB_JOB_ENDS };
/* The sequence's last token is evaluated: chooses the next one and hands out what can be said. On
 * EB_JOB_GOES_ON the token is the last of ids and has to be appended to the sequence; on
 * EB_JOB_ENDS *how says why, and the listener has all of the text. */
int32_t eb_job_advance(struct eb_job *job, uint32_t n_ctx, enum eb_job_next *next,
                       enum eb_finish *how, ebro_error *err);
/* Hands out what is still held back: before a job ends in any other way. */
void eb_job_flush(struct eb_job *job);

/* text.c of the job: what tokens become. eb_text_push takes a token that is no stop token. */
int32_t eb_text_open(struct eb_job *job, ebro_error *err);
void eb_text_close(struct eb_job_text *t);
int32_t eb_text_push(struct eb_job *job, int32_t id, const float *logits, ebro_error *err);
int32_t eb_text_finish(struct eb_job *job, ebro_error *err);

/* probs.c. Notes the numbers of the token that was chosen, which go with the bytes [begin, end) of
 * the content. */
int32_t eb_probs_add(struct eb_probs *p, const float *logits, uint32_t vocab, int32_t id,
                     uint32_t n_top, size_t begin, size_t end, ebro_error *err);
/* The last token's content goes on to `end`. */
void eb_probs_extend(struct eb_probs *p, size_t end);
/* Takes those whose text is out, `out` bytes of it; last: also the one that is cut by that end, and
 * no more will come. *infos is valid until the next call on p. */
uint32_t eb_probs_take(struct eb_probs *p, size_t out, uint32_t n_top, bool last,
                       const struct eb_token_info **infos);
void eb_probs_free(struct eb_probs *p);

/* A text for an error of the server's own, as the library's are. Returns st. */
int32_t eb_serve_fail(ebro_error *err, int32_t st, const char *fmt, ...);

#endif
