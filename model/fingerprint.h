/* fingerprint.h: numbers that tell one model, and one tokenizer, from another. */
#ifndef EB_FINGERPRINT_H
#define EB_FINGERPRINT_H

#include "model/model.h"

/* Of what decides what a sequence's states and cache mean: the configuration, the order of layers,
 * and of every tensor that the plan uses its name, dtype, shape and some of its bytes: all of a
 * small one, pieces spread over a large one. Two trainings of one model differ. Computed once per
 * model, in time that grows with the number of tensors and not with their sizes; any thread. Never
 * 0. IO where a weight file is no longer whole. */
int32_t eb_model_fingerprint(struct ebro_model *m, uint64_t *out, ebro_error *err);
/* Of the bytes of every token and which of them are special. As above. */
int32_t eb_tokenizer_fingerprint(struct ebro_model *m, uint64_t *out, ebro_error *err);

#endif
