/* pace.c: see pace.h. */
#include "backends/vulkan/pace.h"

/* Times below this are mostly the clock's grain. */
#define LEAST_NS 10e3
/* A measurement changes a pace by this factor at most. */
#define MOST_CHANGE 8.0
/* No device is faster than this, however often its clock says 0. */
#define LEAST_PACE 1e-7
#define LEAST_LAUNCH 100.0

/* Of what was never measured: about what the slowest devices take. */
static double first_pace(uint32_t kind) {
    return kind == VK_KIND_LAUNCH ? 20e3 : 1.25;
}

bool vk_pace_is_new(ebro_dev *dev, uint32_t kind) {
    pthread_mutex_lock(&dev->lock);
    bool is_new = dev->paces[kind] <= 0 && dev->timestamp_bits > 0;
    pthread_mutex_unlock(&dev->lock);
    return is_new;
}

/* Of dev->lock. */
static double pace_of(const ebro_dev *dev, uint32_t kind) {
    return dev->paces[kind] > 0 ? dev->paces[kind] : first_pace(kind);
}

double vk_pace_ns(ebro_dev *dev, uint32_t kind, double work) {
    pthread_mutex_lock(&dev->lock);
    double ns = pace_of(dev, kind) * work;
    pthread_mutex_unlock(&dev->lock);
    return ns;
}

double vk_pace_ns_recorded(ebro_dev *dev, uint32_t kind, double work) {
    pthread_mutex_lock(&dev->lock);
    double pace = dev->paces[kind];
    for (uint32_t k = 0; kind < VK_N_KERNELS && dev->paces[kind] <= 0 && k < VK_N_KERNELS; k++)
        if (dev->paces[k] > 0 && (pace <= 0 || dev->paces[k] < pace)) pace = dev->paces[k];
    pthread_mutex_unlock(&dev->lock);
    return (pace > 0 ? pace : first_pace(kind)) * work;
}

/* Of dev->lock. */
static double mix_ns(const ebro_dev *dev, const struct vk_mix *mix) {
    double ns = 0;
    for (uint32_t k = 0; k < VK_N_KINDS; k++) ns += pace_of(dev, k) * mix->work[k];
    return ns;
}

double vk_mix_ns(ebro_dev *dev, const struct vk_mix *mix) {
    pthread_mutex_lock(&dev->lock);
    double ns = mix_ns(dev, mix);
    pthread_mutex_unlock(&dev->lock);
    return ns;
}

static double clamp(double x, double least, double most) {
    return x < least ? least : x > most ? most : x;
}

/* Of dev->lock. The least change of the paces, each relative to itself, after which the mix would
 * have been foreseen. */
static void correct(ebro_dev *dev, const struct vk_mix *mix, double foreseen, double ratio) {
    double squares = 0;
    for (uint32_t k = 0; k < VK_N_KINDS; k++) {
        double share = pace_of(dev, k) * mix->work[k] / foreseen;
        squares += share * share;
    }
    for (uint32_t k = 0; k < VK_N_KINDS; k++) {
        double pace = pace_of(dev, k), share = pace * mix->work[k] / foreseen;
        if (share <= 0) continue;
        pace *= clamp(1 + (ratio - 1) * share / squares, 1 / MOST_CHANGE, MOST_CHANGE);
        double least = k == VK_KIND_LAUNCH ? LEAST_LAUNCH : LEAST_PACE;
        dev->paces[k] = pace > least ? pace : least;
    }
}

/* Of dev->lock. What the kinds that are known do not explain was taken by the new ones. Returns
 * whether there are any. */
static bool learn_new(ebro_dev *dev, const struct vk_mix *mix, double ns) {
    double known = 0, work = 0;
    for (uint32_t k = 0; k < VK_N_KINDS; k++) {
        bool is_new = k != VK_KIND_LAUNCH && dev->paces[k] <= 0;
        if (is_new) work += mix->work[k];
        if (!is_new) known += pace_of(dev, k) * mix->work[k];
    }
    if (work <= 0) return false;
    double pace = (ns > 2 * known ? ns - known : ns / 2) / work;
    for (uint32_t k = 0; k < VK_N_KINDS; k++)
        if (k != VK_KIND_LAUNCH && dev->paces[k] <= 0 && mix->work[k] > 0)
            dev->paces[k] = pace > LEAST_PACE ? pace : LEAST_PACE;
    return true;
}

void vk_pace_learn(ebro_dev *dev, const struct vk_mix *mix, double ns) {
    if (ns < LEAST_NS) ns = LEAST_NS;
    pthread_mutex_lock(&dev->lock);
    double foreseen = mix_ns(dev, mix);
    /* Where both are short, nothing was learned but the grain of the clock. */
    if (!learn_new(dev, mix, ns) && foreseen > 0 && (foreseen > LEAST_NS || ns > LEAST_NS))
        correct(dev, mix, foreseen, clamp(ns / foreseen, 1 / MOST_CHANGE, MOST_CHANGE));
    pthread_mutex_unlock(&dev->lock);
}
