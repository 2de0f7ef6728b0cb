/* graph.c: graphs: launches recorded once, in secondary command buffers with arguments of their
 * own, and executed from any number of batches. A long graph has several parts, so that it need not
 * be submitted at once. Barriers inside a part are those its own work needs; the batch puts one
 * before and one after it. */
#include "backends/vulkan/stream.h"

enum { MAX_ARENAS = 64 };

/* What is recorded to the end. */
struct part {
    VkCommandBuffer commands;
    struct vk_mix mix;
};

struct ebro_graph {
    VkCommandPool pool;
    struct vk_recorder recorder; /* of the last part; its args are the last arena */
    struct part *parts;
    uint32_t n_parts, capacity;
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

static VkResult begin_part(ebro_dev *dev, ebro_graph *g) {
    const VkCommandBufferAllocateInfo info = {
        .sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
        .commandPool = g->pool,
        .level = VK_COMMAND_BUFFER_LEVEL_SECONDARY,
        .commandBufferCount = 1};
    VkResult r = dev->api.AllocateCommandBuffers(dev->device, &info, &g->recorder.commands);
    if (r != VK_SUCCESS) return r;
    vk_hazard_clear(&g->recorder.hazards);
    g->recorder.bound = VK_NULL_HANDLE;
    g->recorder.mix = (struct vk_mix){0};
    g->recorder.ns = 0;
    const VkCommandBufferInheritanceInfo inherits = {
        .sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_INHERITANCE_INFO};
    /* Several batches may be under way with it. */
    const VkCommandBufferBeginInfo begin = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO,
                                            .flags = VK_COMMAND_BUFFER_USAGE_SIMULTANEOUS_USE_BIT,
                                            .pInheritanceInfo = &inherits};
    return dev->api.BeginCommandBuffer(g->recorder.commands, &begin);
}

/* Ends the part that is recorded, with its place among the others. */
static int32_t end_part(ebro_dev *dev, ebro_graph *g, ebro_error *err) {
    if (g->n_parts == g->capacity) {
        const uint32_t n = g->capacity > 0 ? 2 * g->capacity : 4;
        struct part *parts = vk_calloc(dev->host, n, sizeof *parts, err);
        if (parts == NULL) return EBRO_NOMEM_HOST;
        if (g->n_parts > 0) memcpy(parts, g->parts, g->n_parts * sizeof *parts);
        vk_free(dev->host, g->parts);
        g->parts = parts;
        g->capacity = n;
    }
    VkResult r = dev->api.EndCommandBuffer(g->recorder.commands);
    if (r != VK_SUCCESS) return vk_fail(dev, r, "ending a graph", err);
    g->parts[g->n_parts++] = (struct part){g->recorder.commands, g->recorder.mix};
    return EBRO_OK;
}

int32_t vk_graph_part(ebro_stream *s, ebro_error *err) {
    int32_t st = end_part(s->dev, s->graph, err);
    if (st != EBRO_OK) return st;
    VkResult r = begin_part(s->dev, s->graph);
    return r == VK_SUCCESS ? EBRO_OK : vk_fail(s->dev, r, "going on with a graph", err);
}

static VkResult create_pool(ebro_dev *dev, ebro_graph *g) {
    const VkCommandPoolCreateInfo pool = {.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO,
                                          .queueFamilyIndex = dev->family};
    return dev->api.CreateCommandPool(dev->device, &pool, NULL, &g->pool);
}

int32_t vk_graph_begin(ebro_stream *s, ebro_error *err) {
    ebro_dev *dev = s->dev;
    if (s->graph != NULL)
        return dev->host->fail(err, EBRO_INVALID, "vulkan: a graph is being recorded already");
    ebro_graph *g = vk_calloc(dev->host, 1, sizeof *g, err);
    if (g == NULL) return EBRO_NOMEM_HOST;
    VkResult r = create_pool(dev, g);
    if (r == VK_SUCCESS) r = begin_part(dev, g);
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
    int32_t st = end_part(dev, g, err);
    if (st != EBRO_OK) {
        vk_graph_free(dev, g);
        return st;
    }
    *out = g;
    return EBRO_OK;
}

static int32_t launch_part(ebro_stream *s, const struct part *part, ebro_error *err) {
    ebro_dev *dev = s->dev;
    struct vk_batch *b;
    double ns = vk_mix_ns(dev, &part->mix);
    int32_t st = vk_stream_batch(s, &b, err);
    if (st == EBRO_OK && b->recorder.ns > 0 && b->recorder.ns + ns > VK_TARGET_NS) {
        st = vk_stream_flush(s, err);
        if (st == EBRO_OK) st = vk_stream_batch(s, &b, err);
    }
    if (st != EBRO_OK) return st;
    struct vk_recorder *r = &b->recorder;
    /* What it touches is not known here: it waits for everything, and everything for it. */
    vk_order(dev, r, NULL, 0, true, true);
    dev->api.CmdExecuteCommands(r->commands, 1, &part->commands);
    r->bound = VK_NULL_HANDLE;
    for (uint32_t k = 0; k < VK_N_KINDS; k++) vk_mix_add(&r->mix, k, part->mix.work[k]);
    r->ns += ns;
    return EBRO_OK;
}

int32_t vk_graph_launch(ebro_stream *s, ebro_graph *g, ebro_error *err) {
    int32_t st = EBRO_OK;
    if (s->graph != NULL) {
        return s->dev->host->fail(err, EBRO_INVALID,
                                  "vulkan: a graph is launched while one is recorded");
    }
    for (uint32_t i = 0; st == EBRO_OK && i < g->n_parts; i++)
        st = launch_part(s, &g->parts[i], err);
    return st;
}

void vk_graph_free(ebro_dev *dev, ebro_graph *g) {
    if (g->pool != VK_NULL_HANDLE) dev->api.DestroyCommandPool(dev->device, g->pool, NULL);
    vk_arena_free(dev, &g->recorder.args);
    for (uint32_t i = 0; i < g->n_full; i++) vk_arena_free(dev, &g->full[i]);
    vk_free(dev->host, g->parts);
    vk_free(dev->host, g);
}
