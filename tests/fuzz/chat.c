/* chat.c: whatever stands in messages, a conversation has the control tokens of the same one with
 * empty messages, and as many bytes more as the messages have; as JSON it has the same ids. Any
 * other JSON is rendered or refused with a reason. */
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

static void check_json(const struct eb_tokenizer *t, enum eb_chat_family family, const char *json,
                       size_t bytes, const ebro_chat_options *o, const struct eb_ids *want) {
    struct eb_ids ids = {0};
    ebro_error err = {0};
    int32_t st = eb_chat_render_json(t, family, json, bytes, o, &ids, &err);
    if (st != EBRO_OK) {
        must(st == EBRO_INVALID || (st == EBRO_UNSUPPORTED && want == NULL));
        must(err.status == st && err.text[0] != '\0' && ids.n == 0);
    } else if (want != NULL) {
        must(ids.n == want->n);
        must(ids.n == 0 || memcmp(ids.v, want->v, ids.n * sizeof *ids.v) == 0);
    }
    eb_ids_free(NULL, &ids);
}

static size_t put_string(char *out, const char *text) {
    size_t n = 0;
    out[n++] = '"';
    for (; *text != '\0'; text++) {
        unsigned char c = (unsigned char)*text;
        if (c < 0x20 || c == '"' || c == '\\')
            n += (size_t)sprintf(out + n, "\\u%04x", c);
        else
            out[n++] = *text;
    }
    out[n++] = '"';
    return n;
}

/* The messages as JSON; text that is no UTF-8 makes it none. */
static void check_same(const struct eb_tokenizer *t, enum eb_chat_family family,
                       const ebro_chat_message *m, size_t n, const ebro_chat_options *o) {
    static char json[12 * MAX_BYTES + 1024];
    struct eb_ids ids = {0};
    ebro_error err = {0};
    size_t at = (size_t)sprintf(json, "{\"messages\": [");
    for (size_t i = 0; i < n; i++) {
        at += (size_t)sprintf(json + at, "%s{\"role\": \"%s\", \"content\": ", i > 0 ? ", " : "",
                              m[i].role);
        at += put_string(json + at, m[i].content);
        at += (size_t)sprintf(json + at, ", \"reasoning_content\": ");
        at += put_string(json + at, m[i].reasoning);
        at += (size_t)sprintf(json + at, "}");
    }
    at += (size_t)sprintf(json + at, "]}");
    must(eb_chat_render(t, family, m, n, o, &ids, &err) == EBRO_OK);
    check_json(t, family, json, at, o, &ids);
    eb_ids_free(NULL, &ids);
}

/* Messages end at NUL bytes; the first byte of each chooses its role. Or all is JSON. */
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
    if (data[0] & 16) {
        check_json(t, family, text + 1, bytes - 1, &o, NULL);
        return 0;
    }
    bool reasons = family == EB_CHAT_KIMI_K3 && o.thinking != 0;
    for (size_t at = 1; at < bytes && n < MAX_MESSAGES; at += strlen(text + at) + 1, n++) {
        unsigned kind = (unsigned char)text[at] % 3;
        const char *content = text[at] != '\0' ? text + at + 1 : text + at;
        full[n] = (ebro_chat_message){roles[kind], content, content};
        empty[n] = (ebro_chat_message){roles[kind], "", NULL};
        const size_t length = strlen(content);
        const bool blank = strspn(content, " \t\r\n") == length; /* no reasoning then */
        extra += length * (kind == 2 && reasons && !blank ? 2 : 1);
    }
    struct rendered a = render(t, family, full, n, &o), b = render(t, family, empty, n, &o);
    must(a.n_special == b.n_special && a.bytes == b.bytes + extra);
    check_same(t, family, full, n, &o);
    return 0;
}
