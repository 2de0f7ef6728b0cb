/* answer.c: see answer.h. */
#include "answer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "buf.h"

/* ---- faults ------------------------------------------------------------------------------- */

json_t *eb_answer_fault(const struct eb_fault *fault) {
    json_t *param =
        fault->param[0] ? eb_json_text(fault->param, strlen(fault->param)) : json_null();
    return json_pack("{s:{s:o, s:s, s:o, s:s?}}", "error", "message",
                     eb_json_text(fault->text, strlen(fault->text)), "type", eb_fault_type(fault),
                     "param", param, "code", fault->code);
}

/* One further header that belongs to the status. */
static struct eb_answer fault_answer(const struct eb_fault *fault) {
    struct eb_answer a = {.status = fault->status, .type = "application/json"};
    if (fault->status == 401) {
        a.name = "WWW-Authenticate";
        a.value = "Bearer";
    } else if (fault->status == 429 || fault->status == 503) {
        a.name = "Retry-After";
        a.value = "1";
    } else if (fault->allow) {
        a.name = "Allow";
        a.value = fault->allow;
    }
    return a;
}

void eb_exchange_refuse(struct eb_exchange *x, const struct eb_fault *fault) {
    struct eb_answer a = fault_answer(fault);
    json_t *value = eb_answer_fault(fault);
    char *text = value ? json_dumps(value, EB_JSON_FORM) : NULL;
    json_decref(value);
    x->ops->answer(x, &a, text, text ? strlen(text) : 0);
}

void eb_exchange_give(struct eb_exchange *x, json_t *value) {
    eb_exchange_give_with(x, 200, value);
}

void eb_exchange_give_with(struct eb_exchange *x, int status, json_t *value) {
    const struct eb_answer a = {.status = status, .type = "application/json"};
    struct eb_fault fault;
    char *text = value ? json_dumps(value, EB_JSON_FORM) : NULL;
    json_decref(value);
    if (text) {
        x->ops->answer(x, &a, text, strlen(text));
        return;
    }
    eb_fault_no_memory(&fault);
    eb_exchange_refuse(x, &fault);
}

/* ---- usage -------------------------------------------------------------------------------- */

const char *eb_answer_finish(enum eb_finish how) {
    if (how == EB_FINISH_LENGTH) return "length";
    return how == EB_FINISH_TOOL_CALLS ? "tool_calls" : "stop";
}

json_t *eb_answer_usage(const struct eb_usage *u) {
    json_int_t prompt = u->prompt_tokens, completion = u->completion_tokens;
    return json_pack("{s:I, s:I, s:I, s:{s:I}, s:{s:I}}", "prompt_tokens", prompt,
                     "completion_tokens", completion, "total_tokens", prompt + completion,
                     "prompt_tokens_details", "cached_tokens", (json_int_t)u->cached_tokens,
                     "completion_tokens_details", "reasoning_tokens",
                     (json_int_t)u->reasoning_tokens);
}

static double rate(double n, double seconds) {
    return seconds > 0 && n > 0 ? n / seconds : 0;
}

json_t *eb_answer_extras(const struct eb_usage *u) {
    double evaluated = (double)u->prompt_tokens - (double)u->cached_tokens;
    return json_pack("{s:f, s:f, s:f, s:f, s:f, s:I, s:s?}", "queue_seconds", u->queue_seconds,
                     "prompt_seconds", u->prompt_seconds, "decode_seconds", u->decode_seconds,
                     "prompt_tokens_per_second", rate(evaluated, u->prompt_seconds),
                     "decode_tokens_per_second", rate(u->completion_tokens, u->decode_seconds),
                     "matched_tokens", (json_int_t)u->matched_tokens, "miss", u->miss);
}

struct eb_usage eb_answer_sum(const struct eb_usage *usages, uint32_t n) {
    struct eb_usage sum = usages[0];
    for (uint32_t i = 1; i < n; i++) {
        const struct eb_usage *u = &usages[i];
        sum.completion_tokens += u->completion_tokens;
        sum.reasoning_tokens += u->reasoning_tokens;
        sum.queue_seconds = fmax(sum.queue_seconds, u->queue_seconds);
        sum.prompt_seconds = fmax(sum.prompt_seconds, u->prompt_seconds);
        sum.decode_seconds = fmax(sum.decode_seconds, u->decode_seconds);
    }
    return sum;
}

