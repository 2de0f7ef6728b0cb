/* compose.h: ops put together from others where a backend leaves an optional one out. */
#ifndef EB_COMPOSE_H
#define EB_COMPOSE_H

#include "ops/check.h"

/* True where the device's backend has every op that kda_step is made of. */
bool eb_compose_has_kda_step(const struct ebro_device *d);
/* Scratch of the composition; UINT64_MAX on overflow. Memory references may be absent. */
uint64_t eb_compose_kda_step_bytes(struct ebro_device *d, const ebro_kda_step_args *a);
/* Refuses scratch that lies over the op's own inputs and output: the fused op reads and writes them
 * in one pass, the composition does not. Everything else in `a` must have been checked. */
int32_t eb_compose_check_kda_step(const struct eb_check *c, const ebro_kda_step_args *a);
/* conv, prep, recur, then the gated norm. `a` must have been checked. */
int32_t eb_compose_kda_step(struct eb_stream *s, const ebro_kda_step_args *a, ebro_error *err);

#endif
