/* chat.c: whatever stands in messages, a conversation has the control tokens of the same one with
 * empty messages, and as many bytes more as the messages have. */
#include "tests/fuzz/small_vocab.h"

#include "model/chat.h"

enum { MAX_MESSAGES = 8, MAX_BYTES = 4096 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

struct rendered {
    size_t bytes, n_special;
};

static struct rendered render(const struct eb_tokenizer *t, enum eb_chat_family family,
                              const ebro_chat_message *m, size_t n, const ebro_chat_options *o) {
    struct eb_ids ids = {0};
    ebro_error err = {0};
    struct rendered r = {0};
    must(eb_chat_render(t, family, m, n, o, &ids, &err) == EBRO_OK);
    r.bytes = small_decode(t, &ids, NULL, 0);
    for (size_t i = 0; i < ids.n; i++) r.n_special += (uint32_t)ids.v[i] >= eb_tokenizer_n_ranks(t);
    eb_ids_free(NULL, &ids);
    return r;
}

/* Messages end at NUL bytes; the first byte of each chooses its role. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    static const char *const roles[] = {"system", "user", "assistant"};
    static struct eb_tokenizer *t;
    static struct small_text vocab;
    char text[MAX_BYTES + 1];
    ebro_chat_message full[MAX_MESSAGES], empty[MAX_MESSAGES];
    size_t n = 0, extra = 0;
    if (bytes < 2 || bytes > MAX_BYTES) return 0;
    if (t == NULL) {
        small_vocab(&vocab);
        must(small_open(&vocab, small_config, strlen(small_config), &t) == EBRO_OK);
    }
    memcpy(text, data, bytes);
    text[bytes] = '\0';
    enum eb_chat_family family = data[0] & 1 ? EB_CHAT_KIMI_K3 : EB_CHAT_KIMI_LINEAR;
    ebro_chat_options o = {.size = sizeof o, .thinking = data[0] & 2};
    o.no_generation_prompt = data[0] & 4;
    o.thinking_effort = data[0] & 8 ? "low" : NULL;
    bool reasons = family == EB_CHAT_KIMI_K3 && o.thinking != 0;
    for (size_t at = 1; at < bytes && n < MAX_MESSAGES; at += strlen(text + at) + 1, n++) {
        unsigned kind = (unsigned char)text[at] % 3;
        const char *content = text[at] != '\0' ? text + at + 1 : text + at;
        full[n] = (ebro_chat_message){roles[kind], content, content};
        empty[n] = (ebro_chat_message){roles[kind], "", NULL};
        extra += strlen(content) * (kind == 2 && reasons ? 2 : 1);
    }
    struct rendered a = render(t, family, full, n, &o), b = render(t, family, empty, n, &o);
    must(a.n_special == b.n_special && a.bytes == b.bytes + extra);
    return 0;
}