/* ---- tokens ------------------------------------------------------------------------------- */

/* JSON has no number for what cannot be; OpenAI writes this one. */
static double finite_logprob(float logprob) {
    return isfinite(logprob) ? (double)logprob : -9999.0;
}

static json_t *byte_list(const char *bytes, size_t n) {
    json_t *list = json_array();
    for (size_t i = 0; list && i < n; i++) {
        if (json_array_append_new(list, json_integer((unsigned char)bytes[i])) == 0) continue;
        json_decref(list);
        list = NULL;
    }
    return list;
}

/* {"token", "logprob", "bytes"} */
static json_t *entry(const ebro_model *model, const struct eb_token_prob *p) {
    size_t n = 0;
    const char *bytes = ebro_token_bytes(model, p->id, &n, NULL);
    return json_pack("{s:o, s:f, s:o}", "token", eb_json_text(bytes, n), "logprob",
                     finite_logprob(p->logprob), "bytes", byte_list(bytes, n));
}

static json_t *entry_with_top(const ebro_model *model, const struct eb_token_info *token) {
    json_t *all = entry(model, &token->chosen), *top = json_array();
    for (uint32_t i = 0; top && i < token->n_top; i++) {
        if (json_array_append_new(top, entry(model, &token->top[i])) == 0) continue;
        json_decref(top);
        top = NULL;
    }
    if (json_object_set_new(all, "top_logprobs", top) == 0) return all;
    json_decref(all);
    return NULL;
}

json_t *eb_answer_tokens(const ebro_model *model, const struct eb_token_info *tokens, uint32_t n) {
    json_t *list = json_array();
    for (uint32_t i = 0; list && i < n; i++) {
        if (json_array_append_new(list, entry_with_top(model, &tokens[i])) == 0) continue;
        json_decref(list);
        list = NULL;
    }
    return list;
}

/* {"token": logprob, ...}; of tokens that read the same the likeliest counts. */
static json_t *top_object(const ebro_model *model, const struct eb_token_info *token) {
    json_t *object = json_object();
    for (uint32_t i = 0; object && i < token->n_top; i++) {
        size_t n = 0;
        const char *bytes = ebro_token_bytes(model, token->top[i].id, &n, NULL);
        json_t *name = eb_json_text(bytes, n);
        int bad = !name;
        if (name && !json_object_getn(object, json_string_value(name), json_string_length(name)))
            bad = json_object_setn_new(object, json_string_value(name), json_string_length(name),
                                       json_real(finite_logprob(token->top[i].logprob)));
        json_decref(name);
        if (!bad) continue;
        json_decref(object);
        object = NULL;
    }
    return object;
}

static size_t count_characters(const char *bytes, size_t n) {
    size_t characters = 0;
    for (size_t i = 0; i < n; i++) characters += ((unsigned char)bytes[i] & 0xc0) != 0x80;
    return characters;
}

json_t *eb_answer_text_tokens(const ebro_model *model, const struct eb_token_info *tokens,
                              uint32_t n, size_t *offset) {
    json_t *names = json_array(), *numbers = json_array(), *tops = json_array();
    json_t *offsets = json_array();
    int bad = 0;
    for (uint32_t i = 0; i < n && !bad; i++) {
        size_t length = 0;
        const char *bytes = ebro_token_bytes(model, tokens[i].chosen.id, &length, NULL);
        bad |= json_array_append_new(names, eb_json_text(bytes, length));
        bad |= json_array_append_new(numbers, json_real(finite_logprob(tokens[i].chosen.logprob)));
        bad |= json_array_append_new(tops, top_object(model, &tokens[i]));
        bad |= json_array_append_new(offsets, json_integer((json_int_t)*offset));
        *offset += count_characters(bytes, length);
    }
    json_t *all = json_pack("{s:o, s:o, s:o, s:o}", "tokens", names, "token_logprobs", numbers,
                            "top_logprobs", tops, "text_offset", offsets);
    if (!bad) return all;
    json_decref(all);
    return NULL;
}
