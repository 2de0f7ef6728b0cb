/* texts.h: as many streams at once as asked for, each a text of its own, and what came of them:
 * for tests of what they say, and for measuring how fast they say it. */
#ifndef EB_LOAD_TEXTS_H
#define EB_LOAD_TEXTS_H

#include <stdint.h>

#include "tests/load/client.h"

enum { TEXTS_MOST = 64, TEXTS_BYTES = 16384, TEXTS_GAPS = 2048 };

struct load_text {
    char *request;
    size_t n_request;
    struct load_call call;
    enum load_end how;
    char text[TEXTS_BYTES];
    uint32_t n_text;
    uint32_t n_tokens;      /* as the server counts them */
    double first, last;     /* load_now of the first and last piece */
    float gaps[TEXTS_GAPS]; /* seconds between two pieces that hold text */
    uint32_t n_gaps;
};

/* Text number i goes on for n_tokens tokens from a prompt of its own; drawn from `seed` where that
 * is not 0, else greedy. */
void load_text_make(struct load_text *t, uint32_t i, uint32_t n_tokens, uint64_t seed);
void load_text_free(struct load_text *t);
/* Starts it on lane number `lane`. */
void load_text_start(struct load_text *t, struct load_client *client, uint32_t lane);
/* Fails the running test unless it was answered with all its tokens. */
void load_text_check(const struct load_text *t);

#endif
