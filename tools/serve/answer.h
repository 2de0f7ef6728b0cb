/* answer.h: the parts of answers as JSON, in OpenAI's form. Each gives a new value (json_decref
 * it), or NULL where memory is short. Sends nothing. */
#ifndef EB_ANSWER_H
#define EB_ANSWER_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "exchange.h"
#include "fault.h"
#include "sched.h"

/* How values are written: nine digits say all that an f32 holds. */
#define EB_JSON_FORM (JSON_COMPACT | JSON_REAL_PRECISION(9))

/* {"error": {...}} */
json_t *eb_answer_fault(const struct eb_fault *fault);
/* Answers the exchange with it, whatever memory there is. */
void eb_exchange_refuse(struct eb_exchange *x, const struct eb_fault *fault);
/* Answers with 200 and the value, which it takes over; NULL: memory was short. */
void eb_exchange_give(struct eb_exchange *x, json_t *value);
/* The same with another status. */
void eb_exchange_give_with(struct eb_exchange *x, int status, json_t *value);

/* "stop", "length" or "tool_calls". */
const char *eb_answer_finish(enum eb_finish how);
json_t *eb_answer_usage(const struct eb_usage *usage);
/* What OpenAI's form has no place for. */
json_t *eb_answer_extras(const struct eb_usage *usage);
/* The usage of n replies to one prompt. */
struct eb_usage eb_answer_sum(const struct eb_usage *usages, uint32_t n);

/* Tokens of content as entries of "logprobs", for a chat. */
json_t *eb_answer_tokens(const ebro_model *model, const struct eb_token_info *tokens, uint32_t n);
/* The same for a text, as an object of four arrays; *offset: characters before them, goes on. */
json_t *eb_answer_text_tokens(const ebro_model *model, const struct eb_token_info *tokens,
                              uint32_t n, size_t *offset);

#endif
