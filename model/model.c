/* model.c: opens a model: files -> configuration -> weights -> plan -> tokenizer; and the public
 * calls on one. Not its job: any of those parts itself. */
#include "model/model.h"

#include <stdio.h>
#include <string.h>

#include "model/arch.h"
#include "model/plan.h"
#include "model/shards.h"

static const struct eb_arch *const archs[] = {&eb_arch_kimi_linear, &eb_arch_kimi_k3};
enum { N_ARCHS = (int)(sizeof archs / sizeof archs[0]) };

static int32_t find_arch(const struct eb_json_node *root, const struct eb_arch **out,
                         ebro_error *err) {
    size_t n;
    const char *name;
    int32_t st = eb_json_array(root, "architectures", &n, err);
    if (st != EBRO_OK) return st;
    if ((st = eb_json_string_at(root, "architectures", 0, &name, err)) != EBRO_OK) return st;
    for (int i = 0; i < N_ARCHS; i++)
        if (strcmp(archs[i]->class_name, name) == 0) {
            *out = archs[i];
            return EBRO_OK;
        }
    char known[256] = "";
    size_t at = 0;
    for (int i = 0; i < N_ARCHS && at < sizeof known; i++)
        at += (size_t)snprintf(known + at, sizeof known - at, "%s%s", i > 0 ? ", " : "",
                               archs[i]->class_name);
    return eb_fail(err, EBRO_UNSUPPORTED, "%s: architecture \"%.100s\" (known: %s)", root->file,
                   name, known);
}

/* More stop tokens, where the folder has the file. */
static int32_t read_generation_config(const struct eb_source *source, struct eb_config_file *file,
                                      ebro_error *err) {
    static const char name[] = "generation_config.json";
    struct eb_bytes text;
    struct eb_json doc = {0};
    bool there;
    int32_t st = eb_source_has(source, name, &there, err);
    if (st != EBRO_OK || !there) return st;
    if ((st = eb_source_open(source, name, &text, err)) != EBRO_OK) return st;
    if ((st = eb_json_open(name, &text, &doc, err)) == EBRO_OK) {
        struct eb_json_node root = eb_json_root(&doc);
        st = eb_config_add_stops(&root, file, err);
    }
    eb_json_close(&doc);
    return eb_source_close(name, &text, st, err);
}

static int32_t read_config(const struct eb_source *source, const struct eb_alloc *a,
                           const struct eb_arch **arch, struct eb_config_file *file,
                           ebro_error *err) {
    static const char name[] = "config.json";
    struct eb_bytes text = {0};
    struct eb_json doc = {0};
    struct eb_json_node root, node;
    bool there;
    int32_t st = eb_source_has(source, name, &there, err);
    if (st != EBRO_OK) return st;
    if (!there)
        return eb_fail(err, EBRO_INVALID,
                       "no config.json: wanted a model in the Hugging Face layout");
    if ((st = eb_source_open(source, name, &text, err)) != EBRO_OK) return st;
    if ((st = eb_json_open(name, &text, &doc, err)) != EBRO_OK) goto out;
    node = root = eb_json_root(&doc);
    if ((st = find_arch(&root, arch, err)) != EBRO_OK) goto out;
    if ((*arch)->config_key != NULL &&
        (st = eb_json_object(&root, (*arch)->config_key, &node, err)) != EBRO_OK)
        goto out;
    st = eb_config_read(a, &root, &node, file, err);
out:
    eb_json_close(&doc);
    st = eb_source_close(name, &text, st, err);
    return st == EBRO_OK ? read_generation_config(source, file, err) : st;
}

