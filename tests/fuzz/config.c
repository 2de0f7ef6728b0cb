/* config.c: a model that opens, with one of its small files edited or replaced: whatever stands
 * there, it is opened and usable or refused with a text. The first byte chooses the model, the file
 * and whether the rest replaces it or is put into it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/harness/micro.h"

enum { MAX_BYTES = 1 << 16 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void must(int condition) {
    if (!condition) abort();
}

static const struct micro_spec specs[] = {
    {.family = MICRO_LINEAR, .pattern = "KM", .ffn = MICRO_MOE, .n_shards = 2},
    {.family = MICRO_K3,
     .pattern = "KM",
     .ffn = MICRO_LATENT,
     .q_lora = true,
     .situ = true,
     .attn_res_block = 1,
     .mla_gate = MICRO_GATE_HEAD,
     .bounded_gate = true,
     .n_shards = 2}};
enum { N_SPECS = (int)(sizeof specs / sizeof specs[0]) };

static const char *const names[] = {"config.json", "generation_config.json",
                                    "tokenizer_config.json", "model.safetensors.index.json"};

/* Four bytes say where and how much goes; the rest comes instead. Returns the bytes of the new
 * file. */
static size_t edit(const ebro_file *f, const uint8_t *data, size_t bytes, char *out) {
    if (bytes < 4) return 0;
    size_t at = ((size_t)data[0] << 8 | data[1]) % (f->bytes + 1);
    size_t gone = ((size_t)data[2] << 8 | data[3]) % (f->bytes - at + 1), added = bytes - 4;
    memcpy(out, f->data, at);
    memcpy(out + at, data + 4, added);
    memcpy(out + at + added, (const char *)f->data + at + gone, f->bytes - at - gone);
    return f->bytes - gone + added;
}

/* An opened model answers what it is asked. */
static void use(ebro_model *m) {
    static const char text[] = "Hello <|im_end|> \xff 12345";
    const ebro_chat_message message = {.role = "user", .content = text};
    ebro_error err = {0};
    ebro_model_info info;
    int32_t ids[512];
    size_t n = 0, total = 0;
    ebro_model_get_info(m, &info);
    must(info.n_layers == info.n_kda_layers + info.n_mla_layers && info.hidden > 0);
    must(ebro_token_bos(m) >= -1 && ebro_token_bos(m) < (int32_t)info.vocab);
    must(ebro_tokenize(m, text, sizeof text - 1, 0, ids, 512, &n, &err) == EBRO_OK && n <= 512);
    for (size_t i = 0; i < n; i++) {
        size_t length = 0;
        must(ids[i] >= 0 && (uint32_t)ids[i] < info.vocab);
        must(ebro_token_bytes(m, ids[i], &length, NULL) != NULL);
        total += length;
    }
    must(total == sizeof text - 1);
    /* A vocabulary without the control tokens of its format is refused here. */
    int32_t st = ebro_chat_tokenize(m, &message, 1, NULL, ids, 512, &n, &err);
    must(st == EBRO_OK || (st == err.status && err.text[0] != '\0'));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    static ebro_runtime *rt;
    static struct micro_files models[N_SPECS];
    static char changed[MAX_BYTES];
    ebro_error err = {0};
    ebro_model *m = NULL;
    if (rt == NULL) {
        const ebro_runtime_options o = {.size = sizeof o, .module_dir = "/"};
        must(ebro_runtime_open(&o, &rt, &err) == EBRO_OK);
        for (int i = 0; i < N_SPECS; i++) {
            models[i] = micro_make(&specs[i]);
            const ebro_model_options whole = {
                .size = sizeof whole, .files = models[i].files, .n_files = models[i].n};
            must(ebro_model_open(rt, &whole, &m, &err) == EBRO_OK);
            ebro_model_close(&m);
        }
    }
    if (bytes < 1 || bytes > MAX_BYTES / 4) return 0;
    const struct micro_files *files = &models[(data[0] & 1) % N_SPECS];
    ebro_file *file = micro_file(files, names[data[0] >> 1 & 3]);
    must(file != NULL && file->bytes < MAX_BYTES / 2);
    const ebro_file kept = *file;
    if ((data[0] >> 3 & 1) != 0) {
        memcpy(changed, data + 1, bytes - 1);
        file->bytes = bytes - 1;
    } else {
        file->bytes = edit(&kept, data + 1, bytes - 1, changed);
    }
    file->data = changed;
    const ebro_model_options o = {.size = sizeof o, .files = files->files, .n_files = files->n};
    int32_t st = ebro_model_open(rt, &o, &m, &err);
    must((st == EBRO_OK) == (m != NULL));
    must(st == EBRO_OK || (st == err.status && err.text[0] != '\0'));
    if (m != NULL) use(m);
    ebro_model_close(&m);
    *file = kept;
    return 0;
}
