/* grammar.c: whatever is given as a schema, or as the parameters of a tool, is refused with a
 * reason or becomes a grammar, in bounded time; and what that grammar's masks let pass, chosen at
 * random, is JSON where the reply comes to an end. The first byte says how the schema is used, four
 * more are the seed of the choices. */
#include <jansson.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "tests/harness/micro.h"
#include "tools/serve/grammar.h"

enum { HEADER = 5, MAX_TOKENS = 200, WORDS = (MICRO_VOCAB + 31) / 32 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

#define must(condition) ((condition) ? (void)0 : abort())

static ebro_model *model;
static struct eb_vocab *vocab;

static void open_model(void) {
    static ebro_runtime *rt;
    static struct micro_files files; /* the model reads them in place */
    const struct micro_spec spec = {.family = MICRO_K3};
    files = micro_make(&spec);
    const ebro_runtime_options ro = {.size = sizeof ro, .module_dir = "/"};
    const ebro_model_options mo = {.size = sizeof mo, .files = files.files, .n_files = files.n};
    must(ebro_runtime_open(&ro, &rt, NULL) == EBRO_OK);
    must(ebro_model_open(rt, &mo, &model, NULL) == EBRO_OK);
    must(eb_vocab_create(model, &vocab, NULL) == EBRO_OK);
}

/* An allowed token; quotes and brackets that close come first now and then, so that walks end. */
static int32_t choose(const uint32_t *mask, uint32_t *seed) {
    static const char closers[] = "\"}]";
    int32_t allowed[MICRO_VOCAB];
    uint32_t n = 0;
    *seed = *seed * 1664525u + 1013904223u;
    for (int32_t id = 0; id < MICRO_VOCAB; id++)
        if ((mask[id / 32] >> (id % 32) & 1) != 0) allowed[n++] = id;
    must(n > 0);
    int32_t closer = closers[(*seed >> 8) % 3];
    if ((*seed >> 28) < 8 && (mask[closer / 32] >> (closer % 32) & 1) != 0) return closer;
    return allowed[(*seed >> 8) % n];
}

/* Tells whether the reply came to its end. */
static bool walk(struct eb_walk *w, uint32_t seed, char *text, size_t *n) {
    ebro_error err = {0};
    for (int i = 0; i < MAX_TOKENS; i++) {
        uint32_t mask[WORDS];
        int32_t st = eb_walk_mask(w, mask, &err);
        if (st == EBRO_UNSUPPORTED) return false; /* too ambiguous */
        must(st == EBRO_OK);
        int32_t id = choose(mask, &seed);
        must(eb_walk_allows(w, id));
        st = eb_walk_accept(w, id, &err);
        must(st == EBRO_OK);
        if (ebro_token_is_stop(model, id)) return true;
        if (id < MICRO_RANKS) text[(*n)++] = (char)id;
    }
    return false;
}

static void use(const struct eb_grammar *g, uint32_t seed, bool plain) {
    struct eb_walk *w = NULL;
    ebro_error err = {0};
    char text[MAX_TOKENS];
    size_t n = 0;
    int32_t st = eb_walk_create(g, vocab, &w, &err);
    must(st == EBRO_OK || st == EBRO_UNSUPPORTED);
    if (st == EBRO_OK && walk(w, seed, text, &n) && plain) {
        json_t *v = json_loadb(text, n, JSON_DECODE_ANY, NULL);
        must(v != NULL);
        json_decref(v);
    }
    eb_walk_destroy(&w);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    if (model == NULL) open_model();
    if (bytes < HEADER) return 0;
    bool plain = data[0] % 2 == 0;
    uint32_t seed = (uint32_t)data[1] | (uint32_t)data[2] << 8 | (uint32_t)data[3] << 16 |
                    (uint32_t)data[4] << 24;
    json_t *schema = json_loadb((const char *)data + HEADER, bytes - HEADER, JSON_DECODE_ANY, NULL);
    if (schema == NULL) return 0;
    json_t *tools = json_pack("[{s:{s:s,s:O}}]", "function", "name", "f", "parameters", schema);
    const struct eb_grammar_spec spec = {.model = model,
                                         .chat = !plain,
                                         .content = EB_CONTENT_JSON_SCHEMA,
                                         .schema = schema,
                                         .tools = plain ? NULL : tools,
                                         .parallel_calls = data[0] / 2 % 2 != 0};
    struct eb_grammar *g = NULL;
    ebro_error err = {0};
    int32_t st = eb_grammar_create(&spec, &g, &err);
    must((st == EBRO_OK) == (g != NULL));
    if (st != EBRO_OK) {
        must(st == EBRO_INVALID || st == EBRO_UNSUPPORTED);
        must(err.status == st && err.text[0] != '\0');
    } else {
        use(g, seed, plain);
    }
    eb_grammar_destroy(&g);
    json_decref(tools);
    json_decref(schema);
    return 0;
}