/* Configuration into the model: everything but tensors and tokenizer. */
static int32_t adopt_config(struct ebro_model *m, const struct eb_arch *arch,
                            const struct eb_config_file *file, const ebro_model_options *options,
                            ebro_error *err) {
    m->config = file->c;
    m->config.latent_norm_eps = options->latent_norm_eps > 0.0f ? options->latent_norm_eps : 1e-6f;
    m->config.biased_expert_weights = options->biased_expert_weights != 0;
    m->chat = arch->chat;
    memcpy(m->architecture, arch->name, strlen(arch->name) + 1);
    m->bos = file->bos;
    memcpy(m->stop_ids, file->stop_ids, sizeof m->stop_ids);
    m->n_stop = file->n_stop;
    m->layers = eb_calloc(&m->alloc, file->c.n_layers, sizeof *m->layers, err);
    if (m->layers == NULL) return EBRO_NOMEM_HOST;
    for (uint32_t l = 0; l < file->c.n_layers; l++) {
        m->layers[l].is_kda = (file->layers[l] & EB_LAYER_KDA) != 0;
        m->layers[l].is_moe = (file->layers[l] & EB_LAYER_MOE) != 0;
    }
    return EBRO_OK;
}

static int32_t bind_plan(struct ebro_model *m, const struct eb_arch *arch,
                         const struct eb_config_file *file, ebro_error *err) {
    struct eb_binder b = {
        .m = m, .file = file, .prefix = arch->prefix, .skip_prefixes = arch->skip_prefixes};
    int32_t st = eb_binder_init(&b, err);
    if (st == EBRO_OK) st = eb_kimi_bind(&b, err);
    eb_binder_free(&b);
    return st;
}

static int32_t open_tokenizer(const struct eb_source *source, struct ebro_model *m,
                              ebro_error *err) {
    static const char config_name[] = "tokenizer_config.json", vocab_name[] = "tiktoken.model";
    struct eb_bytes vocab = {0}, config = {0};
    bool there;
    int32_t st = eb_source_has(source, config_name, &there, err);
    if (st != EBRO_OK) return st;
    if ((st = eb_source_open(source, vocab_name, &vocab, err)) != EBRO_OK) return st;
    eb_bytes_borrow("", 0, &config);
    if (there && (st = eb_source_open(source, config_name, &config, err)) != EBRO_OK) goto out;
    /* To the tokenizer no bytes mean no file. */
    if (there && config.bytes == 0) {
        st = eb_fail(err, EBRO_FORMAT, "%s: the file is empty (wanted a JSON object)", config_name);
        goto out;
    }
    st = eb_tokenizer_open(&m->alloc, &vocab, &config, m->config.vocab_size, &m->tokenizer, err);
out:
    st = eb_source_close(config_name, &config, st, err);
    return eb_source_close(vocab_name, &vocab, st, err);
}

/* The caller's struct may be older and shorter than ours. */
static int32_t copy_options(const ebro_model_options *options, ebro_model_options *out,
                            ebro_error *err) {
    const size_t least = offsetof(ebro_model_options, path) + sizeof options->path;
    memset(out, 0, sizeof *out);
    if (options == NULL) return eb_fail(err, EBRO_INVALID, "options is NULL");
    if (options->size < least)
        return eb_fail(err, EBRO_INVALID, "options.size is %zu, wanted at least %zu", options->size,
                       least);
    memcpy(out, options, options->size < sizeof *out ? options->size : sizeof *out);
    if (!(out->latent_norm_eps >= 0.0f && out->latent_norm_eps <= 1.0f))
        return eb_fail(err, EBRO_INVALID, "options.latent_norm_eps is %g, wanted 0 to 1",
                       (double)out->latent_norm_eps);
    return EBRO_OK;
}

