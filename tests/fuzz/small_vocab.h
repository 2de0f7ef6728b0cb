/* small_vocab.h: a vocabulary with merges that compete, built in memory for the fuzzers. */
#ifndef EB_FUZZ_SMALL_VOCAB_H
#define EB_FUZZ_SMALL_VOCAB_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/tokenizer.h"

enum { SMALL_TEXT_BYTES = 1 << 14, SMALL_VOCAB = 320 };

struct small_text {
    char p[SMALL_TEXT_BYTES];
    size_t n;
};

/* A crash that a release build keeps too. */
static inline void must(int condition) {
    if (!condition) abort();
}

static inline void small_token(struct small_text *t, const char *p, size_t n, unsigned rank) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < n; i += 3) {
        unsigned bits = 0;
        for (size_t k = 0; k < 3; k++)
            bits = bits << 8 | (i + k < n ? (unsigned)(unsigned char)p[i + k] : 0);
        t->p[t->n++] = digits[bits >> 18];
        t->p[t->n++] = digits[bits >> 12 & 63];
        t->p[t->n++] = i + 1 < n ? digits[bits >> 6 & 63] : '=';
        t->p[t->n++] = i + 2 < n ? digits[bits & 63] : '=';
    }
    t->n += (size_t)snprintf(t->p + t->n, sizeof t->p - t->n, " %u\n", rank);
}

/* Ranks 0 to 255 are the bytes, then merges; returns the number of ranks. */
static inline unsigned small_vocab(struct small_text *t) {
    static const char *const merges[] = {
        "ab",           "bc", "abc", "aa",       "aaa",  "aaaa",     "  ",
        "\n\n",         "th", "he",  "the",      " the", "\xe4\xb8", "\xb8\xad",
        "\xe4\xb8\xad", "ad", "'s",  "\xff\xff", "cab",  "12",       "123"};
    unsigned rank = 0;
    t->n = 0;
    for (; rank < 256; rank++) {
        char c = (char)rank;
        small_token(t, &c, 1, rank);
    }
    for (size_t i = 0; i < sizeof merges / sizeof *merges; i++)
        small_token(t, merges[i], strlen(merges[i]), rank++);
    return rank;
}

static const char small_config[] =
    "{\"added_tokens_decoder\": {\"300\": {\"content\": \"<a>\"}, \"301\": {\"content\": \"<a>b\"},"
    "\"302\": {\"content\": \"<|open|>\"}, \"303\": {\"content\": \"<|close|>\"},"
    "\"304\": {\"content\": \"<|sep|>\"}, \"305\": {\"content\": \"<|end_of_msg|>\"},"
    "\"306\": {\"content\": \"<|im_system|>\"}, \"307\": {\"content\": \"<|im_user|>\"},"
    "\"308\": {\"content\": \"<|im_assistant|>\"}, \"309\": {\"content\": \"<|im_middle|>\"},"
    "\"310\": {\"content\": \"<|im_end|>\"},"
    "\"311\": {\"content\": \"<|tool_calls_section_begin|>\"},"
    "\"312\": {\"content\": \"<|tool_calls_section_end|>\"},"
    "\"313\": {\"content\": \"<|tool_call_begin|>\"},"
    "\"314\": {\"content\": \"<|tool_call_argument_begin|>\"},"
    "\"315\": {\"content\": \"<|tool_call_end|>\"},"
    "\"316\": {\"content\": \"<think>\"}, \"317\": {\"content\": \"</think>\"}}}";

static inline int32_t small_open(const struct small_text *vocab, const char *config, size_t bytes,
                                 struct eb_tokenizer **out) {
    struct eb_bytes v, c;
    ebro_error err = {0};
    eb_bytes_borrow(vocab->p, vocab->n, &v);
    eb_bytes_borrow(config, bytes, &c);
    int32_t st = eb_tokenizer_open(NULL, &v, &c, SMALL_VOCAB, out, &err);
    must((st == EBRO_OK) == (*out != NULL));
    must(st == EBRO_OK || (st == err.status && err.text[0] != '\0'));
    return st;
}

/* Bytes that the ids decode to; where text is not NULL, they must be text[0, n). */
static inline size_t small_decode(const struct eb_tokenizer *t, const struct eb_ids *ids,
                                  const char *text, size_t n) {
    size_t at = 0;
    for (size_t i = 0; i < ids->n; i++) {
        size_t bytes = 0;
        const char *p = eb_token_bytes(t, ids->v[i], &bytes, NULL);
        must(p != NULL && bytes > 0);
        if (text != NULL) must(bytes <= n - at && memcmp(p, text + at, bytes) == 0);
        at += bytes;
    }
    return at;
}

#endif
