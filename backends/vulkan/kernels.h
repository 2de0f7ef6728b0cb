/* kernels.h: the ladder of variants, and pipelines made on first use. */
#ifndef EB_VULKAN_KERNELS_H
#define EB_VULKAN_KERNELS_H

#include "backends/vulkan/vulkan.h"

/* Fills dev->variants: of each kernel the last variant whose needs dev->caps.bits meet and that is
 * not to be avoided. A kernel without one is EBRO_UNSUPPORTED, naming it and its op, an unknown
 * name in `avoid` (ebro_device_options) INVALID. Says once in the log what was chosen. */
int32_t vk_choose_variants(ebro_dev *dev, const char *avoid, ebro_error *err);

/* What was chosen for the kernels of an op, those with one variant alone left out, which are
 * "plain": as ebro_backend.op_variant. */
void vk_op_variant(ebro_dev *dev, ebro_op op, char *text, size_t bytes);

/* Pipeline layout and cache of a device; pipelines. */
int32_t vk_kernels_open(ebro_dev *dev, ebro_error *err);
void vk_kernels_close(ebro_dev *dev); /* safe after a failed open */

/* The pipeline of a launch, made now if it is the first of its kind. */
int32_t vk_pipeline_for(ebro_dev *dev, const struct vk_launch *l, VkPipeline *out, ebro_error *err);

/* Bytes of a kernel's argument struct, and whether they travel in memory. */
uint32_t vk_args_bytes(enum vk_kernel kernel);
bool vk_args_far(enum vk_kernel kernel);
const char *vk_kernel_name(enum vk_kernel kernel);

#endif
