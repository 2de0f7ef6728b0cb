/* service.h: what all answers draw on: the model that is served, the scheduler, and what is known
 * of both. Filled in by whoever starts the server; nothing in it changes while requests are
 * answered. */
#ifndef EB_SERVICE_H
#define EB_SERVICE_H

#include <stdatomic.h>
#include <time.h>

#include "exchange.h"
#include "guard.h"
#include "request.h"
#include "sched.h"

/* Answers by the first digit of their status. */
struct eb_traffic {
    _Atomic uint64_t answers[6];
};

struct eb_service {
    struct eb_offer offer;
    struct eb_guard guard;
    struct eb_sched *sched;
    ebro_model_info model;
    ebro_device_info device;
    const char *cache_type; /* "f32" ... */
    uint64_t token_bytes;   /* of the cache, for each token */
    uint32_t n_slots;
    struct eb_traffic *traffic;
    time_t started;
    /* One line at a level of ebro_log_level (0: always), from any thread; NULL: nobody listens. */
    void (*log)(void *user, int32_t level, const char *text);
    void *log_user;
    bool log_prompts; /* what is asked and answered too, at level 0 */
};

#endif
