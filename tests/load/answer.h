/* answer.h: an HTTP/1.1 answer, read as its bytes come: a status, and a body that is as long as
 * its head says, in chunks, or until the server closes. Knows no sockets. */
#ifndef EB_LOAD_ANSWER_H
#define EB_LOAD_ANSWER_H

#include <stdbool.h>
#include <stddef.h>

enum load_answer_state { LOAD_ANSWER_MORE, LOAD_ANSWER_WHOLE, LOAD_ANSWER_BROKEN };

/* All zeros is an empty one. */
struct load_answer {
    int status;     /* 0: its head is not there yet */
    bool is_stream; /* text/event-stream */
    bool closes;    /* the connection ends with it */
    char *body;     /* NUL-terminated; NULL while empty */
    size_t n_body;
    size_t n_in; /* bytes that came */

    char *in; /* what is not read yet: n_held bytes from `at` on */
    size_t at, n_held, room;
    bool chunked, sized;
    size_t rest; /* of the body, or of a chunk and its line end */
};

/* For another answer. Keeps its memory. */
void load_answer_reset(struct load_answer *a);
void load_answer_free(struct load_answer *a);
/* BROKEN also for bytes beyond its end. */
enum load_answer_state load_answer_push(struct load_answer *a, const char *bytes, size_t n);
/* The server has closed: WHOLE for a body without a length, else BROKEN. */
enum load_answer_state load_answer_end(const struct load_answer *a);

#endif
