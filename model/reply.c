/* reply.c: the public parser of replies: tokens in, pieces out. Control tokens are found by id, so
 * text that looks like one is text. Not its job: the formats (reply_linear.c, reply_k3.c), whole
 * characters and stop strings (text.c). */
#include "model/reply.h"

#include <stddef.h>
#include <string.h>

#include "model/model.h"

/* ---- what formats call ------------------------------------------------------------------ */

static void hand_out(ebro_reply *r, const ebro_reply_piece *piece) {
    if (r->st == EBRO_OK) r->st = r->each(r->user, piece);
}

void eb_reply_give(ebro_reply *r, int32_t kind, const char *p, size_t n) {
    ebro_reply_piece piece = {.size = sizeof piece, .kind = kind, .text = p, .bytes = n, .id = ""};
    if (n == 0) return;
    if (kind == EBRO_REPLY_TOOL_ARGUMENTS) piece.call = r->n_calls - 1;
    hand_out(r, &piece);
}

void eb_reply_begin_call(ebro_reply *r, struct eb_span name, struct eb_span id) {
    const ebro_reply_piece piece = {.size = sizeof piece,
                                    .kind = EBRO_REPLY_TOOL_BEGIN,
                                    .call = r->n_calls++,
                                    .text = name.n > 0 ? name.p : "",
                                    .bytes = name.n,
                                    .id = id.n > 0 ? id.p : "",
                                    .id_bytes = id.n};
    r->in_call = true;
    hand_out(r, &piece);
}

void eb_reply_end_call(ebro_reply *r) {
    const ebro_reply_piece piece = {.size = sizeof piece,
                                    .kind = EBRO_REPLY_TOOL_END,
                                    .call = r->n_calls - 1,
                                    .text = "",
                                    .id = ""};
    r->in_call = false;
    hand_out(r, &piece);
}

struct eb_span eb_span_trim(struct eb_span s) {
    while (s.n > 0 && eb_is_white(s.p[s.n - 1])) s.n--;
    while (s.n > 0 && eb_is_white(s.p[0])) {
        s.p++;
        s.n--;
    }
    return s;
}

void eb_reply_stray(ebro_reply *r, const char *p, size_t n) {
    while (!r->stray && n > 0 && eb_is_white(*p)) {
        p++;
        n--;
    }
    if (n == 0) return;
    r->stray = true;
    eb_reply_give(r, EBRO_REPLY_CONTENT, p, n);
}

bool eb_reply_hold(ebro_reply *r, const char *p, size_t n) {
    if (n > sizeof r->held - r->n_held) return false;
    memcpy(r->held + r->n_held, p, n);
    r->n_held += n;
    return true;
}

/* ---- public ----------------------------------------------------------------------------- */

/* A caller compiled against an older header has a shorter struct: what it lacks has its default. */
static int32_t read_options(const ebro_reply_options *o, bool *thinking, ebro_error *err) {
    *thinking = false;
    if (o == NULL) return EBRO_OK;
    if (o->size < sizeof o->size)
        return eb_fail(err, EBRO_INVALID, "ebro_reply_options: size is %zu, not sizeof it",
                       o->size);
    if (o->size >= offsetof(ebro_reply_options, thinking) + sizeof o->thinking)
        *thinking = o->thinking != 0;
    return EBRO_OK;
}

int32_t ebro_reply_create(const ebro_model *model, const ebro_reply_options *options,
                          ebro_reply **out, ebro_error *err) {
    bool thinking;
    if (model == NULL || out == NULL)
        return eb_fail(err, EBRO_INVALID, "ebro_reply_create: model and out must not be NULL");
    *out = NULL;
    int32_t st = read_options(options, &thinking, err);
    if (st != EBRO_OK) return st;
    ebro_reply *r = eb_calloc(&model->alloc, 1, sizeof *r, err);
    if (r == NULL) return EBRO_NOMEM_HOST;
    r->alloc = model->alloc;
    r->t = model->tokenizer;
    r->format = model->chat == EB_CHAT_KIMI_K3 ? &eb_reply_k3 : &eb_reply_linear;
    for (int32_t i = 0; i < r->format->n_names; i++)
        r->controls[i] = eb_token_special(r->t, r->format->names[i]);
    r->in_tag = -1;
    r->format->start(r, thinking);
    *out = r;
    return EBRO_OK;
}

void ebro_reply_destroy(ebro_reply **reply) {
    if (reply == NULL || *reply == NULL) return;
    const struct eb_alloc a = (*reply)->alloc;
    eb_free(&a, *reply);
    *reply = NULL;
}

static int32_t check_call(const ebro_reply *r, ebro_reply_each_fn each, ebro_error *err) {
    if (r != NULL && each != NULL) return EBRO_OK;
    return eb_fail(err, EBRO_INVALID, "ebro_reply: reply and each must not be NULL");
}

static void begin(ebro_reply *r, ebro_reply_each_fn each, void *user) {
    r->each = each;
    r->user = user;
    r->st = EBRO_OK;
}

int32_t ebro_reply_push(ebro_reply *reply, int32_t id, ebro_reply_each_fn each, void *user,
                        ebro_error *err) {
    int32_t st = check_call(reply, each, err);
    if (st != EBRO_OK) return st;
    bool special = false;
    size_t n = 0;
    const char *p = eb_token_bytes(reply->t, id, &n, &special);
    if (p == NULL)
        return eb_fail(err, EBRO_INVALID, "token id %d; the vocabulary has 0 to %u", id,
                       eb_tokenizer_vocab(reply->t) - 1);
    if (reply->over) return eb_fail(err, EBRO_INVALID, "ebro_reply_push: the reply was finished");
    begin(reply, each, user);
    if (!special) {
        reply->format->text(reply, p, n);
        return reply->st;
    }
    for (int32_t i = 0; i < reply->format->n_names; i++)
        if (reply->controls[i] == id) reply->format->control(reply, i);
    return reply->st;
}

int32_t ebro_reply_finish(ebro_reply *reply, ebro_reply_each_fn each, void *user, ebro_error *err) {
    int32_t st = check_call(reply, each, err);
    if (st != EBRO_OK || reply->over) return st;
    begin(reply, each, user);
    reply->over = true;
    if (reply->in_call) eb_reply_end_call(reply);
    return reply->st;
}
