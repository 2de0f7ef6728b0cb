/* request.c: see request.h. The fields are described in API.md; their ranges stand here. */
#include "request.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fields.h"

enum { MAX_TOOLS = 128, MAX_NAME = 64, MAX_STOP = 256, MAX_BIASES = 1024, TEXT_TOKENS = 16 };

/* ---- model, and what is refused ----------------------------------------------------------- */

bool eb_offer_has(const struct eb_offer *offer, const char *name) {
    for (size_t i = 0; i < offer->n_names; i++)
        if (strcmp(offer->names[i], name) == 0) return true;
    return false;
}

static bool read_model(const struct eb_offer *offer, const json_t *root, struct eb_fault *fault) {
    const char *name = NULL;
    if (!eb_field_text(root, "model", &name, fault)) return false;
    if (!name || eb_offer_has(offer, name)) return true;
    eb_fault_set(fault, 404, "model", "the model \"%.100s\" is not served here; \"%s\" is", name,
                 offer->names[0]);
    fault->code = "model_not_found";
    return false;
}

/* Fields that would change the reply if they were looked at, and are not. */
static bool refuse_unknown(const json_t *root, bool chat, struct eb_fault *fault) {
    static const char *const of_chat[] = {"functions",  "function_call",      "audio",
                                          "prediction", "web_search_options", NULL};
    static const char *const of_text[] = {"suffix",      "messages",  "response_format",
                                          "tools",       "functions", "reasoning_effort",
                                          "tool_choice", NULL};
    for (const char *const *name = chat ? of_chat : of_text; *name; name++)
        if (eb_field(root, *name))
            return eb_fault_set(fault, 400, *name, "%s is not supported; leave it out", *name);
    return true;
}

/* "modalities" may say what holds anyway. */
static bool read_modalities(const json_t *root, struct eb_fault *fault) {
    json_t *list = NULL;
    if (!eb_field_array(root, "modalities", &list, fault)) return false;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *name = json_string_value(json_array_get(list, i));
        if (!name || strcmp(name, "text") != 0)
            return eb_fault_set(fault, 400, "modalities",
                                "modalities[%zu] is not \"text\", and replies are text alone", i);
    }
    return true;
}

/* ---- sampling ----------------------------------------------------------------------------- */

static bool read_seed(const struct eb_offer *offer, const json_t *root, ebro_sampling *s,
                      struct eb_fault *fault) {
    int64_t seed = 0;
    if (!eb_field_int(root, "seed", INT64_MIN, INT64_MAX, &seed, fault)) return false;
    s->seed = eb_field(root, "seed") ? (uint64_t)seed : offer->seed(offer->user);
    return true;
}

static bool read_sampling(const struct eb_offer *offer, const json_t *root, ebro_sampling *s,
                          struct eb_fault *fault) {
    double temperature = offer->temperature, top_p = 1, min_p = 0;
    double repeat = 1, presence = 0, frequency = 0;
    int64_t top_k = 0, last_n = 64;
    if (!eb_field_real(root, "temperature", 0, 2, &temperature, fault) ||
        !eb_field_real(root, "top_p", 0, 1, &top_p, fault) ||
        !eb_field_real(root, "min_p", 0, 1, &min_p, fault) ||
        !eb_field_real(root, "repeat_penalty", 0.01, 100, &repeat, fault) ||
        !eb_field_real(root, "presence_penalty", -2, 2, &presence, fault) ||
        !eb_field_real(root, "frequency_penalty", -2, 2, &frequency, fault) ||
        !eb_field_int(root, "top_k", 0, INT32_MAX, &top_k, fault) ||
        !eb_field_int(root, "repeat_last_n", 1, INT32_MAX, &last_n, fault))
        return false;
    *s = (ebro_sampling){.size = sizeof *s,
                         .temperature = (float)temperature,
                         .top_k = (uint32_t)top_k,
                         .top_p = (float)top_p,
                         .min_p = (float)min_p,
                         .repeat_penalty = (float)repeat,
                         .presence_penalty = (float)presence,
                         .frequency_penalty = (float)frequency,
                         .penalty_last_n = (uint32_t)last_n};
    return read_seed(offer, root, s, fault);
}

