/* graph.c: graphs: what a stream is given between begin and end is captured by the driver, made
 * ready once, and launched as one. */
#include "backends/cuda_hip/cuda_hip.h"

struct ebro_graph {
    void *made;
};

int32_t gpu_graph_begin(ebro_stream *s, ebro_error *err) {
    ebro_dev *dev = gpu_stream_device(s);
    if (gpu_stream_records(s))
        return dev->host->fail(err, EBRO_INVALID,
                               GPU_BACKEND ": graph_begin while one is recorded already");
    int32_t st = gpu_enter(dev, err);
    if (st != EBRO_OK) return st;
    /* Relaxed: other streams and allocations go on meanwhile. */
    int r = dev->api.StreamBeginCapture(gpu_stream_handle(s), GPU_CAPTURE_RELAXED);
    if (r != GPU_OK) return gpu_fail(dev, r, "beginning a graph", err);
    gpu_stream_record(s, true);
    return EBRO_OK;
}

/* The driver's recording; NULL where there is none, or where it was spoilt. */
static int end_capture(ebro_stream *s, void **graph) {
    *graph = NULL;
    gpu_stream_record(s, false);
    return gpu_stream_device(s)->api.StreamEndCapture(gpu_stream_handle(s), graph);
}

int32_t gpu_graph_end(ebro_stream *s, ebro_graph **out, ebro_error *err) {
    ebro_dev *dev = gpu_stream_device(s);
    void *recorded;
    *out = NULL;
    if (!gpu_stream_records(s))
        return dev->host->fail(err, EBRO_INVALID, GPU_BACKEND ": no graph is recorded");
    int32_t st = gpu_enter(dev, err);
    if (st != EBRO_OK) return st;
    int r = end_capture(s, &recorded);
    if (r != GPU_OK) return gpu_fail(dev, r, "ending a graph", err);
    ebro_graph *g = gpu_calloc(dev->host, 1, sizeof *g, err);
    if (g != NULL) r = dev->api.GraphInstantiate(&g->made, recorded, 0);
    (void)dev->api.GraphDestroy(recorded);
    if (g == NULL) return EBRO_NOMEM_HOST;
    if (r != GPU_OK) {
        gpu_free(dev->host, g);
        return gpu_fail(dev, r, "making a graph ready", err);
    }
    *out = g;
    return EBRO_OK;
}

void gpu_graph_drop(ebro_stream *s) {
    void *recorded;
    if (!gpu_stream_records(s)) return;
    if (end_capture(s, &recorded) == GPU_OK && recorded != NULL)
        (void)gpu_stream_device(s)->api.GraphDestroy(recorded);
}

int32_t gpu_graph_launch(ebro_stream *s, ebro_graph *g, ebro_error *err) {
    ebro_dev *dev = gpu_stream_device(s);
    if (gpu_stream_records(s)) {
        return dev->host->fail(err, EBRO_INVALID,
                               GPU_BACKEND ": a graph launched while one is recorded");
    }
    int32_t st = gpu_enter(dev, err);
    if (st != EBRO_OK) return st;
    int r = dev->api.GraphLaunch(g->made, gpu_stream_handle(s));
    return r == GPU_OK ? EBRO_OK : gpu_fail(dev, r, "launching a graph", err);
}

void gpu_graph_free(ebro_dev *dev, ebro_graph *g) {
    if (gpu_enter(dev, NULL) == EBRO_OK) (void)dev->api.GraphExecDestroy(g->made);
    gpu_free(dev->host, g);
}
