/* pace.h: how long work takes on a device, learned from what took how long. Systems reset a device
 * whose submission runs for seconds, so a submission is bounded in time before it is made.
 *
 * A batch is a mix: of each kind of work (every kernel, copies, launches as such) some amount. Its
 * time is the sum of amounts times paces; what it did take corrects the paces of its kinds, each as
 * much as it has a share in the time. Not its job: what is submitted when (stream.c, graph.c). */
#ifndef EB_VULKAN_PACE_H
#define EB_VULKAN_PACE_H

#include "backends/vulkan/vulkan.h"

/* Nanoseconds that a submission, or a single launch, should take at most. */
#define VK_TARGET_NS 250e6

/* Workgroups of the first launch of a kernel: a few, from which its pace is learned. */
enum { VK_FIRST_GROUPS = 4 };

/* Whether a kind's pace is not known yet and can be learned: such work gets a batch of its own. A
 * device without a clock learns nothing; on it all work has the pace of the slowest devices. */
bool vk_pace_is_new(ebro_dev *dev, uint32_t kind);
/* Nanoseconds of an amount of work of one kind. */
double vk_pace_ns(ebro_dev *dev, uint32_t kind, double work);
/* The same for what is recorded and not run: a kind that never ran is as fast as any that did. */
double vk_pace_ns_recorded(ebro_dev *dev, uint32_t kind, double work);

static inline void vk_mix_add(struct vk_mix *mix, uint32_t kind, double work) {
    mix->work[kind] += work;
}
double vk_mix_ns(ebro_dev *dev, const struct vk_mix *mix);
/* The mix took so long. */
void vk_pace_learn(ebro_dev *dev, const struct vk_mix *mix, double ns);

#endif
