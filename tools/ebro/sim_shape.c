/* sim_shape.c: what a model's sequences need of memory, by name or from its config.json alone. */
#include <string.h>

#include "model/arch.h"
#include "model/config.h"
#include "sim.h"

/* Sizes of the public configurations. */
bool eb_sim_shape_named(const char *name, struct eb_sim_shape *out) {
    static const struct {
        const char *name;
        struct eb_sim_shape shape;
    } all[] = {{"kimi-linear-48b",
                {{.n_mla_layers = 7,
                  .n_kda_layers = 20,
                  .row_elements = 512 + 64,
                  .kda_heads = 32,
                  .kda_head_dim = 128},
                 .vocab = 163840}},
               {"kimi-k3",
                {{.n_mla_layers = 24,
                  .n_kda_layers = 69,
                  .row_elements = 512 + 64,
                  .kda_heads = 96,
                  .kda_head_dim = 128},
                 .vocab = 163840}}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (strcmp(name, all[i].name) != 0) continue;
        *out = all[i].shape;
        return true;
    }
    return false;
}

static int32_t text_part(const struct eb_json_node *root, struct eb_json_node *out,
                         ebro_error *err) {
    const struct eb_arch *const archs[] = {&eb_arch_kimi_linear, &eb_arch_kimi_k3};
    const char *name = NULL;
    size_t n;
    int32_t st = eb_json_array(root, "architectures", &n, err);
    if (st == EBRO_OK) st = eb_json_string_at(root, "architectures", 0, &name, err);
    if (st != EBRO_OK) return st;
    *out = *root;
    for (size_t i = 0; i < sizeof archs / sizeof *archs; i++) {
        if (strcmp(archs[i]->class_name, name) != 0) continue;
        if (archs[i]->config_key == NULL) return EBRO_OK;
        return eb_json_object(root, archs[i]->config_key, out, err);
    }
    return eb_fail(err, EBRO_UNSUPPORTED, "config.json: architecture \"%.100s\" (known: %s, %s)",
                   name, archs[0]->class_name, archs[1]->class_name);
}

static int32_t read_shape(const struct eb_bytes *text, struct eb_sim_shape *out, ebro_error *err) {
    const struct eb_alloc alloc = {0};
    struct eb_json doc = {0};
    struct eb_json_node root, node;
    struct eb_config_file file = {0};
    int32_t st = eb_json_open("config.json", text, &doc, err);
    if (st != EBRO_OK) return st;
    root = eb_json_root(&doc);
    if ((st = text_part(&root, &node, err)) == EBRO_OK)
        st = eb_config_read(&alloc, &root, &node, &file, err);
    eb_json_close(&doc);
    if (st != EBRO_OK) return st;
    uint32_t n_kda = 0;
    for (uint32_t l = 0; l < file.c.n_layers; l++) n_kda += (file.layers[l] & EB_LAYER_KDA) != 0;
    *out = (struct eb_sim_shape){
        .shape = {.n_mla_layers = file.c.n_layers - n_kda,
                  .n_kda_layers = n_kda,
                  .row_elements = file.c.kv_lora_rank + file.c.qk_rope_head_dim,
                  .kda_heads = file.c.kda_heads,
                  .kda_head_dim = file.c.kda_head_dim},
        .vocab = file.c.vocab_size};
    eb_free(&alloc, file.layers);
    return EBRO_OK;
}

int32_t eb_sim_shape_of(const void *config, size_t bytes, struct eb_sim_shape *out,
                        ebro_error *err) {
    struct eb_bytes text = {0};
    eb_bytes_borrow(config, bytes, &text);
    return read_shape(&text, out, err);
}

int32_t eb_sim_shape_read(const char *folder, struct eb_sim_shape *out, ebro_error *err) {
    const struct eb_alloc alloc = {0};
    struct eb_bytes text = {0};
    char *path = eb_path_join(&alloc, folder, "config.json", err);
    if (path == NULL) return EBRO_NOMEM_HOST;
    int32_t st = eb_file_map(path, &text, err);
    if (st == EBRO_OK) st = read_shape(&text, out, err);
    eb_bytes_close(&text);
    eb_free(&alloc, path);
    return st == EBRO_OK ? st : eb_while(err, st, "reading the sizes of %s", folder);
}
