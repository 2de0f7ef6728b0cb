/* walk.h: the operator calls of one step of real models, recorded into graphs and never run: a
 * backend makes every pipeline on the way that it would make for those models. Memory is only
 * pretended, so that no size is too large and no driver is asked for any. */
#ifndef EB_VKCHECK_WALK_H
#define EB_VKCHECK_WALK_H

#include <stdbool.h>

#include "device/device.h"

struct eb_walk {
    struct ebro_device *device; /* with EBRO_CAP_GRAPHS */
    struct eb_stream stream;    /* of that device */
    /* Called for each call that failed; `what` is which. */
    void (*failed)(void *user, const char *what, const ebro_error *err);
    void *user;
    const char *only; /* the one op to call, by name; NULL: all */
    char what[128];   /* the call at hand: model, op, rows, types */
    uint32_t n_calls, n_failed;
    /* inside */
    ebro_mem data, lists;
    uint64_t data_used, lists_used;
    const char *model;
};

/* All models, in all types of weights, caches and states, for steps that decode and steps that read
 * prompts; with rows and weights that start at multiples of 16 bytes, then with others. */
void eb_walk_all(struct eb_walk *w);

#endif