int32_t ebro_model_open(ebro_runtime *runtime, const ebro_model_options *options, ebro_model **out,
                        ebro_error *err) {
    ebro_model_options o;
    struct eb_source source;
    struct eb_config_file file = {0};
    const struct eb_arch *arch = NULL;
    struct ebro_model *m = NULL;
    struct eb_progress progress;
    if (out == NULL) return eb_fail(err, EBRO_INVALID, "out is NULL");
    *out = NULL;
    if (runtime == NULL) return eb_fail(err, EBRO_INVALID, "runtime is NULL");
    int32_t st = copy_options(options, &o, err);
    if (st != EBRO_OK) return st;
    if ((st = eb_source_init(&runtime->alloc, &o, &source, err)) != EBRO_OK) return st;

    m = eb_calloc(&runtime->alloc, 1, sizeof *m, err);
    if (m == NULL) return EBRO_NOMEM_HOST;
    m->rt = runtime;
    m->alloc = runtime->alloc;
    progress = (struct eb_progress){o.progress, o.progress_user};
    st = eb_progress_tell(&progress, "reading the configuration", 0.0, err);
    if (st != EBRO_OK) goto out;
    if ((st = read_config(&source, &m->alloc, &arch, &file, err)) != EBRO_OK) goto out;
    if ((st = adopt_config(m, arch, &file, &o, err)) != EBRO_OK) goto out;
    if ((st = eb_shards_open(&source, m, &progress, err)) != EBRO_OK) goto out;
    if ((st = bind_plan(m, arch, &file, err)) != EBRO_OK) goto out;
    st = eb_progress_tell(&progress, "reading the vocabulary", 0.8, err);
    if (st != EBRO_OK) goto out;
    if ((st = open_tokenizer(&source, m, err)) != EBRO_OK) goto out;
    if ((st = eb_progress_tell(&progress, "opening the model", 1.0, err)) != EBRO_OK) goto out;
out:
    if (eb_shards_check(m, err) != EBRO_OK) st = EBRO_IO;
    if (st == EBRO_OK) {
        *out = m;
        m = NULL;
    }
    eb_free(&runtime->alloc, file.layers);
    ebro_model_close(&m);
    return st == EBRO_OK ? st
                         : eb_while(err, st, "opening the model in %s", eb_source_name(&source));
}

void ebro_model_close(ebro_model **model) {
    if (model == NULL || *model == NULL) return;
    struct ebro_model *m = *model;
    const struct eb_alloc a = m->alloc;
    *model = NULL;
    eb_tokenizer_close(&m->tokenizer);
    for (uint32_t l = 0; m->layers != NULL && l < m->config.n_layers; l++)
        eb_free(&a, m->layers[l].experts[0]); /* one block for all three */
    eb_free(&a, m->layers);
    eb_shards_close(m);
    eb_free(&a, m);
}

uint32_t eb_model_count_kda(const struct ebro_model *m) {
    uint32_t n = 0;
    for (uint32_t l = 0; l < m->config.n_layers; l++) n += m->layers[l].is_kda;
    return n;
}

uint64_t eb_model_state_bytes(const struct eb_config *c, uint32_t n_kda_layers, int32_t dtype) {
    const uint64_t width = (uint64_t)c->kda_heads * c->kda_head_dim;
    const uint64_t element = dtype == EBRO_F32 ? 4 : 2;
    const uint64_t windows = 3 * (EBRO_CONV_WIDTH - 1) * width * 4;
    return n_kda_layers * (width * c->kda_head_dim * element + windows);
}

/* A tied head is the embedding once more; nothing else plays two parts. */
static int32_t add_bytes(void *user, const struct eb_tensor *t, ebro_error *err) {
    (void)err;
    *(uint64_t *)user += t->bytes;
    return EBRO_OK;
}

void ebro_model_get_info(const ebro_model *model, ebro_model_info *out) {
    if (out == NULL) return;
    memset(out, 0, sizeof *out);
    if (model == NULL) return;
    const struct eb_config *c = &model->config;
    ebro_model_info info = {.n_layers = c->n_layers,
                            .n_kda_layers = eb_model_count_kda(model),
                            .hidden = c->hidden_size,
                            .vocab = c->vocab_size,
                            .max_context = c->max_context};
    memcpy(info.architecture, model->architecture, sizeof info.architecture);
    info.n_mla_layers = info.n_layers - info.n_kda_layers;
    info.state_bytes = eb_model_state_bytes(c, info.n_kda_layers, EBRO_F32);
    info.cache_row_elements = (uint64_t)info.n_mla_layers * (c->kv_lora_rank + c->qk_rope_head_dim);
    eb_plan_each(model, add_bytes, &info.weight_bytes, NULL);
    if (model->lm_head.w == model->embed.w) info.weight_bytes -= model->embed.w->bytes;
    *out = info;
}

/* ---- tokens and chat -------------------------------------------------------------------- */

