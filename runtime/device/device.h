/* device.h: an open device and its streams: thin, they add the failed flag and nothing else. */
#ifndef EB_DEVICE_H
#define EB_DEVICE_H

#include <stdatomic.h>
#include <stdbool.h>

#include "device/runtime.h"

struct ebro_device {
    ebro_runtime *rt;
    const ebro_backend *be;
    ebro_dev *dev;
    ebro_caps caps;
    ebro_device_info info;
    atomic_int
        lost; /* set once any call returns EBRO_DEVICE_LOST; every later call fails at once */
};

/* One queue of work. Belongs to one thread at a time. */
struct eb_stream {
    struct ebro_device *device;
    ebro_stream *impl;
};

/* Settings, maybe of an older caller and shorter, as options; NULL: all defaults. */
int32_t eb_device_options_of(const ebro_device_settings *settings, ebro_device_options *out,
                             ebro_error *err);

/* As ebro_device_open, with options (caps mask, threads). options may be NULL. */
int32_t eb_device_open(ebro_runtime *rt, const char *name, const ebro_device_options *options,
                       ebro_device **out, ebro_error *err);

/* Notes device loss; returns st. Every backend call goes through this. */
int32_t eb_device_note(struct ebro_device *d, int32_t st);
/* EBRO_DEVICE_LOST with its text when the device is lost, else OK. */
int32_t eb_device_check(struct ebro_device *d, ebro_error *err);

/* Zero bytes are allowed and give a small allocation. NOMEM_DEVICE names wanted and free bytes. */
int32_t eb_mem_alloc(struct ebro_device *d, uint64_t bytes, uint32_t kind, ebro_mem **out,
                     ebro_error *err);
/* Imports where the backend can and the pointer fits its alignment, else allocates and uploads
 * through `s`. `host` must stay valid while the memory lives. */
int32_t eb_mem_import(struct eb_stream *s, const void *host, uint64_t bytes, ebro_mem **out,
                      ebro_error *err);
/* Imports, or fails: UNSUPPORTED and NOMEM_DEVICE say that this range can only be copied. */
int32_t eb_mem_share(struct ebro_device *d, const void *host, uint64_t bytes, ebro_mem **out,
                     ebro_error *err);
void eb_mem_free(struct ebro_device *d, ebro_mem **mem); /* NULL-safe, sets NULL */

int32_t eb_stream_open(struct ebro_device *d, struct eb_stream *out, ebro_error *err);
void eb_stream_close(struct eb_stream *s); /* NULL-safe on a zeroed one; zeroes it */
/* Records copies; host memory must stay valid until eb_stream_sync. Bounds are checked. */
int32_t eb_upload(struct eb_stream *s, ebro_span dst, const void *src, uint64_t bytes,
                  ebro_error *err);
int32_t eb_download(struct eb_stream *s, void *dst, ebro_span src, uint64_t bytes, ebro_error *err);
int32_t eb_copy(struct eb_stream *s, ebro_span dst, ebro_span src, uint64_t bytes, ebro_error *err);
int32_t eb_fill(struct eb_stream *s, ebro_span dst, uint8_t value, uint64_t bytes, ebro_error *err);
int32_t eb_submit(struct eb_stream *s, uint64_t *ticket, ebro_error *err);
int32_t eb_wait(struct eb_stream *s, uint64_t ticket, ebro_error *err);
int32_t eb_stream_sync(struct eb_stream *s, ebro_error *err); /* submit + wait */

/* Work that is recorded once and launched often, on devices with EBRO_CAP_GRAPHS. Between begin and
 * end, ops and copies on the device are recorded and not run; copies from or to the host, submits
 * and launches are refused. After a failed op end it all the same, and free what comes of it. A
 * graph may be launched any number of times on streams of its device; it is ordered as an op is. */
bool eb_can_record(const struct ebro_device *d);
int32_t eb_graph_begin(struct eb_stream *s, ebro_error *err);
int32_t eb_graph_end(struct eb_stream *s, ebro_graph **out, ebro_error *err);
int32_t eb_graph_launch(struct eb_stream *s, ebro_graph *graph, ebro_error *err);
/* NULL-safe, sets NULL; no launch of it may be pending. */
void eb_graph_free(struct ebro_device *d, ebro_graph **graph);

#endif
