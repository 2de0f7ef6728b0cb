/* reply.c: whatever tokens a reply is made of, what is heard of it does not depend on how its text
 * was cut into tokens; calls begin and end in order; and all text that is handed out came in as
 * text, so that no control token or its name ever is. */
#include "tests/fuzz/small_vocab.h"

#include "model/model.h"

enum { MAX_INPUT = 4096, MAX_HEARD = 1 << 19 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

struct heard {
    char text[MAX_HEARD]; /* kind, then the text; neighbours of a kind joined */
    size_t n, n_shown;    /* n_shown: bytes but those of arguments */
    int32_t kind;
    uint32_t n_calls;
    bool in_call;
};

static void keep(struct heard *h, const char *p, size_t n) {
    must(n <= sizeof h->text - h->n);
    memcpy(h->text + h->n, p, n);
    h->n += n;
}

static int32_t hear(void *user, const ebro_reply_piece *p) {
    struct heard *h = user;
    const bool begins = p->kind == EBRO_REPLY_TOOL_BEGIN, ends = p->kind == EBRO_REPLY_TOOL_END;
    const char mark = (char)('0' + p->kind);
    must(p->kind >= EBRO_REPLY_CONTENT && p->kind <= EBRO_REPLY_TOOL_END);
    must(begins || ends || p->bytes > 0);
    if (begins) {
        must(!h->in_call && p->call == h->n_calls++);
        h->in_call = true;
    } else if (ends || p->kind == EBRO_REPLY_TOOL_ARGUMENTS) {
        must(h->in_call && p->call + 1 == h->n_calls);
        h->in_call = !ends;
    }
    if (p->kind != EBRO_REPLY_TOOL_ARGUMENTS) h->n_shown += p->bytes;
    if (begins || ends || h->kind != p->kind) keep(h, &mark, 1);
    h->kind = p->kind;
    keep(h, p->text, p->bytes);
    keep(h, p->id, p->id_bytes);
    return 0;
}

/* Bytes from here on stand for these. */
enum { FIRST_WORD = 0xc0 };
static const char *const words[] = {"tools",
                                    "response",
                                    "think",
                                    "message",
                                    "call tool=\"f\"",
                                    "call tool=\"&amp;&quot;\" index=\"1\"",
                                    "call",
                                    "json",
                                    "argument key=\"k\" type=\"string\"",
                                    "argument key=\"k\" type=\"number\"",
                                    "argument",
                                    "functions.f:0",
                                    " \n",
                                    "12",
                                    "{\"a\": 1}"};
enum { N_WORDS = sizeof words / sizeof *words, FIRST_CONTROL = FIRST_WORD + N_WORDS };

struct said {
    const uint8_t *p, *end;
    ebro_reply *r;
    const struct eb_tokenizer *t;
    struct heard *h;
    size_t n_text;
    bool whole; /* words as few tokens, else as bytes */
};

static void say_text(struct said *s, const char *p, size_t n) {
    struct eb_ids ids = {0};
    ebro_error err = {0};
    s->n_text += n;
    if (s->whole) {
        must(eb_tokenizer_encode(s->t, p, n, false, &ids, &err) == EBRO_OK);
    } else {
        for (size_t i = 0; i < n; i++)
            must(eb_tokenizer_encode(s->t, p + i, 1, false, &ids, &err) == EBRO_OK);
    }
    for (size_t i = 0; i < ids.n; i++)
        must(ebro_reply_push(s->r, ids.v[i], hear, s->h, &err) == EBRO_OK);
    eb_ids_free(NULL, &ids);
}

static void say(struct said *s) {
    ebro_error err = {0};
    for (; s->p < s->end; s->p++) {
        const uint8_t c = *s->p;
        const char byte = (char)c;
        if (c < FIRST_WORD) {
            say_text(s, &byte, 1);
        } else if (c < FIRST_CONTROL) {
            say_text(s, words[c - FIRST_WORD], strlen(words[c - FIRST_WORD]));
        } else {
            const int32_t id = 300 + (c - FIRST_CONTROL) % 20;
            must(ebro_reply_push(s->r, id, hear, s->h, &err) == EBRO_OK);
        }
    }
    must(ebro_reply_finish(s->r, hear, s->h, &err) == EBRO_OK);
}

static void listen(const ebro_model *m, int32_t thinking, const uint8_t *data, size_t bytes,
                   bool whole, struct heard *h) {
    const ebro_reply_options o = {.size = sizeof o, .thinking = thinking};
    struct said s = {data, data + bytes, NULL, m->tokenizer, h, 0, whole};
    ebro_error err = {0};
    h->n = h->n_shown = h->n_calls = 0;
    h->kind = -1;
    must(ebro_reply_create(m, &o, &s.r, &err) == EBRO_OK);
    say(&s);
    must(!h->in_call && h->n_shown <= s.n_text);
    ebro_reply_destroy(&s.r);
}

/* The first byte chooses format and mode. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    static struct eb_tokenizer *t;
    static struct small_text vocab;
    static struct heard a, b;
    if (bytes < 2 || bytes > MAX_INPUT) return 0;
    if (t == NULL) {
        small_vocab(&vocab);
        must(small_open(&vocab, small_config, strlen(small_config), &t) == EBRO_OK);
    }
    const ebro_model m = {.tokenizer = t,
                          .chat = data[0] & 1 ? EB_CHAT_KIMI_K3 : EB_CHAT_KIMI_LINEAR};
    const int32_t thinking = data[0] & 2;
    listen(&m, thinking, data + 1, bytes - 1, true, &a);
    listen(&m, thinking, data + 1, bytes - 1, false, &b);
    must(a.n == b.n && memcmp(a.text, b.text, a.n) == 0);
    return 0;
}
