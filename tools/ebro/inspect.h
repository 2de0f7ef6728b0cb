/* inspect.h: the facts that `ebro inspect` has gathered, and showing them. */
#ifndef EB_INSPECT_H
#define EB_INSPECT_H

#include "common.h"

enum { EB_N_PARTS = EBRO_PART_HEAD + 1, EB_N_DTYPES = EBRO_F64 + 1, EB_N_CACHES = 3 };

struct eb_kind {
    uint64_t n_tensors, params, bytes;
};

struct eb_inspection {
    ebro_model_info model;
    const char *device;
    ebro_layer_info *layers; /* [model.n_layers] */
    uint32_t n_moe;
    struct eb_kind parts[EB_N_PARTS];   /* by ebro_part */
    struct eb_kind dtypes[EB_N_DTYPES]; /* by ebro_dtype */
    uint64_t params, active, bytes;
    uint64_t routed; /* of params: in routed experts */
    double routed_active;
    ebro_estimate memory;              /* with the options that were given */
    ebro_estimate caches[EB_N_CACHES]; /* with each dtype of the latent cache: f32, f16, bf16 */
};

void eb_inspection_print(const struct eb_inspection *x);
/* One line a tensor. */
void eb_inspection_print_tensors(const ebro_model *model);
/* With all tensors unless model is NULL. False: out of memory, or stdout cannot be written. */
bool eb_inspection_print_json(const struct eb_inspection *x, const ebro_model *model);

#endif
