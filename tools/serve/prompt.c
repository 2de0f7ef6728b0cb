/* prompt.c: of a request: the tokens of its prompt, and the grammar of its reply. */
#include <stdlib.h>
#include <string.h>

#include "fields.h"
#include "request.h"

/* ---- chat --------------------------------------------------------------------------------- */

/* What the library reads of a conversation, as JSON (free it). */
static char *conversation(const struct eb_request *r) {
    json_t *object = json_object();
    int bad = json_object_set(object, "messages", r->messages);
    if (r->tools) bad |= json_object_set(object, "tools", r->tools);
    char *text = bad ? NULL : json_dumps(object, JSON_COMPACT);
    json_decref(object);
    return text;
}

static bool tokenize_chat(const ebro_model *model, struct eb_request *r, struct eb_fault *fault) {
    const ebro_chat_options options = {
        .size = sizeof options, .thinking = r->job.thinking, .thinking_effort = r->effort};
    ebro_error err = {0};
    char *text = conversation(r);
    size_t bytes = text ? strlen(text) : 0, capacity = 1024 + bytes / 2, n = 0;
    int32_t st = text ? EBRO_INVALID : EBRO_NOMEM_HOST;
    /* a second round only where there are more tokens than that */
    while (st == EBRO_INVALID) {
        int32_t *grown = realloc(r->ids, capacity * sizeof *grown);
        if (!grown) {
            st = EBRO_NOMEM_HOST;
            break;
        }
        r->ids = grown;
        n = 0;
        st = ebro_chat_tokenize_json(model, text, bytes, &options, r->ids, capacity, &n, &err);
        if (n <= capacity) break;
        capacity = n;
    }
    free(text);
    r->job.n_ids = n;
    if (st == EBRO_NOMEM_HOST) return eb_fault_no_memory(fault);
    return st == EBRO_OK || eb_fault_of(fault, "messages", &err);
}

/* ---- text --------------------------------------------------------------------------------- */

static bool tokenize_text(const ebro_model *model, const json_t *text, struct eb_request *r,
                          struct eb_fault *fault) {
    ebro_error err = {0};
    size_t bytes = json_string_length(text), n = 0;
    int32_t bos = ebro_token_bos(model);
    /* a token holds one byte at least */
    if (!(r->ids = malloc((bytes + 1) * sizeof *r->ids))) return eb_fault_no_memory(fault);
    if (bos >= 0) r->ids[r->job.n_ids++] = bos;
    if (ebro_tokenize(model, json_string_value(text), bytes, 0, r->ids + r->job.n_ids,
                      bytes + 1 - r->job.n_ids, &n, &err) != EBRO_OK)
        return eb_fault_of(fault, "prompt", &err);
    r->job.n_ids += n;
    return true;
}

static bool take_ids(const struct eb_offer *offer, struct eb_request *r, struct eb_fault *fault) {
    size_t n = json_array_size(r->prompt);
    if (!(r->ids = malloc((n + 1) * sizeof *r->ids))) return eb_fault_no_memory(fault);
    for (size_t i = 0; i < n; i++) {
        const json_t *value = json_array_get(r->prompt, i);
        json_int_t id = json_is_integer(value) ? json_integer_value(value) : -1;
        if (id < 0 || id >= (json_int_t)offer->n_vocab)
            return eb_fault_set(fault, 400, "prompt",
                                "prompt[%zu] is no token id from 0 to %u, and prompt is not an "
                                "array of one string",
                                i, offer->n_vocab - 1);
        r->ids[i] = (int32_t)id;
    }
    r->job.n_ids = n;
    return true;
}

static bool tokenize_prompt(const struct eb_offer *offer, struct eb_request *r,
                            struct eb_fault *fault) {
    const json_t *value = r->prompt;
    if (json_array_size(value) == 1 && json_is_string(json_array_get(value, 0)))
        value = json_array_get(value, 0);
    if (json_is_string(value)) return tokenize_text(offer->model, value, r, fault);
    if (json_is_array(value)) return take_ids(offer, r, fault);
    return eb_field_wrong(value, "prompt", "a string, or an array of one string or of token ids",
                          fault);
}

/* ---- both --------------------------------------------------------------------------------- */

static bool check_length(const struct eb_offer *offer, const struct eb_request *r,
                         struct eb_fault *fault) {
    const char *field = r->chat ? "messages" : "prompt";
    if (r->job.n_ids == 0)
        return eb_fault_set(fault, 400, field, "%s has no token to go on from", field);
    if (r->job.n_ids < offer->n_ctx) return true;
    eb_fault_set(fault, 400, field,
                 "the prompt has %zu tokens, and with a reply it must fit into the context of %u "
                 "(the server's -c sets it)",
                 r->job.n_ids, offer->n_ctx);
    fault->code = "context_length_exceeded";
    return false;
}

bool eb_request_prepare(const struct eb_offer *offer, struct eb_request *r,
                        struct eb_fault *fault) {
    ebro_error err = {0};
    if (!(r->chat ? tokenize_chat(offer->model, r, fault) : tokenize_prompt(offer, r, fault)) ||
        !check_length(offer, r, fault))
        return false;
    r->job.ids = r->ids;
    if (!r->shape.model) return true;
    if (eb_grammar_create(&r->shape, &r->grammar, &err) != EBRO_OK)
        return eb_fault_of(fault, r->shape.tools ? "tools" : "response_format", &err);
    r->job.grammar = r->grammar;
    return true;
}
