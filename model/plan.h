/* plan.h: walks over everything that a model's plan uses. Private to the model room. */
#ifndef EB_PLAN_H
#define EB_PLAN_H

#include "model/model.h"

/* Calls `each` for every tensor of the plan, layer by layer; one that plays two parts comes twice.
 * The first status but OK ends the walk and is returned. */
int32_t eb_plan_each(const struct ebro_model *m,
                     int32_t (*each)(void *user, const struct eb_tensor *t, ebro_error *err),
                     void *user, ebro_error *err);

#endif
