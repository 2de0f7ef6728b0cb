/* cmd_inspect.c: `ebro inspect`: what a model is made of and what it would take. Gathers the facts;
 * inspect_print.c shows them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "inspect.h"

static const char usage[] =
    "usage: ebro inspect [MODEL] [--ctx N] [--tensors] [--json] [options]\n"
    "\n"
    "Shows the architecture of a model, its layers and parameters, its tensors by kind,\n"
    "and the memory that it takes at a context of N tokens: the numbers that `ebro run`\n"
    "works with. Weights are not read, only the headers of their files.\n"
    "Without MODEL it is the demo model inside the program.\n"
    "\n"
    "Active parameters are those that one token is multiplied with: all but the routed\n"
    "experts that it does not use and the other rows of the embedding.\n";

static const struct eb_arg args[] = {
    {.name = "MODEL",
     .kind = EB_ARG_TEXT,
     .offset = offsetof(struct eb_options, model),
     .help = "the same as -m"},
    {.name = "--ctx",
     .meta = "N",
     .kind = EB_ARG_UINT,
     .min = 1,
     .max = 1u << 30,
     .offset = offsetof(struct eb_options, n_ctx),
     .help = "the same as -c"},
    {.name = "--tensors",
     .env = "EBRO_TENSORS",
     .kind = EB_ARG_FLAG,
     .offset = offsetof(struct eb_options, tensors),
     .help = "every tensor: name, shape, dtype, bytes, file"},
    {.name = "--json",
     .env = "EBRO_JSON",
     .kind = EB_ARG_FLAG,
     .offset = offsetof(struct eb_options, json),
     .help = "all of it as one JSON object"},
};

static void add_shape(struct eb_kind *k, uint64_t params, uint64_t bytes) {
    k->n_tensors++;
    k->params += params;
    k->bytes += bytes;
}

/* Totals by part and by dtype, and which experts are used of those that there are. */
static int32_t add_tensor(void *user, const ebro_tensor_info *t) {
    struct eb_inspection *x = user;
    if ((size_t)t->part < EB_N_PARTS) add_shape(&x->parts[t->part], t->n_params, t->bytes);
    if ((size_t)t->dtype < EB_N_DTYPES) add_shape(&x->dtypes[t->dtype], t->n_params, t->bytes);
    x->params += t->n_params;
    x->bytes += t->bytes;
    if (t->part == EBRO_PART_EMBEDDING) {
        x->active += x->model.hidden;
    } else if (t->part == EBRO_PART_EXPERTS && t->layer >= 0) {
        const ebro_layer_info *y = &x->layers[t->layer];
        x->routed += t->n_params;
        x->routed_active += (double)t->n_params * y->top_k / y->n_experts;
    } else {
        x->active += t->n_params;
    }
    return 0;
}

static int gather_layers(struct eb_session *s, struct eb_inspection *x) {
    ebro_error err = {0};
    if (!(x->layers = calloc(x->model.n_layers, sizeof *x->layers))) {
        eb_complain("out of memory for %u layers", x->model.n_layers);
        return EB_EXIT_MEMORY;
    }
    for (uint32_t l = 0; l < x->model.n_layers; l++) {
        x->layers[l].size = sizeof x->layers[l];
        if (ebro_model_get_layer(s->model, l, &x->layers[l], &err) != EBRO_OK)
            return eb_complain_error(&err);
        if (x->layers[l].is_moe) x->n_moe++;
    }
    return EB_EXIT_OK;
}

static int32_t no_progress(void *user, const char *label, float fraction) {
    (void)user, (void)label, (void)fraction;
    return 0;
}

static int gather_memory(struct eb_session *s, const struct eb_options *o,
                         struct eb_inspection *x) {
    static const int32_t dtypes[EB_N_CACHES] = {EBRO_F32, EBRO_F16, EBRO_BF16};
    ebro_error err = {0};
    /* with a callback and nothing kept, as the commands that generate open their engine */
    ebro_engine_options options = {.size = sizeof options,
                                   .n_ctx = (uint32_t)o->n_ctx,
                                   .n_chunk = (uint32_t)o->n_chunk,
                                   .cache_dtype = o->cache_dtype,
                                   .prefill_form = o->mla_form,
                                   .progress = no_progress,
                                   .strict = o->strict,
                                   .keep = EBRO_KEEP_NONE};
    x->memory.size = sizeof x->memory;
    if (ebro_model_estimate(s->model, s->device, &options, &x->memory, &err) != EBRO_OK)
        return eb_complain_device(&err);
    for (size_t i = 0; i < EB_N_CACHES; i++) {
        options.cache_dtype = dtypes[i];
        x->caches[i].size = sizeof x->caches[i];
        if (ebro_model_estimate(s->model, s->device, &options, &x->caches[i], &err) != EBRO_OK)
            return eb_complain_device(&err);
    }
    return EB_EXIT_OK;
}

int eb_cmd_inspect(int argc, char **argv) {
    const struct eb_arg_group groups[] = {
        {"Inspection", args, sizeof args / sizeof *args}, eb_model_args, eb_log_args};
    struct eb_options o;
    int code = eb_command_options("inspect", usage, groups, sizeof groups / sizeof *groups, argc,
                                  argv, &o);
    if (code >= 0) return code;

    struct eb_session s = {0};
    struct eb_inspection x = {0};
    o.no_selftest = true; /* the device is asked, and computes nothing */
    if ((code = eb_session_open_model(&s, &o)) != EB_EXIT_OK) goto out;
    x.model = s.model_info;
    x.device = s.device_info.name;
    if ((code = gather_layers(&s, &x)) != EB_EXIT_OK) goto out;
    ebro_model_each_tensor(s.model, add_tensor, &x);
    x.active += (uint64_t)(x.routed_active + 0.5);
    if ((code = gather_memory(&s, &o, &x)) != EB_EXIT_OK) goto out;
    if (!o.json) {
        eb_inspection_print(&x);
        if (o.tensors) eb_inspection_print_tensors(s.model);
    } else if (!eb_inspection_print_json(&x, o.tensors ? s.model : NULL)) {
        eb_complain("out of memory, or standard output cannot be written");
        code = EB_EXIT_MEMORY;
        goto out;
    }
    if (!eb_flush_stdout()) code = EB_EXIT_USAGE;
out:
    free(x.layers);
    eb_session_close(&s);
    return code;
}
