/* request.h: a request for a reply, from OpenAI's JSON to a job for the scheduler. Sends nothing.
 */
#ifndef EB_REQUEST_H
#define EB_REQUEST_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "fault.h"
#include "grammar.h"
#include "sched.h"

/* What is served, and what holds where a request does not say. */
struct eb_offer {
    const ebro_model *model;
    const char *const *names; /* of the model; the first is its id, the others are aliases */
    size_t n_names;
    uint32_t n_ctx, n_vocab;
    bool thinks; /* the model has a channel for it */
    double temperature;
    bool think;
    uint32_t max_tokens;          /* 0: until the context is full */
    uint64_t (*seed)(void *user); /* for a request that states none */
    void *user;
};

/* Requests of a model that is not served are refused with its name. */
bool eb_offer_has(const struct eb_offer *offer, const char *name);

enum { EB_REQUEST_CHOICES = 8, EB_REQUEST_STOPS = 4 };

struct eb_request {
    json_t *root; /* all that is not copied points into it */
    bool chat;    /* else a text that goes on */
    bool stream, include_usage;
    uint32_t n_choices;
    /* chat */
    json_t *messages, *tools;     /* tools: NULL where the model is not to see them */
    const char *effort;           /* how much to think; NULL: not stated */
    struct eb_grammar_spec shape; /* of the reply; no model in it: nothing is asked of it */
    /* text */
    const json_t *prompt;
    /* The job; its prompt and grammar are there after eb_request_prepare. */
    struct eb_job_spec job;
    int32_t *ids;
    struct eb_grammar *grammar;
    ebro_logit_bias *biases;
    const char *stops[EB_REQUEST_STOPS];
};

/* Reads and checks a body. Zero *out or not: it is set. eb_request_free may follow any time. The
 * request stays where it is from then on: the job points into it. */
bool eb_request_read(const struct eb_offer *offer, bool chat, const char *body, size_t bytes,
                     struct eb_request *out, struct eb_fault *fault);
/* Makes prompt tokens and grammar. */
bool eb_request_prepare(const struct eb_offer *offer, struct eb_request *request,
                        struct eb_fault *fault);
void eb_request_free(struct eb_request *request);

#endif
