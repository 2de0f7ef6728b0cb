/* plan.h: walks over everything that a model's plan uses. Private to the model room. */
#ifndef EB_PLAN_H
#define EB_PLAN_H

#include "model/model.h"

/* Calls `each` for every tensor of the plan, layer by layer; one that plays two parts comes twice.
 * The first status but OK ends the walk and is returned. */
int32_t eb_plan_each(const struct ebro_model *m,
                     int32_t (*each)(void *user, const struct eb_tensor *t, ebro_error *err),
                     void *user, ebro_error *err);

/* A tensor and the part it plays. */
struct eb_plan_entry {
    const struct eb_tensor *tensor;
    uint64_t n_params; /* weights that it holds; 0: it scales another tensor's codes */
    int32_t part;      /* ebro_part */
    int32_t layer;     /* -1: of no layer */
    bool by_rows;      /* a matrix whose rows may lie apart: it is multiplied or looked up alone */
};

/* The same walk, with the parts. */
int32_t eb_plan_each_part(const struct ebro_model *m,
                          int32_t (*each)(void *user, const struct eb_plan_entry *entry,
                                          ebro_error *err),
                          void *user, ebro_error *err);

#endif
