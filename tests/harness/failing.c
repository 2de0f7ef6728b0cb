/* failing.c: the hook of failing.h. */
#include "tests/harness/failing.h"

#include <stdlib.h>

void *failing_realloc(void *user, void *p, size_t n) {
    struct failing *f = user;
    if (n == 0) {
        f->n_held -= p != NULL;
        free(p);
        return NULL;
    }
    if (f->n_calls++ >= f->fail_at) return NULL;
    void *q = realloc(p, n);
    f->n_held += p == NULL && q != NULL;
    return q;
}
