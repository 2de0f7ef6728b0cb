/* tiny.h: the two tokenizers that tests of text are about, over the demo model's vocabulary: Kimi
 * K3's control tokens, and Kimi Linear's. For cmocka's group fixtures. */
#ifndef EB_TEST_TINY_H
#define EB_TEST_TINY_H

#include "model/tokenizer.h"
#include "tests/harness/test.h"

enum { TINY_VOCAB = 4352 };

static struct eb_bytes tiny_vocab, tiny_k3_config, tiny_linear_config;
static struct eb_tokenizer *k3, *linear;

static void tiny_map(const char *dir, const char *name, struct eb_bytes *out) {
    ebro_error err = {0};
    char *path = eb_path_join(NULL, dir, name, &err);
    assert_non_null(path);
    test_ok(eb_file_map(path, out, &err), &err);
    eb_free(NULL, path);
}

static int tiny_open(void **state) {
    (void)state;
    ebro_error err = {0};
    tiny_map(test_demo_dir(), "tiktoken.model", &tiny_vocab);
    tiny_map(test_demo_dir(), "tokenizer_config.json", &tiny_k3_config);
    tiny_map(test_golden_dir(), "linear_tokenizer_config.json", &tiny_linear_config);
    test_ok(eb_tokenizer_open(NULL, &tiny_vocab, &tiny_k3_config, TINY_VOCAB, &k3, &err), &err);
    test_ok(eb_tokenizer_open(NULL, &tiny_vocab, &tiny_linear_config, TINY_VOCAB, &linear, &err),
            &err);
    return 0;
}

static int tiny_close(void **state) {
    (void)state;
    eb_tokenizer_close(&k3);
    eb_tokenizer_close(&linear);
    assert_null(k3);
    eb_bytes_close(&tiny_vocab);
    eb_bytes_close(&tiny_k3_config);
    eb_bytes_close(&tiny_linear_config);
    return 0;
}

#endif
