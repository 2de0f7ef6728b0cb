/* reply.c: see reply.h. Write errors are left in the stream, for eb_flush_stdout to find. */
#include "reply.h"

#include <stdlib.h>
#include <string.h>

static int32_t keep(struct eb_text_out *o, const char *text, size_t n, ebro_error *err) {
    if (o->capacity - o->n_kept < n) {
        size_t capacity = 2 * (o->n_kept + n) + 256;
        char *grown = realloc(o->kept, capacity);
        if (!grown) {
            if (err) {
                err->status = EBRO_NOMEM_HOST;
                snprintf(err->text, sizeof err->text, "out of memory for %zu bytes of a reply",
                         capacity);
            }
            return EBRO_NOMEM_HOST;
        }
        o->kept = grown;
        o->capacity = capacity;
    }
    memcpy(o->kept + o->n_kept, text, n);
    o->n_kept += n;
    return EBRO_OK;
}

static int32_t write_out(struct eb_text_out *o, const char *text, size_t n, ebro_error *err) {
    if (n == 0) return EBRO_OK;
    if (!o->any && o->before) fputs(o->before, o->f);
    fwrite(text, 1, n, o->f);
    o->any = true;
    o->n_written += n;
    return o->keep ? keep(o, text, n, err) : EBRO_OK;
}

/* *over: a stop string is complete. */
static int32_t put(struct eb_text_out *o, const char *bytes, size_t n, bool *over,
                   ebro_error *err) {
    const char *text = NULL;
    size_t text_bytes = 0;
    int32_t stopped = 0;
    int32_t st = ebro_text_stream_push(o->stream, bytes, n, &text, &text_bytes, &stopped, err);
    if (st != EBRO_OK) return st;
    o->n_taken += n;
    *over = stopped != 0;
    return write_out(o, text, text_bytes, err);
}

static void release(struct eb_text_out *o) {
    const char *text = NULL;
    size_t n = 0;
    if (ebro_text_stream_finish(o->stream, &text, &n, NULL) == EBRO_OK) write_out(o, text, n, NULL);
}

enum eb_reply_form eb_reply_form_of(const ebro_model_info *model, bool chat, bool think) {
    if (!chat || strcmp(model->architecture, "kimi-k3") != 0) return EB_REPLY_PLAIN;
    return think ? EB_REPLY_K3_THINKING : EB_REPLY_K3;
}

int32_t eb_reply_start(struct eb_reply *r, ebro_runtime *runtime, enum eb_reply_form form,
                       const char *const *stops, size_t n_stops, ebro_error *err) {
    *r = (struct eb_reply){
        .channels = form != EB_REPLY_PLAIN,
        .channel = form == EB_REPLY_K3_THINKING ? EB_CHANNEL_THINK : EB_CHANNEL_RESPONSE,
        .text.f = stdout,
        .thought.f = stderr};
    int32_t st = ebro_text_stream_create(runtime, stops, n_stops, &r->text.stream, err);
    if (st != EBRO_OK) return st;
    return ebro_text_stream_create(runtime, NULL, 0, &r->thought.stream, err);
}

void eb_reply_free(struct eb_reply *r) {
    ebro_text_stream_destroy(&r->text.stream);
    ebro_text_stream_destroy(&r->thought.stream);
    free(r->text.kept);
    free(r->thought.kept);
    r->text.kept = r->thought.kept = NULL;
}

/* Thinking ends with a line of its own, before the response begins: on a terminal both streams are
 * one.
 */
static void end_thought(struct eb_reply *r) {
    release(&r->thought);
    if (r->thought.any) {
        if (r->thought.after) fputs(r->thought.after, r->thought.f);
        fputc('\n', r->thought.f);
    }
    r->thought.any = false;
}

static bool is(const char *bytes, size_t n, const char *name) {
    return strlen(name) == n && memcmp(bytes, name, n) == 0;
}

static void enter_channel(struct eb_reply *r) {
    if (is(r->name, r->n_name, "response"))
        r->channel = EB_CHANNEL_RESPONSE;
    else if (is(r->name, r->n_name, "think"))
        r->channel = EB_CHANNEL_THINK;
    else
        r->channel = EB_CHANNEL_OTHER;
}

static bool mark(struct eb_reply *r, const char *bytes, size_t n) {
    if (is(bytes, n, "<|sep|>")) {
        if (r->in_name && r->opening) enter_channel(r);
        r->in_name = false;
        return false;
    }
    bool open = is(bytes, n, "<|open|>");
    if (!open && !is(bytes, n, "<|close|>")) return false;
    if (!open && !r->in_name && r->channel == EB_CHANNEL_RESPONSE) return true;
    if (r->channel == EB_CHANNEL_THINK) end_thought(r);
    r->channel = EB_CHANNEL_OTHER;
    r->in_name = true;
    r->opening = open;
    r->n_name = 0;
    return false;
}

int32_t eb_reply_token(struct eb_reply *r, const char *bytes, size_t n, bool is_special, bool *over,
                       ebro_error *err) {
    *over = false;
    if (is_special) {
        *over = r->channels && mark(r, bytes, n);
        return EBRO_OK;
    }
    if (r->in_name) {
        /* one that does not fit is no name that is known here */
        size_t room = sizeof r->name - r->n_name;
        if (n > room) n = room;
        memcpy(r->name + r->n_name, bytes, n);
        r->n_name += n;
        return EBRO_OK;
    }
    struct eb_text_out *o = r->channel == EB_CHANNEL_RESPONSE ? &r->text
                            : r->channel == EB_CHANNEL_THINK  ? &r->thought
                                                              : NULL;
    return o ? put(o, bytes, n, over, err) : EBRO_OK;
}

bool eb_reply_shows_all(const struct eb_reply *r) {
    return r->text.n_written == r->text.n_taken;
}

void eb_reply_finish(struct eb_reply *r) {
    end_thought(r);
    release(&r->text);
    fputc('\n', r->text.f);
}
