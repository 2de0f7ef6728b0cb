/* requests.h: short requests of every kind that a server meets, right and wrong ones, and what of
 * an answer must be the same whenever it is asked: not ids, times, and what was reused. */
#ifndef EB_LOAD_REQUESTS_H
#define EB_LOAD_REQUESTS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct load_request {
    const char *what; /* its path, and its body where there is one */
    char *bytes;
    size_t n;
    uint32_t same;  /* number of the first one that asks the same, streamed or whole */
    bool changes;   /* its answer tells what the server does now: it is not compared */
    bool generates; /* it may be refused where the queue is full */
};

/* All of them; *n: how many. Free with load_requests_free. */
struct load_request *load_requests_make(uint32_t *n);
void load_requests_free(struct load_request **requests, uint32_t n);

/* What an answer says, as text in new memory: the status, and of each reply its pieces joined and
 * how it ended, so that a stream and a whole answer give the same. NULL, after a message: it is no
 * answer of this server. */
char *load_answer_meaning(int status, const char *body, bool is_stream);

#endif
