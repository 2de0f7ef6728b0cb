/* routes.c: see routes.h. Handlers that need no more than the model stand here too. */
#include "routes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "answer.h"
#include "buf.h"
#include "complete.h"
#include "fields.h"
#include "page.h"

/* ---- models ------------------------------------------------------------------------------- */

static json_t *device_object(const struct eb_service *s) {
    return json_pack("{s:s, s:s}", "name", s->device.name, "description", s->device.description);
}

static json_t *alias_list(const struct eb_offer *o) {
    json_t *list = json_array();
    for (size_t i = 1; list && i < o->n_names; i++) {
        if (json_array_append_new(list, json_string(o->names[i])) == 0) continue;
        json_decref(list);
        list = NULL;
    }
    return list;
}

static json_t *model_object(const struct eb_service *s) {
    json_t *own = json_pack(
        "{s:o, s:s, s:I, s:I, s:b, s:I, s:s, s:o, s:I, s:s}", "aliases", alias_list(&s->offer),
        "architecture", s->model.architecture, "context", (json_int_t)s->offer.n_ctx, "vocabulary",
        (json_int_t)s->offer.n_vocab, "thinking", (int)s->offer.thinks, "weight_bytes",
        (json_int_t)s->model.weight_bytes, "cache_type", s->cache_type, "device", device_object(s),
        "slots", (json_int_t)s->n_slots, "version", ebro_version());
    return json_pack("{s:s, s:s, s:I, s:s, s:o}", "id", s->offer.names[0], "object", "model",
                     "created", (json_int_t)s->started, "owned_by", "ebro", "ebro", own);
}

static void answer_models(const struct eb_service *s, struct eb_exchange *x) {
    eb_exchange_give(x, json_pack("{s:s, s:[o]}", "object", "list", "data", model_object(s)));
}

static void answer_model(const struct eb_service *s, struct eb_exchange *x) {
    const char *name = x->path + strlen("/v1/models/");
    struct eb_fault fault;
    if (eb_offer_has(&s->offer, name)) {
        eb_exchange_give(x, model_object(s));
        return;
    }
    eb_fault_set(&fault, 404, "model", "the model \"%.100s\" is not served here; \"%s\" is", name,
                 s->offer.names[0]);
    fault.code = "model_not_found";
    eb_exchange_refuse(x, &fault);
}

/* ---- tokens ------------------------------------------------------------------------------- */

static json_t *id_list(const int32_t *ids, size_t n) {
    json_t *list = json_array();
    for (size_t i = 0; list && i < n; i++) {
        if (json_array_append_new(list, json_integer(ids[i])) == 0) continue;
        json_decref(list);
        list = NULL;
    }
    return list;
}

static bool tokenize(const struct eb_service *s, const json_t *root, json_t **out,
                     struct eb_fault *fault) {
    const json_t *text = eb_field(root, "content");
    bool special = false;
    ebro_error err = {0};
    if (!text) return eb_fault_set(fault, 400, "content", "content is missing");
    if (!json_is_string(text)) return eb_field_wrong(text, "content", "a string", fault);
    if (!eb_field_bool(root, "add_special", &special, fault)) return false;
    int32_t bos = special ? ebro_token_bos(s->offer.model) : -1;
    size_t bytes = json_string_length(text), n_bos = bos >= 0, n = 0;
    /* a token holds one byte at least */
    int32_t *ids = malloc((bytes + 1) * sizeof *ids);
    if (!ids) return eb_fault_no_memory(fault);
    if (n_bos > 0) ids[0] = bos;
    int32_t st = ebro_tokenize(s->offer.model, json_string_value(text), bytes, 0, ids + n_bos,
                               bytes + 1 - n_bos, &n, &err);
    if (st == EBRO_OK) *out = json_pack("{s:o}", "tokens", id_list(ids, n_bos + n));
    free(ids);
    return st == EBRO_OK || eb_fault_of(fault, "content", &err);
}

static bool detokenize(const struct eb_service *s, const json_t *root, json_t **out,
                       struct eb_fault *fault) {
    struct eb_buf text = {0};
    json_t *list = NULL;
    bool good = true;
    if (!eb_field_array(root, "tokens", &list, fault)) return false;
    if (!list) return eb_fault_set(fault, 400, "tokens", "tokens is missing");
    for (size_t i = 0; good && i < json_array_size(list); i++) {
        const json_t *value = json_array_get(list, i);
        json_int_t id = json_is_integer(value) ? json_integer_value(value) : -1;
        size_t n = 0;
        if (id < 0 || id >= (json_int_t)s->offer.n_vocab) {
            good = eb_fault_set(fault, 400, "tokens", "tokens[%zu] is no token id from 0 to %u", i,
                                s->offer.n_vocab - 1);
            break;
        }
        /* an id without a token has no bytes */
        const char *bytes = ebro_token_bytes(s->offer.model, (int32_t)id, &n, NULL);
        if (bytes && !eb_buf_add(&text, bytes, n)) good = eb_fault_no_memory(fault);
    }
    if (good) *out = json_pack("{s:o}", "content", eb_json_text(text.data, text.n));
    eb_buf_free(&text);
    return good;
}

