/* generate.h: from a sequence that has read its prompt to a reply: samples a token, shows it,
 * appends it, until the reply is over. What a reader sees of a token is reply.h's business. */
#ifndef EB_GENERATE_H
#define EB_GENERATE_H

#include "common.h"
#include "reply.h"

/* "Generation": length, sampling, penalties, stop texts. */
extern const struct eb_arg_group eb_generation_args;

/* How replies are made; the same for all of a command. */
struct eb_generator {
    ebro_sampling sampling;
    bool chat; /* else [EOS] ends a text too */
    uint64_t n_predict;
    bool marks;              /* snapshots on the way, to come back to (settle.h); set it */
    ebro_logit_bias *biases; /* of `sampling` */
    size_t n_biases;
};

/* Complains and returns an exit code when a logit bias cannot be read; eb_generator_free may follow
 * any time. */
int eb_generator_init(struct eb_generator *g, const struct eb_options *o);
void eb_generator_free(struct eb_generator *g);

struct eb_tally {
    size_t n_prompt, n_generated, n_steps; /* n_steps: evaluated one at a time */
    double prompt_seconds, step_seconds;
    const char *remark;    /* why it ended, where that is worth a word */
    struct eb_tokens made; /* generated tokens that the sequence has taken; free made.ids */
    size_t made_capacity;
    int32_t last; /* the one that ended the reply, which the sequence has not taken; -1: none */
};

/* The logits of the prompt are there, the reply is started and not yet finished afterwards. Ctrl-C
 * (interrupt.h) ends it. What was shown is taken by the sequence, which need not have evaluated the
 * last token then; it may also have taken the beginning of a stop text. Returns an exit code and
 * has complained unless it is EB_EXIT_OK. */
int eb_generate(struct eb_session *s, const struct eb_generator *g, struct eb_reply *reply,
                struct eb_tally *t);

/* The one line that sums up, on stderr. */
void eb_summary_print(const struct eb_session *s, const struct eb_tally *t);

#endif
