/* clock.c: see clock.h. */
#include "tests/vulkan/shim/clock.h"

enum { MAX_BUFFERS = 4096, MAX_PIPELINES = 4096, MAX_STAMPS = 1024, MAX_CODES = 256, N_COSTS = 5 };

static struct {
    VkCommandBuffer commands;
    uint64_t ns;
    uint32_t cost; /* of the bound pipeline's groups */
} buffers[MAX_BUFFERS];

static struct {
    VkPipeline pipeline;
    uint32_t cost;
} pipelines[MAX_PIPELINES];

static struct {
    VkQueryPool pool;
    uint32_t query;
    uint64_t ns;
} stamps[MAX_STAMPS];

/* Hashes of code, in the order in which it was seen first; a module lives until its pipeline is
 * made, so the last one is enough. */
static uint64_t codes[MAX_CODES];
static struct {
    VkShaderModule module;
    uint32_t code;
} last;

/* Its place; a new one where it has none. Handles are used again, places with them. */
static int place_of(VkCommandBuffer commands) {
    int i = 0;
    while (i < MAX_BUFFERS - 1 && buffers[i].commands != commands &&
           buffers[i].commands != VK_NULL_HANDLE)
        i++;
    buffers[i].commands = commands;
    return i;
}

void clock_begin(VkCommandBuffer commands) {
    int i = place_of(commands);
    buffers[i].ns = 0;
    buffers[i].cost = 1;
}

void clock_module(VkShaderModule module, const void *code, size_t bytes) {
    uint64_t h = 0xcbf29ce484222325u;
    for (size_t i = 0; i < bytes; i++) h = (h ^ ((const uint8_t *)code)[i]) * 0x100000001b3u;
    last.module = module;
    last.code = 0;
    while (last.code < MAX_CODES - 1 && codes[last.code] != h && codes[last.code] != 0) last.code++;
    codes[last.code] = h;
}

/* 1, 2, 4, 8, 16 times as much, then 1 again. */
void clock_pipeline(VkPipeline pipeline, VkShaderModule module) {
    uint32_t i = 0;
    while (i < MAX_PIPELINES - 1 && pipelines[i].pipeline != pipeline &&
           pipelines[i].pipeline != VK_NULL_HANDLE)
        i++;
    pipelines[i].pipeline = pipeline;
    pipelines[i].cost = module == last.module ? 1u << last.code % N_COSTS : 1;
}

void clock_bind(VkCommandBuffer commands, VkPipeline pipeline) {
    for (uint32_t i = 0; i < MAX_PIPELINES; i++)
        if (pipelines[i].pipeline == pipeline) buffers[place_of(commands)].cost = pipelines[i].cost;
}

void clock_dispatch(const struct shim_clock *c, VkCommandBuffer commands, uint64_t groups) {
    int i = place_of(commands);
    uint32_t cost = c->uneven ? buffers[i].cost : 1;
    buffers[i].ns += c->launch_ns + groups * c->group_ns * cost;
}

void clock_copy(const struct shim_clock *c, VkCommandBuffer commands, uint64_t bytes) {
    buffers[place_of(commands)].ns += c->launch_ns + bytes / 1024 * c->copy_kib_ns;
}

void clock_execute(VkCommandBuffer commands, uint32_t n, const VkCommandBuffer *others) {
    for (uint32_t i = 0; i < n; i++) buffers[place_of(commands)].ns += clock_of(others[i]);
}

uint64_t clock_of(VkCommandBuffer commands) {
    return buffers[place_of(commands)].ns;
}

void clock_stamp(VkCommandBuffer commands, VkQueryPool pool, uint32_t query) {
    int i = 0;
    while (i < MAX_STAMPS - 1 && (stamps[i].pool != pool || stamps[i].query != query) &&
           stamps[i].pool != VK_NULL_HANDLE)
        i++;
    stamps[i].pool = pool;
    stamps[i].query = query;
    stamps[i].ns = clock_of(commands);
}

uint64_t clock_stamped(VkQueryPool pool, uint32_t query) {
    for (int i = 0; i < MAX_STAMPS; i++)
        if (stamps[i].pool == pool && stamps[i].query == query) return stamps[i].ns;
    return 0;
}
