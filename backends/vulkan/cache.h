/* cache.h: the driver's compiled kernels, kept in a file between runs. */
#ifndef EB_VULKAN_CACHE_H
#define EB_VULKAN_CACHE_H

#include "backends/vulkan/vulkan.h"

/* Fills dev->cache, from the device's file in host->cache_dir where there is a good one: a file
 * that is missing, damaged or of another driver is not used, which is no error. */
int32_t vk_cache_open(ebro_dev *dev, ebro_error *err);

/* Writes the file anew where kernels were compiled that it does not hold. What goes wrong is
 * logged; the old file or the new one is there, never a part of one. Then destroys dev->cache. */
void vk_cache_close(ebro_dev *dev);

#endif
