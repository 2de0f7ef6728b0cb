/* demo.c: see demo.h. */
#include "tests/harness/demo.h"

#include <stdio.h>
#include <stdlib.h>

static void *read_one(const char *name, size_t *bytes) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", test_demo_dir(), name);
    return test_read_file(path, bytes);
}

void test_demo_open(struct test_demo *d) {
    static const char *const names[TEST_DEMO_FILES] = {"config.json", "generation_config.json",
                                                       "tokenizer_config.json", "tiktoken.model",
                                                       "model.safetensors"};
    for (int i = 0; i < TEST_DEMO_FILES; i++) {
        d->files[i].name = names[i];
        d->files[i].data = read_one(names[i], &d->files[i].bytes);
    }
    d->golden = read_one("golden.bin", &d->golden_bytes);
}

void test_demo_close(struct test_demo *d) {
    for (int i = 0; i < TEST_DEMO_FILES; i++) free((void *)d->files[i].data);
    free(d->golden);
}
