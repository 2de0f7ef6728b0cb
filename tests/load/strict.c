/* strict.c: 32 streams at once from `ebro serve --strict` say, each, what they say alone (HD-07),
 * byte for byte. Alone they come from a server that keeps nothing from one to the next. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/harness/micro.h"
#include "tests/harness/process.h"
#include "tests/harness/test.h"
#include "tests/load/server.h"
#include "tests/load/texts.h"

enum { N = 32, N_TOKENS = 40, SECONDS = 600 };

static struct load_text together[N], alone[N];

/* Half of them greedy, half drawn. */
static void run(struct load_text *texts, const char *const *options, uint32_t at_once,
                uint64_t seed) {
    struct load_server server;
    load_server_start(&server, options);
    struct load_client *client = load_client_open(server.port, at_once);
    for (uint32_t i = 0; i < N; i += at_once) {
        for (uint32_t k = 0; k < at_once; k++) {
            load_text_make(&texts[i + k], i + k, N_TOKENS, (i + k) % 2 ? seed : 0);
            load_text_start(&texts[i + k], client, k);
        }
        assert_true(load_run(client, SECONDS));
    }
    load_client_close(&client);
    assert_int_equal(load_server_stop(&server, 60), 0);
}

static void check(const char *model) {
    const char *const many[] = {"--strict", "--parallel", "32", "-c", "256", model, NULL};
    const char *const one[] = {"--strict", "--parallel", "1",   "-c", "256",
                               "--keep",   "none",       model, NULL};
    const uint64_t seed = test_seed() >> 1 | 1; /* JSON has no larger whole numbers */
    run(together, many, N, seed);
    run(alone, one, 1, seed);
    for (uint32_t i = 0; i < N; i++) {
        load_text_check(&together[i]);
        load_text_check(&alone[i]);
        assert_int_equal(together[i].n_tokens, N_TOKENS);
        if (together[i].n_text != alone[i].n_text ||
            memcmp(together[i].text, alone[i].text, alone[i].n_text) != 0)
            fail_msg("text %u: \"%s\" beside others, \"%s\" alone", i, together[i].text,
                     alone[i].text);
        load_text_free(&together[i]);
        load_text_free(&alone[i]);
    }
}

static void streams_say_what_they_say_alone(void **state) {
    (void)state;
    /* The demo model takes minutes under a sanitizer. */
    const struct micro_spec spec = {.seed = 4, .family = MICRO_K3, .ffn = MICRO_LATENT};
    char *dir = test_is_sanitized() ? test_tmp_dir() : NULL;
    char model[512];
    if (dir != NULL) {
        micro_write(dir, &spec);
        snprintf(model, sizeof model, "--model=%s", dir);
    }
    check(dir != NULL ? model : NULL);
    test_tmp_remove(&dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(streams_say_what_they_say_alone),
    };
    return cmocka_run_group_tests_name("load/strict", tests, NULL, NULL);
}
