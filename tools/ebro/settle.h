/* settle.h: makes a sequence hold what a reader sees, where it holds anything else: a turn that was
 * taken back, the beginning of a stop text, a reply that reads as other tokens than were generated.
 * A recurrent state cannot go back: the sequence goes on from the deepest snapshot, and what lies
 * behind that is queued again. */
#ifndef EB_SETTLE_H
#define EB_SETTLE_H

#include "generate.h"

struct eb_settled {
    size_t n_before;    /* leading tokens of `want` that the sequence held already, queued or not */
    bool anew;          /* it held others too, or had nothing left to queue */
    size_t n_again;     /* then: tokens that are evaluated a second time */
    const char *reason; /* why not fewer; NULL: no fewer can be. Constant */
    size_t n_too_long;  /* tokens of `want`, where they do not fit into the context; else 0 */
};

/* Queues what the sequence does not hold of `want`: at least the last token. Returns an exit code
 * and has complained unless it is EB_EXIT_OK; s->seq may be empty then. */
int eb_settle_on(struct eb_session *s, const struct eb_tokens *want, struct eb_settled *out);
/* The same with a conversation, up to the end of its last message; does nothing where the sequence
 * holds a beginning of it and nothing else. Where it would have to hold more than the context has
 * room for, it is empty afterwards and n_too_long is set: the messages alone can be kept. */
int eb_settle_chat(struct eb_session *s, const ebro_chat_message *messages, size_t n, bool think,
                   struct eb_settled *out);
/* Of a text whose generation was t, and of which n_shown bytes were shown: cuts the sequence down
 * to that, where it ends in the middle of a token with tokens for the first half of it. The last
 * token is queued, so that the text can go on by itself. Where there is no room for the half token
 * the sequence stays as it is. */
int eb_settle_text(struct eb_session *s, const struct eb_tally *t, size_t n_shown);

#endif
