/* kda.h: what the KDA ops of the Vulkan backend share. */
#ifndef EB_VULKAN_KDA_H
#define EB_VULKAN_KDA_H

#include "backends/vulkan/vulkan.h"
#include "shaders/common/args_kda.h"

enum { VK_KDA_MAX_DIM = 256 };

static inline void vk_kda_reads_gate(struct vk_launch *l, const ebro_kda_gate *g, uint32_t n_rows) {
    uint64_t channels = (uint64_t)g->n_heads * g->head_dim;
    vk_reads_mat(l, &g->g_raw, n_rows, channels);
    vk_reads_mat(l, &g->beta_raw, n_rows, g->n_heads);
    vk_reads_vec(l, &g->a_log, g->n_heads);
    vk_reads_vec(l, &g->dt_bias, channels);
}

/* Refuses head sizes beyond VK_KDA_MAX_DIM. */
static inline int32_t vk_kda_check_dim(ebro_stream *s, const char *op, uint32_t dim,
                                       ebro_error *err) {
    if (dim <= VK_KDA_MAX_DIM) return EBRO_OK;
    return vk_stream_device(s)->host->fail(err, EBRO_UNSUPPORTED,
                                           "vulkan: %s: head_dim is %u, the most is %d", op, dim,
                                           VK_KDA_MAX_DIM);
}

/* Writes the windows that the rows leave, after everything that reads them. */
int32_t vk_kda_windows(ebro_stream *s, const ebro_rows *rows, const ebro_mat x[3],
                       uint32_t n_channels, const ebro_state_io *state, ebro_error *err);

#endif
