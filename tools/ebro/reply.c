/* reply.c: see reply.h. Write errors are left in the stream, for eb_flush_stdout to find. */
#include "reply.h"

#include <string.h>

static unsigned character_bytes(unsigned char first) {
    if (first >= 0xc2 && first <= 0xdf) return 2;
    if (first >= 0xe0 && first <= 0xef) return 3;
    if (first >= 0xf0 && first <= 0xf4) return 4;
    return 1; /* ASCII, or no start of a character: passed on as it is */
}

static void release(struct eb_utf8_out *o) {
    if (o->n_held > 0) {
        fwrite(o->held, 1, o->n_held, o->f);
        o->any = true;
    }
    o->n_held = 0;
}

static void put(struct eb_utf8_out *o, const char *bytes, size_t n) {
    for (size_t i = 0; i < n; i++) {
        unsigned char b = (unsigned char)bytes[i];
        /* a character broken off by another is not going to be completed */
        if (o->n_held > 0 && (b & 0xc0) != 0x80) release(o);
        if (o->n_held == 0) o->n_whole = character_bytes(b);
        o->held[o->n_held++] = b;
        if (o->n_held == o->n_whole) release(o);
    }
}

void eb_reply_start(struct eb_reply *r, enum eb_reply_form form) {
    *r = (struct eb_reply){
        .channels = form != EB_REPLY_PLAIN,
        .channel = form == EB_REPLY_K3_THINKING ? EB_CHANNEL_THINK : EB_CHANNEL_RESPONSE,
        .text.f = stdout,
        .thought.f = stderr};
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
    r->channel = EB_CHANNEL_OTHER;
    r->in_name = true;
    r->opening = open;
    r->n_name = 0;
    return false;
}

bool eb_reply_token(struct eb_reply *r, const char *bytes, size_t n, bool is_special) {
    if (is_special) return r->channels && mark(r, bytes, n);
    if (r->in_name) {
        /* one that does not fit is no name that is known here */
        size_t room = sizeof r->name - r->n_name;
        if (n > room) n = room;
        memcpy(r->name + r->n_name, bytes, n);
        r->n_name += n;
        return false;
    }
    struct eb_utf8_out *o = r->channel == EB_CHANNEL_RESPONSE ? &r->text
                            : r->channel == EB_CHANNEL_THINK  ? &r->thought
                                                              : NULL;
    if (o) put(o, bytes, n);
    return false;
}

void eb_reply_finish(struct eb_reply *r) {
    release(&r->thought);
    if (r->thought.any) fputc('\n', r->thought.f);
    release(&r->text);
    fputc('\n', r->text.f);
}