/* Hands ids to the caller by the capacity rule of the public calls, and frees them. */
static int32_t give_ids(const struct ebro_model *m, struct eb_ids *list, int32_t *ids,
                        size_t capacity, size_t *n, ebro_error *err) {
    int32_t st = EBRO_OK;
    size_t give = list->n < capacity ? list->n : capacity;
    *n = list->n;
    if (give > 0) memcpy(ids, list->v, give * sizeof *ids);
    if (list->n > capacity)
        st = eb_fail(err, EBRO_INVALID, "%zu ids do not fit into a capacity of %zu", list->n,
                     capacity);
    eb_ids_free(&m->alloc, list);
    return st;
}

static int32_t check_output(const ebro_model *model, const int32_t *ids, size_t capacity,
                            const size_t *n, ebro_error *err) {
    if (model == NULL) return eb_fail(err, EBRO_INVALID, "model is NULL");
    if (n == NULL) return eb_fail(err, EBRO_INVALID, "n is NULL");
    if (ids == NULL && capacity > 0)
        return eb_fail(err, EBRO_INVALID, "ids is NULL with a capacity of %zu", capacity);
    return EBRO_OK;
}

int32_t ebro_tokenize(const ebro_model *model, const char *text, size_t bytes, int32_t special,
                      int32_t *ids, size_t capacity, size_t *n, ebro_error *err) {
    struct eb_ids list = {0};
    int32_t st = check_output(model, ids, capacity, n, err);
    if (st != EBRO_OK) return st;
    *n = 0;
    if (text == NULL && bytes > 0) return eb_fail(err, EBRO_INVALID, "text is NULL");
    st = eb_tokenizer_encode(model->tokenizer, text != NULL ? text : "", bytes, special != 0, &list,
                             err);
    if (st == EBRO_OK) return give_ids(model, &list, ids, capacity, n, err);
    eb_ids_free(&model->alloc, &list);
    return st;
}

const char *ebro_token_bytes(const ebro_model *model, int32_t id, size_t *bytes,
                             int32_t *is_special) {
    bool special = false;
    size_t length = 0;
    const char *p = model != NULL ? eb_token_bytes(model->tokenizer, id, &length, &special) : NULL;
    if (bytes != NULL) *bytes = p != NULL ? length : 0;
    if (is_special != NULL) *is_special = p != NULL && special;
    return p;
}

int32_t ebro_token_bos(const ebro_model *model) {
    return model != NULL ? model->bos : -1;
}

int32_t ebro_token_is_stop(const ebro_model *model, int32_t id) {
    for (uint32_t i = 0; model != NULL && i < model->n_stop; i++)
        if (model->stop_ids[i] == id) return 1;
    return 0;
}

int32_t ebro_chat_tokenize(const ebro_model *model, const ebro_chat_message *messages,
                           size_t n_messages, const ebro_chat_options *options, int32_t *ids,
                           size_t capacity, size_t *n, ebro_error *err) {
    struct eb_ids list = {0};
    int32_t st = check_output(model, ids, capacity, n, err);
    if (st != EBRO_OK) return st;
    *n = 0;
    if (messages == NULL && n_messages > 0) return eb_fail(err, EBRO_INVALID, "messages is NULL");
    st = eb_chat_render(model->tokenizer, model->chat, messages, n_messages, options, &list, err);
    if (st == EBRO_OK) return give_ids(model, &list, ids, capacity, n, err);
    eb_ids_free(&model->alloc, &list);
    return st;
}

int32_t ebro_chat_tokenize_json(const ebro_model *model, const char *json, size_t bytes,
                                const ebro_chat_options *options, int32_t *ids, size_t capacity,
                                size_t *n, ebro_error *err) {
    struct eb_ids list = {0};
    int32_t st = check_output(model, ids, capacity, n, err);
    if (st != EBRO_OK) return st;
    *n = 0;
    if (json == NULL) return eb_fail(err, EBRO_INVALID, "json is NULL");
    st = eb_chat_render_json(model->tokenizer, model->chat, json, bytes, options, &list, err);
    if (st == EBRO_OK) return give_ids(model, &list, ids, capacity, n, err);
    eb_ids_free(&model->alloc, &list);
    return st;
}
