/* text.c: what a job's tokens become: bytes, cut into channels by the library's parser of replies,
 * held back by its text streams until they can be shown, and handed to the listener in pieces. */
#include <string.h>

#include "job.h"

int32_t eb_text_open(struct eb_job *job, ebro_error *err) {
    struct eb_job_text *t = &job->text;
    int32_t st = ebro_text_stream_create(job->runtime, (const char *const *)job->stops,
                                         job->n_stops, &t->content, err);
    if (st != EBRO_OK || !job->chat) return st;
    const ebro_reply_options o = {.size = sizeof o, .thinking = job->thinking};
    st = ebro_text_stream_create(job->runtime, NULL, 0, &t->reasoning, err);
    return st == EBRO_OK ? ebro_reply_create(job->model, &o, &t->reply, err) : st;
}

void eb_text_close(struct eb_job_text *t) {
    ebro_reply_destroy(&t->reply);
    ebro_text_stream_destroy(&t->content);
    ebro_text_stream_destroy(&t->reasoning);
    ebro_text_stream_destroy(&t->arguments);
    eb_probs_free(&t->probs);
}

/* ---- pieces ------------------------------------------------------------------------------- */

static void tell(struct eb_job *job, const struct eb_piece *piece) {
    if (piece->bytes > 0 || piece->n_tokens > 0 || piece->kind == EB_PIECE_TOOL_BEGIN)
        job->listener.piece(job->listener.user, piece);
}

static uint32_t current_call(const struct eb_job *job) {
    return job->text.n_calls > 0 ? job->text.n_calls - 1 : 0;
}

static void tell_text(struct eb_job *job, enum eb_piece_kind kind, const char *text, size_t n) {
    tell(job,
         &(struct eb_piece){.kind = kind, .text = text, .bytes = n, .call = current_call(job)});
}

static void tell_content(struct eb_job *job, const char *text, size_t n, bool last) {
    struct eb_job_text *t = &job->text;
    struct eb_piece p = {.kind = EB_PIECE_CONTENT, .text = text, .bytes = n};
    t->content_out += n;
    p.n_tokens = eb_probs_take(&t->probs, t->content_out, job->n_top, last, &p.tokens);
    tell(job, &p);
}

static int32_t push(struct eb_job *job, ebro_text_stream *stream, enum eb_piece_kind kind,
                    const char *bytes, size_t n, ebro_error *err) {
    const char *text = NULL;
    size_t out = 0;
    int32_t stopped = 0;
    int32_t st = ebro_text_stream_push(stream, bytes, n, &text, &out, &stopped, err);
    if (st == EBRO_OK) tell_text(job, kind, text, out);
    return st;
}

static int32_t finish(struct eb_job *job, ebro_text_stream *stream, enum eb_piece_kind kind,
                      ebro_error *err) {
    const char *text = NULL;
    size_t out = 0;
    if (stream == NULL) return EBRO_OK;
    int32_t st = ebro_text_stream_finish(stream, &text, &out, err);
    if (st == EBRO_OK) tell_text(job, kind, text, out);
    return st;
}

/* A token on its way through the parser. */
struct token {
    struct eb_job *job;
    const float *logits; /* that it was chosen from; NULL: not needed, or what was held back */
    int32_t id;
    size_t content; /* bytes of content that it has written so far */
    bool reasoning, call;
    ebro_error *err;
};

/* The token's numbers go with all of its content, however the parser cuts it. */
static int32_t push_content(struct token *k, const char *bytes, size_t n) {
    struct eb_job *job = k->job;
    struct eb_job_text *t = &job->text;
    const char *text = NULL;
    size_t out = 0;
    int32_t stopped = 0, st = EBRO_OK;
    if (t->stopped || n == 0) return EBRO_OK;
    if (job->logprobs && k->logits != NULL && k->content == n)
        st = eb_probs_add(&t->probs, k->logits, job->vocab, k->id, job->n_top, t->content_in,
                          t->content_in + n, k->err);
    else if (job->logprobs)
        eb_probs_extend(&t->probs, t->content_in + n);
    if (st == EBRO_OK)
        st = ebro_text_stream_push(t->content, bytes, n, &text, &out, &stopped, k->err);
    if (st != EBRO_OK) return st;
    t->content_in += n;
    t->stopped = stopped != 0;
    tell_content(job, text, out, t->stopped);
    return EBRO_OK;
}

static int32_t begin_call(struct token *k, const ebro_reply_piece *p) {
    struct eb_job *job = k->job;
    int32_t st = finish(job, job->text.arguments, EB_PIECE_TOOL_ARGUMENTS, k->err);
    if (st != EBRO_OK) return st;
    ebro_text_stream_destroy(&job->text.arguments);
    st = ebro_text_stream_create(job->runtime, NULL, 0, &job->text.arguments, k->err);
    if (st != EBRO_OK) return st;
    job->text.n_calls++;
    tell(job, &(struct eb_piece){.kind = EB_PIECE_TOOL_BEGIN,
                                 .text = p->text,
                                 .bytes = p->bytes,
                                 .call = current_call(job),
                                 .id = p->id,
                                 .id_bytes = p->id_bytes});
    return EBRO_OK;
}

static int32_t take(void *user, const ebro_reply_piece *p) {
    struct token *k = user;
    struct eb_job *job = k->job;
    switch (p->kind) {
        case EBRO_REPLY_CONTENT:
            k->content += p->bytes;
            return push_content(k, p->text, p->bytes);
        case EBRO_REPLY_REASONING:
            k->reasoning = true;
            return push(job, job->text.reasoning, EB_PIECE_REASONING, p->text, p->bytes, k->err);
        case EBRO_REPLY_TOOL_BEGIN:
            k->call = true;
            return begin_call(k, p);
        case EBRO_REPLY_TOOL_ARGUMENTS:
            k->call = true;
            return push(job, job->text.arguments, EB_PIECE_TOOL_ARGUMENTS, p->text, p->bytes,
                        k->err);
        default:
            return EBRO_OK;
    }
}

int32_t eb_text_push(struct eb_job *job, int32_t id, const float *logits, ebro_error *err) {
    struct eb_job_text *t = &job->text;
    struct token k = {.job = job, .logits = logits, .id = id, .err = err};
    t->thought = false;
    if (t->reply == NULL) {
        size_t n = 0;
        int32_t special = 0;
        const char *bytes = ebro_token_bytes(job->model, id, &n, &special);
        if (special) return EBRO_OK; /* the name of a control token is no text */
        k.content = n;
        return push_content(&k, bytes, n);
    }
    int32_t st = ebro_reply_push(t->reply, id, take, &k, err);
    t->thought = k.reasoning && k.content == 0 && !k.call;
    return st;
}

int32_t eb_text_finish(struct eb_job *job, ebro_error *err) {
    struct eb_job_text *t = &job->text;
    struct token k = {.job = job, .err = err};
    const char *text = NULL;
    size_t out = 0;
    int32_t st = EBRO_OK;
    if (t->reply != NULL) st = ebro_reply_finish(t->reply, take, &k, err);
    if (st == EBRO_OK) st = finish(job, t->reasoning, EB_PIECE_REASONING, err);
    if (st == EBRO_OK) st = finish(job, t->arguments, EB_PIECE_TOOL_ARGUMENTS, err);
    if (st == EBRO_OK) st = ebro_text_stream_finish(t->content, &text, &out, err);
    if (st == EBRO_OK) tell_content(job, text, out, true);
    return st;
}
