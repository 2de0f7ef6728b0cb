/* inspect.c: the public calls that say what a model is made of: layers and tensors. Not its job:
 * what it takes on a device (runtime/engine/estimate.c). */
#include <string.h>

#include "model/plan.h"

int32_t ebro_model_get_layer(const ebro_model *model, uint32_t layer, ebro_layer_info *out,
                             ebro_error *err) {
    if (model == NULL || out == NULL)
        return eb_fail(err, EBRO_INVALID, "ebro_model_get_layer: model and out must not be NULL");
    if (out->size < sizeof out->size)
        return eb_fail(err, EBRO_INVALID,
                       "ebro_layer_info.size is %zu: set it to sizeof the struct", out->size);
    if (layer >= model->config.n_layers)
        return eb_fail(err, EBRO_INVALID, "layer %u: the model has 0 to %u", layer,
                       model->config.n_layers - 1);
    const struct eb_layer *y = &model->layers[layer];
    ebro_layer_info info = {.size = out->size, .is_kda = y->is_kda, .is_moe = y->is_moe};
    if (y->is_moe) {
        info.n_experts = model->config.n_experts;
        info.top_k = model->config.experts_per_token;
    }
    memcpy(out, &info, out->size < sizeof info ? out->size : sizeof info);
    return EBRO_OK;
}

struct walk {
    const struct ebro_model *m;
    int32_t (*each)(void *user, const ebro_tensor_info *info);
    void *user;
    int32_t result;
};

static int32_t tell(void *user, const struct eb_plan_entry *entry, ebro_error *err) {
    struct walk *w = user;
    const struct eb_tensor *t = entry->tensor;
    (void)err;
    /* a tied head is the embedding once more */
    if (entry->part == EBRO_PART_HEAD && t == w->m->embed.w) return EBRO_OK;
    ebro_tensor_info info = {.size = sizeof info,
                             .name = t->name,
                             .file = w->m->files[t->file].name,
                             .dtype = t->dtype,
                             .part = entry->part,
                             .layer = entry->layer,
                             .n_dims = t->n_dims,
                             .bytes = t->bytes,
                             .n_params = entry->n_params};
    for (uint32_t d = 0; d < t->n_dims; d++) info.shape[d] = t->shape[d];
    w->result = w->each(w->user, &info);
    return w->result == 0 ? EBRO_OK : EBRO_CANCELLED;
}

int32_t ebro_model_each_tensor(const ebro_model *model,
                               int32_t (*each)(void *user, const ebro_tensor_info *info),
                               void *user) {
    if (model == NULL || each == NULL) return EBRO_INVALID;
    struct walk w = {model, each, user, 0};
    eb_plan_each_part(model, tell, &w, NULL);
    return w.result;
}
