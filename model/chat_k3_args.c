/* chat_k3_args.c: the arguments of a tool call, from a JSON object to K3's typed blocks:
 * <|open|>argument key="city" type="string"<|sep|>Paris<|close|>argument<|sep|>. */
#include <jansson.h>

#include "model/chat_k3.h"

/* Deeper or larger ones are refused: a call has few arguments. */
static const struct eb_json_limits limits = {.bytes = 16 << 20, .depth = 64, .values = 100000};

static const char *k3_type(const json_t *v) {
    switch (json_typeof(v)) {
        case JSON_OBJECT:
            return "object";
        case JSON_ARRAY:
            return "array";
        case JSON_STRING:
            return "string";
        case JSON_INTEGER:
        case JSON_REAL:
            return "number";
        case JSON_TRUE:
        case JSON_FALSE:
            return "boolean";
        case JSON_NULL:
            break;
    }
    return "null";
}

static struct eb_span span_of(const char *text) {
    return (struct eb_span){text, strlen(text)};
}

static void put_value(struct eb_chat_writer *w, const json_t *v) {
    if (json_is_string(v)) {
        eb_chat_put_span(w, (struct eb_span){json_string_value(v), json_string_length(v)});
        return;
    }
    if (w->st == EBRO_OK)
        w->st = eb_json_write(eb_tokenizer_alloc(w->t), v, EB_JSON_SPACED, &w->text, w->err);
    eb_chat_put_added(w);
}

static void put_arguments(struct eb_k3 *k, json_t *object) {
    for (void *at = json_object_iter(object); at != NULL && k->w->st == EBRO_OK;
         at = json_object_iter_next(object, at)) {
        const json_t *v = json_object_iter_value(at);
        eb_k3_begin(k, "argument");
        eb_k3_attribute(k, "key", span_of(json_object_iter_key(at)));
        eb_k3_attribute(k, "type", span_of(k3_type(v)));
        eb_k3_end(k);
        put_value(k->w, v);
        eb_k3_close(k, "argument");
    }
}

static void put_raw(struct eb_k3 *k, struct eb_span text) {
    eb_k3_begin(k, "json");
    eb_k3_attribute(k, "type", span_of("object"));
    eb_k3_end(k);
    eb_chat_put_span(k->w, text);
    eb_k3_close(k, "json");
}

void eb_k3_arguments(struct eb_k3 *k, struct eb_span arguments, size_t message, size_t call) {
    struct eb_chat_writer *w = k->w;
    const struct eb_bytes text = {.data = (const uint8_t *)arguments.p, .bytes = arguments.n};
    json_error_t e;
    if (w->st != EBRO_OK || eb_span_is_blank(arguments)) return;
    w->st = eb_json_bound("arguments", &text, &limits, EBRO_INVALID, w->err);
    if (w->st == EBRO_OK) {
        json_t *root = json_loadb(arguments.p, arguments.n, JSON_DECODE_ANY | JSON_ALLOW_NUL, &e);
        if (root == NULL && json_error_code(&e) == json_error_out_of_memory)
            w->st = eb_fail(w->err, EBRO_NOMEM_HOST, "out of memory for arguments");
        else if (root == NULL)
            put_raw(k, arguments);
        else if (json_is_object(root))
            put_arguments(k, root);
        else
            w->st = eb_fail(w->err, EBRO_INVALID, "arguments are %s; an object is right",
                            eb_json_type_name(root));
        json_decref(root);
    }
    if (w->st == EBRO_INVALID)
        w->st = eb_while(w->err, w->st, "reading messages[%zu].tool_calls[%zu].function.arguments",
                         message, call);
}
