/* tokenizer.c: any text comes back from its ids; any bytes as lines of the vocabulary or as the
 * configuration are opened or refused, never more. The first byte chooses. */
#include "tests/fuzz/small_vocab.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static int32_t add_piece(void *user, const char *p, size_t n, ebro_error *err) {
    const char **at = user;
    (void)err;
    must(p == *at && n > 0);
    *at += n;
    return EBRO_OK;
}

static void round_trip(const struct eb_tokenizer *t, const char *text, size_t n) {
    ebro_error err = {0};
    const char *at = text;
    must(eb_tokenizer_split(t, text, n, add_piece, &at, &err) == EBRO_OK && at == text + n);
    for (int special = 0; special < 2; special++) {
        struct eb_ids ids = {0};
        must(eb_tokenizer_encode(t, text, n, special != 0, &ids, &err) == EBRO_OK);
        must(small_decode(t, &ids, text, n) == n);
        for (size_t i = 0; i < ids.n && special == 0; i++)
            must((uint32_t)ids.v[i] < eb_tokenizer_n_ranks(t));
        eb_ids_free(NULL, &ids);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    static const char sample[] = "Hello <a>b \xff 12345 <|reserved_token_319|>";
    static struct eb_tokenizer *whole;
    static struct small_text vocab;
    const char *rest = (const char *)data + 1;
    struct eb_tokenizer *t = NULL;
    if (bytes == 0) return 0;
    size_t n = bytes - 1;
    small_vocab(&vocab);
    if (whole == NULL) must(small_open(&vocab, small_config, strlen(small_config), &whole) == 0);
    switch (data[0] % 4) {
        case 0:
            if (n > sizeof vocab.p - vocab.n) return 0;
            memcpy(vocab.p + vocab.n, rest, n);
            vocab.n += n;
            small_open(&vocab, small_config, strlen(small_config), &t);
            break;
        case 1:
            small_open(&vocab, rest, n, &t);
            break;
        default:
            round_trip(whole, rest, n);
    }
    if (t != NULL) round_trip(t, sample, sizeof sample);
    eb_tokenizer_close(&t);
    return 0;
}
