/* stream.c: streams: tickets, waiting, copies and fills. Work is handed to the driver as it is
 * called; a ticket is an event behind it. */
#include <inttypes.h>
#include <time.h>

#include "backends/cuda_hip/cuda_hip.h"

/* Tickets that are told apart: an older one than these has passed when its event is used again. */
enum { N_EVENTS = 64 };

struct ebro_stream {
    ebro_dev *dev;
    void *handle;
    void *events[N_EVENTS]; /* ticket t: number t % N_EVENTS */
    uint64_t submitted, passed;
    bool records; /* a graph */
};

ebro_dev *gpu_stream_device(ebro_stream *s) {
    return s->dev;
}

void *gpu_stream_handle(ebro_stream *s) {
    return s->handle;
}

bool gpu_stream_records(const ebro_stream *s) {
    return s->records;
}

void gpu_stream_record(ebro_stream *s, bool records) {
    s->records = records;
}

int32_t gpu_stream_open(ebro_dev *dev, ebro_stream **out, ebro_error *err) {
    *out = NULL;
    int32_t st = gpu_enter(dev, err);
    if (st != EBRO_OK) return st;
    ebro_stream *s = gpu_calloc(dev->host, 1, sizeof *s, err);
    if (s == NULL) return EBRO_NOMEM_HOST;
    s->dev = dev;
    int r = dev->api.StreamCreate(&s->handle, GPU_STREAM_NON_BLOCKING);
    if (r != GPU_OK) s->handle = NULL;
    for (int i = 0; i < N_EVENTS && r == GPU_OK; i++) {
        r = dev->api.EventCreate(&s->events[i], GPU_EVENT_BLOCKING | GPU_EVENT_NO_TIMING);
        if (r != GPU_OK) s->events[i] = NULL;
    }
    if (r != GPU_OK) {
        gpu_stream_close(s);
        return gpu_fail(dev, r, "opening a stream", err);
    }
    *out = s;
    return EBRO_OK;
}

/* What was handed over is waited for. */
void gpu_stream_close(ebro_stream *s) {
    ebro_dev *dev = s->dev;
    if (gpu_enter(dev, NULL) == EBRO_OK) {
        gpu_graph_drop(s);
        if (s->handle != NULL) (void)dev->api.StreamSynchronize(s->handle);
        for (int i = 0; i < N_EVENTS; i++)
            if (s->events[i] != NULL) (void)dev->api.EventDestroy(s->events[i]);
        if (s->handle != NULL) (void)dev->api.StreamDestroy(s->handle);
    }
    gpu_free(dev->host, s);
}

/* ---- tickets ---------------------------------------------------------------------------- */

int32_t gpu_submit(ebro_stream *s, uint64_t *ticket, ebro_error *err) {
    ebro_dev *dev = s->dev;
    if (s->records)
        return dev->host->fail(err, EBRO_INVALID, GPU_BACKEND ": submit while a graph is recorded");
    int32_t st = gpu_enter(dev, err);
    if (st != EBRO_OK) return st;
    uint64_t next = s->submitted + 1;
    /* The event's last ticket, before it stands for another. */
    if (next > N_EVENTS && s->passed < next - N_EVENTS) {
        st = gpu_wait(s, next - N_EVENTS, 0, err);
        if (st != EBRO_OK) return st;
    }
    int r = dev->api.EventRecord(s->events[next % N_EVENTS], s->handle);
    if (r != GPU_OK) return gpu_fail(dev, r, "submitting work", err);
    *ticket = s->submitted = next;
    return EBRO_OK;
}

/* Asks again and again, for the driver has no wait with an end. */
static int wait_until(const ebro_dev *dev, void *event, uint64_t timeout_ns) {
    const struct timespec nap = {.tv_nsec = 20000};
    struct timespec begin, now;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    for (;;) {
        int r = dev->api.EventQuery(event);
        if (r != GPU_NOT_READY) return r;
        clock_gettime(CLOCK_MONOTONIC, &now);
        uint64_t ns = (uint64_t)(now.tv_sec - begin.tv_sec) * 1000000000u + (uint64_t)now.tv_nsec -
                      (uint64_t)begin.tv_nsec;
        if (ns >= timeout_ns) return GPU_NOT_READY;
        (void)nanosleep(&nap, NULL);
    }
}

int32_t gpu_wait(ebro_stream *s, uint64_t ticket, uint64_t timeout_ns, ebro_error *err) {
    ebro_dev *dev = s->dev;
    if (ticket > s->submitted) {
        return dev->host->fail(err, EBRO_INVALID,
                               GPU_BACKEND ": wait for ticket %" PRIu64
                                           ", the last one is %" PRIu64,
                               ticket, s->submitted);
    }
    if (ticket <= s->passed) return EBRO_OK;
    int32_t st = gpu_enter(dev, err);
    if (st != EBRO_OK) return st;
    void *event = s->events[ticket % N_EVENTS];
    int r = timeout_ns == 0 ? dev->api.EventSynchronize(event) : wait_until(dev, event, timeout_ns);
    if (r == GPU_NOT_READY) {
        return dev->host->fail(err, EBRO_TIMEOUT,
                               GPU_BACKEND ": ticket %" PRIu64 " has not passed after %" PRIu64
                                           " ns",
                               ticket, timeout_ns);
    }
    if (r != GPU_OK) return gpu_fail(dev, r, "waiting for the device", err);
    s->passed = ticket;
    return EBRO_OK;
}

/* ---- copies ----------------------------------------------------------------------------- */

int32_t gpu_copy(ebro_stream *s, const ebro_copy_args *a, ebro_error *err) {
    ebro_dev *dev = s->dev;
    if (a->bytes == 0) return EBRO_OK;
    if (a->src.mem == NULL && a->dst.mem == NULL) {
        memcpy(a->dst_host, a->src_host, (size_t)a->bytes);
        return EBRO_OK;
    }
    if (s->records && (a->src.mem == NULL || a->dst.mem == NULL)) {
        return dev->host->fail(err, EBRO_INVALID,
                               GPU_BACKEND
                               ": a copy from or to the host in a graph, which has no "
                               "moment to wait for it");
    }
    int32_t st = gpu_enter(dev, err);
    if (st != EBRO_OK) return st;
    eb_addr src = eb_arg_span(a->src), dst = eb_arg_span(a->dst);
    int r = a->src.mem == NULL   ? dev->api.MemcpyHtoDAsync(dst, a->src_host, a->bytes, s->handle)
            : a->dst.mem == NULL ? dev->api.MemcpyDtoHAsync(a->dst_host, src, a->bytes, s->handle)
                                 : dev->api.MemcpyDtoDAsync(dst, src, a->bytes, s->handle);
    return r == GPU_OK ? EBRO_OK : gpu_fail(dev, r, "copying", err);
}

int32_t gpu_fill(ebro_stream *s, ebro_span dst, uint8_t value, uint64_t bytes, ebro_error *err) {
    if (bytes == 0) return EBRO_OK;
    int32_t st = gpu_enter(s->dev, err);
    if (st != EBRO_OK) return st;
    int r = s->dev->api.MemsetD8Async(eb_arg_span(dst), value, bytes, s->handle);
    return r == GPU_OK ? EBRO_OK : gpu_fail(s->dev, r, "filling memory", err);
}
