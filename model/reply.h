/* reply.h: the inside of an ebro_reply: where in its format a reply stands, and how pieces of it
 * are handed out. Between model/reply*.c alone. */
#ifndef EB_REPLY_PARSER_H
#define EB_REPLY_PARSER_H

#include "model/chat_form.h"

enum {
    EB_REPLY_MAX_CONTROLS = 8,
    EB_REPLY_MAX_HELD = 4096, /* longest tag, or head of a call; the header states it */
    EB_REPLY_MAX_SCALAR = 64  /* longest number; the same */
};

/* K3: what an argument says that it is. */
enum eb_value_kind { EB_VALUE_STRING, EB_VALUE_SCALAR, EB_VALUE_JSON };

/* How one chat format is read. Control tokens are told by their place in `names`. */
struct eb_reply_format {
    const char *const *names;
    int32_t n_names;
    void (*start)(ebro_reply *r, bool thinking);
    void (*control)(ebro_reply *r, int32_t which);
    void (*text)(ebro_reply *r, const char *p, size_t n);
};
extern const struct eb_reply_format eb_reply_linear, eb_reply_k3;

struct ebro_reply {
    struct eb_alloc alloc;
    const struct eb_tokenizer *t;
    const struct eb_reply_format *format;
    int32_t controls[EB_REPLY_MAX_CONTROLS]; /* ids; -1: the vocabulary has none */
    /* During a call: */
    ebro_reply_each_fn each;
    void *user;
    int32_t st; /* the first result of `each` but 0; later pieces are not handed out */
    /* Where the reply stands: */
    uint32_t n_calls;
    bool in_call, over;
    int32_t place;            /* the format's own */
    bool stray;               /* text stood where none belongs: the rest is shown as it is */
    int32_t in_tag;           /* K3: the control token that began it; -1: none */
    uint32_t n_arguments;     /* K3: of the call that is open */
    bool raw;                 /* they came as one block of JSON */
    enum eb_value_kind value; /* of the argument that is open */
    bool blank;               /* nothing but white space of it yet */
    char scalar[EB_REPLY_MAX_SCALAR];
    size_t n_scalar;
    char held[EB_REPLY_MAX_HELD];
    size_t n_held;
};

/* Nothing where n == 0. */
void eb_reply_give(ebro_reply *r, int32_t kind, const char *p, size_t n);
void eb_reply_begin_call(ebro_reply *r, struct eb_span name, struct eb_span id);
void eb_reply_end_call(ebro_reply *r);
/* Text between channels and calls: white space means nothing, the rest is content, so that nothing
 * that a model says is lost. */
void eb_reply_stray(ebro_reply *r, const char *p, size_t n);
/* Keeps text of a tag; false where there is no room for it. */
bool eb_reply_hold(ebro_reply *r, const char *p, size_t n);

struct eb_span eb_span_trim(struct eb_span s);

#endif
