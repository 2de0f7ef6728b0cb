/* registry.h: what the registry gives the rest of runtime/device: which module serves a device, and
 * what makes a module acceptable. */
#ifndef EB_REGISTRY_H
#define EB_REGISTRY_H

#include "device/runtime.h"

/* One device that a module offers. */
struct eb_found {
    const struct eb_module *module;
    uint32_t index; /* as the module's probe numbers it */
    ebro_probe_result probe;
};

/* Finds a device by name, then by id, without regard to ASCII case; NULL: the best one present.
 * NO_DEVICE says what is missing and which devices there are. */
int32_t eb_registry_find(ebro_runtime *rt, const char *name, struct eb_found *out, ebro_error *err);

/* Asks a module's entry for its table and checks it: ABI number first, then its size, its name and
 * that every required function is there. On failure *out is NULL. */
int32_t eb_registry_admit(ebro_backend_entry_fn entry, const ebro_host *host, const char *name,
                          const ebro_backend **out, ebro_error *err);

#endif