/* A token id as a key of an object: digits alone. */
static bool read_id(const char *text, uint32_t n_vocab, int32_t *out) {
    size_t digits = strspn(text, "0123456789");
    if (digits == 0 || digits > 9 || text[digits] != '\0') return false;
    if (text[0] == '0' && digits > 1) return false; /* one token has one name */
    *out = (int32_t)strtol(text, NULL, 10);
    return (uint32_t)*out < n_vocab;
}

static bool read_biases(const struct eb_offer *offer, struct eb_request *r,
                        struct eb_fault *fault) {
    const char *field = "logit_bias";
    json_t *object = NULL, *value = NULL;
    const char *key = NULL;
    if (!eb_field_object(r->root, field, &object, fault)) return false;
    size_t n = json_object_size(object);
    if (n == 0) return true;
    if (n > MAX_BIASES)
        return eb_fault_set(fault, 400, field, "logit_bias has %zu tokens; at most %d are read", n,
                            MAX_BIASES);
    if (!(r->biases = calloc(n, sizeof *r->biases))) return eb_fault_no_memory(fault);
    json_object_foreach(object, key, value) {
        ebro_logit_bias *bias = &r->biases[r->job.sampling.n_biases++];
        if (!read_id(key, offer->n_vocab, &bias->id))
            return eb_fault_set(fault, 400, field,
                                "logit_bias: \"%.60s\" is no token id from 0 to %u", key,
                                offer->n_vocab - 1);
        double number = json_is_number(value) ? json_number_value(value) : 1e9;
        if (!(number >= -100 && number <= 100))
            return eb_field_wrong(value, field, "an object of numbers from -100 to 100", fault);
        bias->bias = (float)number;
    }
    r->job.sampling.biases = r->biases;
    return true;
}

/* ---- length, stops, choices --------------------------------------------------------------- */

static bool read_length(const struct eb_offer *offer, struct eb_request *r,
                        struct eb_fault *fault) {
    int64_t n = r->chat ? offer->max_tokens : TEXT_TOKENS;
    if (!eb_field_int(r->root, "max_tokens", 1, INT32_MAX, &n, fault)) return false;
    if (r->chat && !eb_field_int(r->root, "max_completion_tokens", 1, INT32_MAX, &n, fault))
        return false;
    r->job.max_tokens = (uint32_t)n;
    return true;
}

static bool add_stop(struct eb_request *r, const json_t *value, const char *place,
                     struct eb_fault *fault) {
    size_t n = json_string_length(value);
    if (!json_is_string(value))
        return eb_field_wrong(value, place, "a string or an array of strings", fault);
    if (n == 0 || n > MAX_STOP)
        return eb_fault_set(fault, 400, "stop", "%s has %zu bytes; it must have 1 to %d", place, n,
                            MAX_STOP);
    r->stops[r->job.n_stops++] = json_string_value(value);
    return true;
}

static bool read_stops(struct eb_request *r, struct eb_fault *fault) {
    const json_t *value = eb_field(r->root, "stop");
    r->job.stops = r->stops;
    if (!value) return true;
    if (!json_is_array(value)) return add_stop(r, value, "stop", fault);
    if (json_array_size(value) > EB_REQUEST_STOPS)
        return eb_fault_set(fault, 400, "stop", "stop has %zu texts; at most %d are read",
                            json_array_size(value), EB_REQUEST_STOPS);
    for (size_t i = 0; i < json_array_size(value); i++) {
        char place[32];
        snprintf(place, sizeof place, "stop[%zu]", i);
        if (!add_stop(r, json_array_get(value, i), place, fault)) return false;
    }
    return true;
}

