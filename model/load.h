/* load.h: a model's weights on one device. */
#ifndef EB_LOAD_H
#define EB_LOAD_H

#include "base/progress.h"
#include "device/device.h"
#include "model/model.h"

struct eb_weights; /* belongs to whoever loaded it; immutable after eb_weights_load */

/* Places every tensor that the plan uses: imported without a copy where the device shares host
 * memory and the tensor is aligned, else uploaded. A matrix that is larger than an allocation of
 * the device is cut between rows, into parts that have one each; NOMEM_DEVICE, naming the tensor,
 * for one that must be whole (experts, the router, kv_b, vectors). Also uploads the expert tables.
 * progress may be NULL. */
int32_t eb_weights_load(const struct ebro_model *m, struct eb_stream *s,
                        const struct eb_progress *progress, struct eb_weights **out,
                        ebro_error *err);
/* IO where a weight file that the device reads in place is no longer whole, see eb_bytes_check. Of
 * `m`, which they were loaded from. */
int32_t eb_weights_check(const struct eb_weights *w, const struct ebro_model *m, ebro_error *err);
/* Bytes that eb_weights_load would use in place and copy, with the tables. Tensors that share an
 * allocation are rounded up to its alignment. */
void eb_weights_bytes(const struct ebro_model *m, const struct ebro_device *d, uint64_t *in_place,
                      uint64_t *copied);
void eb_weights_free(struct eb_weights **w);

/* Views for op arguments. A NULL tensor gives an absent one (mem NULL). Of a matrix in several
 * parts eb_weight gives the first part's memory with all rows, which no op takes. */
ebro_weight eb_weight(const struct eb_weights *w, const struct eb_matrix *m);
/* The rows of a matrix from `first` on, as far as they lie in one memory; *next is the row after
 * them. All of it is for (first = 0; first < m->rows; first = next). */
ebro_weight eb_weight_part(const struct eb_weights *w, const struct eb_matrix *m, uint32_t first,
                           uint32_t *next);
ebro_vec eb_vec(const struct eb_weights *w, const struct eb_tensor *t);
/* Rows [first, first + n) of a matrix that is not MXFP4, starting at column 0. */
ebro_weight eb_weight_rows(const struct eb_weights *w, const struct eb_matrix *m, uint32_t first,
                           uint32_t n);
/* u64 [3][n_experts] of layer l, as ebro_moe_experts_args wants them. */
ebro_span eb_expert_table(const struct eb_weights *w, uint32_t layer);
ebro_span eb_expert_scale_table(const struct eb_weights *w, uint32_t layer);

#endif
