/* shards.h: opens the weight files of a model: model.safetensors, or the shards that
 * model.safetensors.index.json lists. Private to the model room. */
#ifndef EB_SHARDS_H
#define EB_SHARDS_H

#include "base/progress.h"
#include "model/model.h"
#include "model/source.h"

/* Fills m->files, m->n_files and m->n_tensors and numbers the tensors. An index must agree with its
 * shards: every tensor it lists stands in the shard it names, once. After an error m->files holds
 * what eb_shards_close frees. */
int32_t eb_shards_open(const struct eb_source *source, struct ebro_model *m,
                       const struct eb_progress *progress, ebro_error *err);
/* eb_bytes_check of every weight file; m->files may be partly open. */
int32_t eb_shards_check(const struct ebro_model *m, ebro_error *err);
void eb_shards_close(struct ebro_model *m);

#endif