static bool read_choices(struct eb_request *r, struct eb_fault *fault) {
    int64_t n = 1;
    if (!eb_field_int(r->root, "n", 1, EB_REQUEST_CHOICES, &n, fault)) return false;
    r->n_choices = (uint32_t)n;
    if (r->chat) return true;
    /* the best of so many, of which n are given: as many as are asked for may be */
    int64_t best_of = n;
    return eb_field_int(r->root, "best_of", n, n, &best_of, fault);
}

static bool read_stream(struct eb_request *r, struct eb_fault *fault) {
    json_t *options = NULL;
    if (!eb_field_bool(r->root, "stream", &r->stream, fault) ||
        !eb_field_object(r->root, "stream_options", &options, fault))
        return false;
    if (options && !r->stream)
        return eb_fault_set(fault, 400, "stream_options", "stream_options needs \"stream\": true");
    return !options ||
           eb_field_bool(options, "stream_options.include_usage", &r->include_usage, fault);
}

static bool read_common(const struct eb_offer *offer, struct eb_request *r,
                        struct eb_fault *fault) {
    return read_model(offer, r->root, fault) && refuse_unknown(r->root, r->chat, fault) &&
           read_stream(r, fault) && read_choices(r, fault) && read_length(offer, r, fault) &&
           read_stops(r, fault) && read_sampling(offer, r->root, &r->job.sampling, fault) &&
           read_biases(offer, r, fault) &&
           eb_field_bool(r->root, "ignore_eos", &r->job.ignore_stop_tokens, fault);
}

/* ---- chat: logprobs, thinking ------------------------------------------------------------- */

static bool read_chat_logprobs(struct eb_request *r, struct eb_fault *fault) {
    int64_t n = 0;
    if (!eb_field_bool(r->root, "logprobs", &r->job.logprobs, fault) ||
        !eb_field_int(r->root, "top_logprobs", 0, 20, &n, fault))
        return false;
    if (n > 0 && !r->job.logprobs)
        return eb_fault_set(fault, 400, "top_logprobs", "top_logprobs needs \"logprobs\": true");
    r->job.n_top = (uint32_t)n;
    return true;
}

static bool read_effort(struct eb_request *r, struct eb_fault *fault) {
    static const char *const efforts[] = {"minimal", "low", "medium", "high", "xhigh", "max"};
    const char *effort = NULL;
    if (!eb_field_text(r->root, "reasoning_effort", &effort, fault)) return false;
    if (!effort) return true;
    r->job.thinking = strcmp(effort, "none") != 0;
    if (!r->job.thinking) return true;
    for (size_t i = 0; i < sizeof efforts / sizeof *efforts; i++) {
        if (strcmp(effort, efforts[i]) != 0) continue;
        r->effort = efforts[i];
        return true;
    }
    return eb_field_wrong(eb_field(r->root, "reasoning_effort"), "reasoning_effort",
                          "none, minimal, low, medium, high, xhigh or max", fault);
}

static bool read_thinking(const struct eb_offer *offer, struct eb_request *r,
                          struct eb_fault *fault) {
    json_t *kwargs = NULL;
    r->job.thinking = offer->think;
    if (!eb_field_object(r->root, "chat_template_kwargs", &kwargs, fault)) return false;
    if (kwargs &&
        (!eb_field_bool(kwargs, "chat_template_kwargs.enable_thinking", &r->job.thinking, fault) ||
         !eb_field_bool(kwargs, "chat_template_kwargs.thinking", &r->job.thinking, fault)))
        return false;
    if (!read_effort(r, fault)) return false;
    if (r->job.thinking && !offer->thinks)
        return eb_fault_set(fault, 400, r->effort ? "reasoning_effort" : "chat_template_kwargs",
                            "the model has no channel for thinking");
    return true;
}

/* ---- chat: tools and format --------------------------------------------------------------- */

