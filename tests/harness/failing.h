/* failing.h: an allocation hook that runs out on purpose and knows what is still held. */
#ifndef EB_TEST_FAILING_H
#define EB_TEST_FAILING_H

#include <stddef.h>
#include <stdint.h>

/* Call number `fail_at` since n_calls was zeroed fails, and all after it. SIZE_MAX: none. */
struct failing {
    size_t n_calls, fail_at;
    size_t n_held; /* blocks allocated and not freed */
};

/* For ebro_runtime_options.realloc, with a struct failing as its user. */
void *failing_realloc(void *user, void *p, size_t n);

#endif
