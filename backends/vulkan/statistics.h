/* statistics.h: what the driver's compiler says of a pipeline, told to the log at EBRO_LOG_TRACE:
 * for whoever looks at registers and spills, with a device or, where a driver can, without one.
 * Nothing is asked of the driver at any other log level. */
#ifndef EB_VULKAN_STATISTICS_H
#define EB_VULKAN_STATISTICS_H

#include "backends/vulkan/vulkan.h"

/* Whether the log wants them and the driver has them. */
bool vk_statistics_wanted(const ebro_dev *dev);

/* The feature to turn on, a link of the chain in front of `next`. */
VkPhysicalDevicePipelineExecutablePropertiesFeaturesKHR vk_statistics_feature(void *next);

/* Flags of a pipeline that is made to be asked. */
VkPipelineCreateFlags vk_statistics_flags(const ebro_dev *dev);

/* One line, if dev->with_statistics:
 *     vulkan: pipeline KERNEL VARIANT threads=N specs=A,B,C: NAME=VALUE; NAME=VALUE; ...
 * The specs are the kernel's own constants ("-": none). The names are the driver's, but for the
 * last one, "Matrix instructions": how many the compiled code has, where the driver shows it; where
 * it does not, that one is missing. */
void vk_statistics_log(ebro_dev *dev, const struct vk_launch *l, VkPipeline pipeline);

#endif