typedef bool (*convert_fn)(const struct eb_service *, const json_t *, json_t **, struct eb_fault *);

static void convert(const struct eb_service *s, struct eb_exchange *x, convert_fn fn) {
    struct eb_fault fault;
    json_t *root = NULL, *value = NULL;
    if (eb_json_read(x->body, x->bytes, &root, &fault) && fn(s, root, &value, &fault))
        eb_exchange_give(x, value);
    else
        eb_exchange_refuse(x, &fault);
    json_decref(root);
}

static void answer_tokenize(const struct eb_service *s, struct eb_exchange *x) {
    convert(s, x, tokenize);
}

static void answer_detokenize(const struct eb_service *s, struct eb_exchange *x) {
    convert(s, x, detokenize);
}

/* ---- page --------------------------------------------------------------------------------- */

static void answer_page(const struct eb_service *s, struct eb_exchange *x) {
    const struct eb_page_file *file = eb_page_find(x->path);
    const struct eb_answer a = {.status = 200, .type = file->type};
    struct eb_buf copy = {0};
    struct eb_fault fault;
    (void)s;
    if (eb_buf_add(&copy, file->bytes, (size_t)(file->end - file->bytes))) {
        x->ops->answer(x, &a, copy.data, copy.n);
        return;
    }
    eb_fault_no_memory(&fault);
    eb_exchange_refuse(x, &fault);
}

/* ---- the table ---------------------------------------------------------------------------- */

static void answer_chat(const struct eb_service *s, struct eb_exchange *x) {
    eb_complete(s, x, true);
}

static void answer_text(const struct eb_service *s, struct eb_exchange *x) {
    eb_complete(s, x, false);
}

struct route {
    const char *path;
    bool prefix; /* of the path */
    bool posted; /* POST, else GET and HEAD */
    bool open;   /* no key is asked for */
    void (*answer)(const struct eb_service *service, struct eb_exchange *x);
};

static const struct route routes[] = {
    {"/v1/chat/completions", false, true, false, answer_chat},
    {"/v1/completions", false, true, false, answer_text},
    {"/v1/models", false, false, false, answer_models},
    {"/v1/models/", true, false, false, answer_model},
    {"/tokenize", false, true, false, answer_tokenize},
    {"/detokenize", false, true, false, answer_detokenize},
    {"/slots", false, false, false, eb_answer_slots},
    {"/metrics", false, false, false, eb_answer_metrics},
    {"/health", false, false, true, eb_answer_health},
};
static const struct route page_route = {"/", true, false, true, answer_page};

/* NULL: nothing is there. */
static const struct route *find_route(const char *path) {
    for (size_t i = 0; i < sizeof routes / sizeof *routes; i++) {
        size_t n = strlen(routes[i].path);
        if (strncmp(path, routes[i].path, n) == 0 && (routes[i].prefix || path[n] == '\0'))
            return &routes[i];
    }
    return eb_page_find(path) ? &page_route : NULL;
}

/* What was probably meant. */
static bool refuse_path(const char *path, struct eb_fault *fault) {
    static const char *const others[] = {"/v1/responses", "/v1/embeddings", "/v1/messages"};
    char longer[64];
    size_t n = strcspn(path, "?");
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strcmp(path, others[i]) == 0)
            return eb_fault_set(fault, 404, NULL,
                                "%s is not offered; /v1/chat/completions and /v1/completions are",
                                path);
    while (n > 1 && path[n - 1] == '/') n--;
    for (int with = 0; with < 2; with++) {
        snprintf(longer, sizeof longer, "%s%.*s", with ? "/v1" : "", (int)(n < 48 ? n : 48), path);
        if (strcmp(longer, path) != 0 && n < 48 && find_route(longer))
            return eb_fault_set(fault, 404, NULL, "there is nothing at \"%.60s\"; is it %s?", path,
                                longer);
    }
    return eb_fault_set(fault, 404, NULL, "there is nothing at \"%.100s\"", path);
}

static bool has_method(const struct route *route, const char *method) {
    if (route->posted) return strcmp(method, "POST") == 0;
    return strcmp(method, "GET") == 0 || strcmp(method, "HEAD") == 0;
}

bool eb_routes_admit(const struct eb_service *service, const struct eb_exchange *x,
                     struct eb_fault *fault) {
    if (!eb_guard_check_source(&service->guard, &x->credentials, fault)) return false;
    const struct route *route = find_route(x->path);
    if (!route) return refuse_path(x->path, fault);
    if (!has_method(route, x->method)) {
        eb_fault_set(fault, 405, NULL, "%.100s does not take %.20s; it takes %s", x->path,
                     x->method, route->posted ? "POST" : "GET and HEAD");
        fault->allow = route->posted ? "POST" : "GET, HEAD";
        return false;
    }
    return (route->open || eb_guard_check_key(&service->guard, &x->credentials, fault)) &&
           (!route->posted || eb_guard_check_type(&x->credentials, fault));
}

void eb_routes_handle(const struct eb_service *service, struct eb_exchange *x) {
    const struct route *route = find_route(x->path);
    struct eb_fault fault;
    if (route) {
        route->answer(service, x);
        return;
    }
    refuse_path(x->path, &fault);
    eb_exchange_refuse(x, &fault);
}
