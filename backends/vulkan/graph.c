/* graph.c: graphs: launches recorded once, in a secondary command buffer with arguments of its own,
 * and executed from any number of batches. Barriers inside a graph are those its own work needs;
 * the batch puts one before and one after it. */
#include "backends/vulkan/stream.h"

enum { MAX_ARENAS = 64 };

struct ebro_graph {
    VkCommandPool pool;
    struct vk_recorder recorder; /* its args are the last arena */
    struct vk_arena full[MAX_ARENAS];
    uint32_t n_full;
};

struct vk_recorder *vk_graph_recorder(ebro_graph *g) {
    return &g->recorder;
}

int32_t vk_graph_args(ebro_stream *s, uint64_t bytes, const ebro_mem **mem, uint64_t *offset,
                      ebro_error *err) {
    ebro_graph *g = s->graph;
    struct vk_arena *args = &g->recorder.args;
    int32_t st = vk_arena_take(s->dev, args, VK_ARGS_BYTES, EBRO_MEM_UPLOAD, bytes, offset, err);
    if (st == EBRO_TIMEOUT && g->n_full < MAX_ARENAS) {
        g->full[g->n_full++] = *args;
        *args = (struct vk_arena){0};
        st = vk_arena_take(s->dev, args, VK_ARGS_BYTES, EBRO_MEM_UPLOAD, bytes, offset, err);
    }
    if (st == EBRO_TIMEOUT) {
        return s->dev->host->fail(err, EBRO_UNSUPPORTED,
                                  "vulkan: a graph with more than %d KiB of arguments",
                                  MAX_ARENAS * (VK_ARGS_BYTES >> 10));
    }
    *mem = args->mem;
    return st;
}

static VkResult create_commands(ebro_dev *dev, ebro_graph *g) {
    const VkCommandPoolCreateInfo pool = {.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO,
                                          .queueFamilyIndex = dev->family};
    VkResult r = dev->api.CreateCommandPool(dev->device, &pool, NULL, &g->pool);
    if (r != VK_SUCCESS) return r;
    const VkCommandBufferAllocateInfo info = {
        .sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
        .commandPool = g->pool,
        .level = VK_COMMAND_BUFFER_LEVEL_SECONDARY,
        .commandBufferCount = 1};
    r = dev->api.AllocateCommandBuffers(dev->device, &info, &g->recorder.commands);
    if (r != VK_SUCCESS) return r;
    const VkCommandBufferInheritanceInfo inherits = {
        .sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_INHERITANCE_INFO};
    /* Several batches may be under way with it. */
    const VkCommandBufferBeginInfo begin = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO,
                                            .flags = VK_COMMAND_BUFFER_USAGE_SIMULTANEOUS_USE_BIT,
                                            .pInheritanceInfo = &inherits};
    return dev->api.BeginCommandBuffer(g->recorder.commands, &begin);
}

int32_t vk_graph_begin(ebro_stream *s, ebro_error *err) {
    ebro_dev *dev = s->dev;
    if (s->graph != NULL)
        return dev->host->fail(err, EBRO_INVALID, "vulkan: a graph is being recorded already");
    ebro_graph *g = vk_calloc(dev->host, 1, sizeof *g, err);
    if (g == NULL) return EBRO_NOMEM_HOST;
    VkResult r = create_commands(dev, g);
    if (r != VK_SUCCESS) {
        vk_graph_free(dev, g);
        return vk_fail(dev, r, "beginning a graph", err);
    }
    s->graph = g;
    return EBRO_OK;
}

int32_t vk_graph_end(ebro_stream *s, ebro_graph **out, ebro_error *err) {
    ebro_dev *dev = s->dev;
    ebro_graph *g = s->graph;
    *out = NULL;
    if (g == NULL) return dev->host->fail(err, EBRO_INVALID, "vulkan: no graph is being recorded");
    s->graph = NULL;
    VkResult r = dev->api.EndCommandBuffer(g->recorder.commands);
    if (r != VK_SUCCESS) {
        vk_graph_free(dev, g);
        return vk_fail(dev, r, "ending a graph", err);
    }
    *out = g;
    return EBRO_OK;
}

int32_t vk_graph_launch(ebro_stream *s, ebro_graph *g, ebro_error *err) {
    struct vk_batch *b;
    if (s->graph != NULL) {
        return s->dev->host->fail(err, EBRO_INVALID,
                                  "vulkan: a graph is launched while one is recorded");
    }
    int32_t st = vk_stream_batch(s, &b, err);
    if (st != EBRO_OK) return st;
    struct vk_recorder *r = &b->recorder;
    /* What it touches is not known here: it waits for everything, and everything for it. */
    vk_order(s->dev, r, NULL, 0, true, true);
    s->dev->api.CmdExecuteCommands(r->commands, 1, &g->recorder.commands);
    r->bound = VK_NULL_HANDLE;
    return vk_stream_worked(s, g->recorder.work, err);
}

void vk_graph_free(ebro_dev *dev, ebro_graph *g) {
    if (g->pool != VK_NULL_HANDLE) dev->api.DestroyCommandPool(dev->device, g->pool, NULL);
    vk_arena_free(dev, &g->recorder.args);
    for (uint32_t i = 0; i < g->n_full; i++) vk_arena_free(dev, &g->full[i]);
    vk_free(dev->host, g);
}