/* As OpenAI has them: what all chat formats can carry. */
static bool is_function_name(const char *name) {
    static const char good[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";
    size_t n = strlen(name);
    return n > 0 && n <= MAX_NAME && strspn(name, good) == n;
}

/* tools[i], or a function that tool_choice names. The name goes to *name. */
static bool read_function(const json_t *value, const char *place, const char **name,
                          struct eb_fault *fault) {
    char at[96];
    const char *type = NULL;
    json_t *function = NULL;
    if (!json_is_object(value)) return eb_field_wrong(value, place, "an object", fault);
    snprintf(at, sizeof at, "%s.type", place);
    if (!eb_field_text(value, at, &type, fault)) return false;
    if (!type || strcmp(type, "function") != 0)
        return eb_fault_set(fault, 400, at, "%s must be \"function\"", at);
    snprintf(at, sizeof at, "%s.function", place);
    if (!eb_field_object(value, at, &function, fault)) return false;
    if (!function) return eb_fault_set(fault, 400, at, "%s is missing", at);
    snprintf(at, sizeof at, "%s.function.name", place);
    if (!eb_field_text(function, at, name, fault)) return false;
    if (!*name || !is_function_name(*name))
        return eb_fault_set(fault, 400, at, "%s must be 1 to %d letters, digits, \"_\" or \"-\"",
                            at, MAX_NAME);
    return true;
}

static bool has_tool(const json_t *tools, size_t n, const char *name) {
    for (size_t i = 0; i < n; i++) {
        const json_t *function = json_object_get(json_array_get(tools, i), "function");
        if (strcmp(json_string_value(json_object_get(function, "name")), name) == 0) return true;
    }
    return false;
}

static bool read_tools(struct eb_request *r, struct eb_fault *fault) {
    json_t *tools = NULL;
    if (!eb_field_array(r->root, "tools", &tools, fault)) return false;
    size_t n = json_array_size(tools);
    if (n > MAX_TOOLS)
        return eb_fault_set(fault, 400, "tools", "there are %zu tools; at most %d are read", n,
                            MAX_TOOLS);
    for (size_t i = 0; i < n; i++) {
        char place[64];
        const char *name = NULL, *text = NULL;
        const json_t *tool = json_array_get(tools, i);
        json_t *parameters = NULL;
        snprintf(place, sizeof place, "tools[%zu]", i);
        if (!read_function(tool, place, &name, fault)) return false;
        if (has_tool(tools, i, name))
            return eb_fault_set(fault, 400, "tools", "two tools have the name \"%s\"", name);
        const json_t *function = json_object_get(tool, "function");
        snprintf(place, sizeof place, "tools[%zu].function.description", i);
        if (!eb_field_text(function, place, &text, fault)) return false;
        snprintf(place, sizeof place, "tools[%zu].function.parameters", i);
        if (!eb_field_object(function, place, &parameters, fault)) return false;
    }
    r->tools = n > 0 ? tools : NULL;
    return true;
}

/* The model must call a tool: the one of that name, or any. */
static bool force_tool(struct eb_request *r, const char *name, struct eb_fault *fault) {
    if (!r->tools)
        return eb_fault_set(fault, 400, "tool_choice",
                            "tool_choice asks for a call, and there are "
                            "no tools");
    if (name && !has_tool(r->tools, json_array_size(r->tools), name))
        return eb_fault_set(fault, 400, "tool_choice",
                            "tool_choice names \"%s\", which is no tool "
                            "of the request",
                            name);
    r->shape.tools = r->tools;
    r->shape.tool = name;
    r->shape.parallel_calls = !name;
    return name != NULL ||
           eb_field_bool(r->root, "parallel_tool_calls", &r->shape.parallel_calls, fault);
}

static bool read_tool_choice(struct eb_request *r, struct eb_fault *fault) {
    const json_t *value = eb_field(r->root, "tool_choice");
    bool parallel = true;
    const char *name = NULL;
    if (!eb_field_bool(r->root, "parallel_tool_calls", &parallel, fault)) return false;
    if (!value) return true;
    if (json_is_object(value))
        return read_function(value, "tool_choice", &name, fault) && force_tool(r, name, fault);
    const char *word = json_string_value(value);
    if (!word) word = "";
    if (strcmp(word, "required") == 0) return force_tool(r, NULL, fault);
    if (strcmp(word, "none") == 0) r->tools = NULL;
    if (strcmp(word, "none") == 0 || strcmp(word, "auto") == 0) return true;
    return eb_field_wrong(value, "tool_choice",
                          "\"none\", \"auto\", \"required\" or the function to call", fault);
}

static bool read_schema(struct eb_request *r, const json_t *format, struct eb_fault *fault) {
    const char *place = "response_format.json_schema.schema";
    json_t *object = NULL;
    if (!eb_field_object(format, "response_format.json_schema", &object, fault)) return false;
    r->shape.schema = object ? eb_field(object, place) : NULL;
    if (!r->shape.schema) return eb_fault_set(fault, 400, place, "%s is missing", place);
    r->shape.content = EB_CONTENT_JSON_SCHEMA;
    return true;
}

static bool read_format(struct eb_request *r, struct eb_fault *fault) {
    const char *type = NULL;
    json_t *format = NULL;
    if (!eb_field_object(r->root, "response_format", &format, fault)) return false;
    if (!format) return true;
    if (!eb_field_text(format, "response_format.type", &type, fault)) return false;
    if (!type) type = "";
    if (strcmp(type, "text") == 0) return true;
    if (strcmp(type, "json_object") == 0)
        r->shape.content = EB_CONTENT_JSON_OBJECT;
    else if (strcmp(type, "json_schema") != 0)
        return eb_fault_set(fault, 400, "response_format.type",
                            "response_format.type must be text, json_object or json_schema");
    else if (!read_schema(r, format, fault))
        return false;
    /* a reply that is held to a format cannot be a call instead */
    if (r->tools && !r->shape.tools)
        return eb_fault_set(fault, 400, "response_format",
                            "response_format with tools needs \"tool_choice\": \"none\"");
    return true;
}

static bool read_chat(const struct eb_offer *offer, struct eb_request *r, struct eb_fault *fault) {
    json_t *messages = NULL;
    if (!eb_field_array(r->root, "messages", &messages, fault)) return false;
    if (json_array_size(messages) == 0)
        return eb_fault_set(fault, 400, "messages", "messages is %s; it must hold the conversation",
                            messages ? "empty" : "missing");
    r->messages = messages;
    if (!read_modalities(r->root, fault) || !read_chat_logprobs(r, fault) ||
        !read_thinking(offer, r, fault) || !read_tools(r, fault) || !read_tool_choice(r, fault) ||
        !read_format(r, fault))
        return false;
    if (r->shape.tools || r->shape.content != EB_CONTENT_TEXT) {
        r->shape.model = offer->model;
        r->shape.chat = true;
        r->shape.thinking = r->job.thinking;
    }
    return true;
}

/* ---- text --------------------------------------------------------------------------------- */

static bool read_text(struct eb_request *r, struct eb_fault *fault) {
    int64_t n = 0;
    bool echo = false;
    r->prompt = eb_field(r->root, "prompt");
    if (!r->prompt) return eb_fault_set(fault, 400, "prompt", "prompt is missing");
    if (!eb_field_bool(r->root, "echo", &echo, fault)) return false;
    if (echo) return eb_fault_set(fault, 400, "echo", "echo is not supported; leave it out");
    r->job.logprobs = eb_field(r->root, "logprobs") != NULL;
    if (!eb_field_int(r->root, "logprobs", 0, 5, &n, fault)) return false;
    r->job.n_top = (uint32_t)n;
    return true;
}

bool eb_request_read(const struct eb_offer *offer, bool chat, const char *body, size_t bytes,
                     struct eb_request *out, struct eb_fault *fault) {
    *out = (struct eb_request){.chat = chat, .job = {.chat = chat}};
    return eb_json_read(body, bytes, &out->root, fault) && read_common(offer, out, fault) &&
           (chat ? read_chat(offer, out, fault) : read_text(out, fault));
}

void eb_request_free(struct eb_request *r) {
    eb_grammar_destroy(&r->grammar);
    free(r->ids);
    free(r->biases);
    json_decref(r->root);
    *r = (struct eb_request){0};
}
