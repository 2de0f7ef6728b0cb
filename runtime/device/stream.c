/* stream.c: one queue of work: copies with checked bounds, submission, waiting. Not its job: ops,
 * which runtime/ops validates. */
#include <inttypes.h>
#include <string.h>

#include "device/device.h"

int32_t eb_stream_open(struct ebro_device *d, struct eb_stream *out, ebro_error *err) {
    memset(out, 0, sizeof *out);
    int32_t st = eb_device_check(d, err);
    if (st != EBRO_OK) return st;
    ebro_stream *impl = NULL;
    st = eb_device_note(d, d->be->stream_open(d->dev, &impl, err));
    if (st != EBRO_OK) return eb_while(err, st, "opening a stream on %s", d->info.name);
    out->device = d;
    out->impl = impl;
    return EBRO_OK;
}

void eb_stream_close(struct eb_stream *s) {
    if (s == NULL || s->impl == NULL) return;
    s->device->be->stream_close(s->impl);
    memset(s, 0, sizeof *s);
}

/* ---- copies ----------------------------------------------------------------------------- */

static int32_t check_span(const struct eb_stream *s, const char *what, ebro_span span,
                          uint64_t bytes, ebro_error *err) {
    if (span.mem == NULL) {
        return eb_fail(err, EBRO_INVALID, "%s on %s: there is no memory", what,
                       s->device->info.name);
    }
    uint64_t end;
    if (!eb_add_u64(span.offset, bytes, &end) || end > span.mem->bytes) {
        return eb_fail(err, EBRO_INVALID,
                       "%s on %s: %" PRIu64 " bytes from offset %" PRIu64
                       " are outside the memory, which has %" PRIu64 " bytes",
                       what, s->device->info.name, bytes, span.offset, span.mem->bytes);
    }
    return EBRO_OK;
}

static int32_t check_host(const struct eb_stream *s, const char *what, const void *host,
                          uint64_t bytes, ebro_error *err) {
    if (host != NULL || bytes == 0) return EBRO_OK;
    return eb_fail(err, EBRO_INVALID, "%s on %s: the host pointer is NULL", what,
                   s->device->info.name);
}

static int32_t record_copy(struct eb_stream *s, const char *what, const ebro_copy_args *args,
                           ebro_error *err) {
    if (args->bytes == 0) return EBRO_OK;
    struct ebro_device *d = s->device;
    int32_t st = eb_device_note(d, d->be->copy(s->impl, args, err));
    if (st == EBRO_OK) return EBRO_OK;
    return eb_while(err, st, "recording the %s of %" PRIu64 " bytes on %s", what, args->bytes,
                    d->info.name);
}

int32_t eb_upload(struct eb_stream *s, ebro_span dst, const void *src, uint64_t bytes,
                  ebro_error *err) {
    int32_t st = eb_device_check(s->device, err);
    if (st == EBRO_OK) st = check_span(s, "upload", dst, bytes, err);
    if (st == EBRO_OK) st = check_host(s, "upload", src, bytes, err);
    if (st != EBRO_OK) return st;
    const ebro_copy_args args = {.size = sizeof args, .dst = dst, .src_host = src, .bytes = bytes};
    return record_copy(s, "upload", &args, err);
}

int32_t eb_download(struct eb_stream *s, void *dst, ebro_span src, uint64_t bytes,
                    ebro_error *err) {
    int32_t st = eb_device_check(s->device, err);
    if (st == EBRO_OK) st = check_span(s, "download", src, bytes, err);
    if (st == EBRO_OK) st = check_host(s, "download", dst, bytes, err);
    if (st != EBRO_OK) return st;
    const ebro_copy_args args = {.size = sizeof args, .src = src, .dst_host = dst, .bytes = bytes};
    return record_copy(s, "download", &args, err);
}

int32_t eb_copy(struct eb_stream *s, ebro_span dst, ebro_span src, uint64_t bytes,
                ebro_error *err) {
    int32_t st = eb_device_check(s->device, err);
    if (st == EBRO_OK) st = check_span(s, "copy to", dst, bytes, err);
    if (st == EBRO_OK) st = check_span(s, "copy from", src, bytes, err);
    if (st != EBRO_OK) return st;
    /* No API underneath promises anything about overlapping ranges. */
    if (dst.mem == src.mem && dst.offset < src.offset + bytes && src.offset < dst.offset + bytes) {
        return eb_fail(err, EBRO_INVALID,
                       "copy on %s: %" PRIu64 " bytes at offsets %" PRIu64 " and %" PRIu64
                       " of one memory overlap",
                       s->device->info.name, bytes, src.offset, dst.offset);
    }
    const ebro_copy_args args = {.size = sizeof args, .src = src, .dst = dst, .bytes = bytes};
    return record_copy(s, "copy", &args, err);
}

int32_t eb_fill(struct eb_stream *s, ebro_span dst, uint8_t value, uint64_t bytes,
                ebro_error *err) {
    struct ebro_device *d = s->device;
    int32_t st = eb_device_check(d, err);
    if (st == EBRO_OK) st = check_span(s, "fill", dst, bytes, err);
    if (st != EBRO_OK || bytes == 0) return st;
    st = eb_device_note(d, d->be->fill(s->impl, dst, value, bytes, err));
    if (st == EBRO_OK) return EBRO_OK;
    return eb_while(err, st, "recording a fill of %" PRIu64 " bytes on %s", bytes, d->info.name);
}

/* ---- tickets ---------------------------------------------------------------------------- */

int32_t eb_submit(struct eb_stream *s, uint64_t *ticket, ebro_error *err) {
    struct ebro_device *d = s->device;
    int32_t st = eb_device_check(d, err);
    if (st != EBRO_OK) return st;
    st = eb_device_note(d, d->be->submit(s->impl, ticket, err));
    return st == EBRO_OK ? EBRO_OK : eb_while(err, st, "submitting work to %s", d->info.name);
}

int32_t eb_wait(struct eb_stream *s, uint64_t ticket, ebro_error *err) {
    struct ebro_device *d = s->device;
    int32_t st = eb_device_check(d, err);
    if (st != EBRO_OK) return st;
    st = eb_device_note(d, d->be->wait(s->impl, ticket, 0, err));
    return st == EBRO_OK ? EBRO_OK : eb_while(err, st, "waiting for %s", d->info.name);
}

int32_t eb_stream_sync(struct eb_stream *s, ebro_error *err) {
    uint64_t ticket = 0;
    int32_t st = eb_submit(s, &ticket, err);
    return st == EBRO_OK ? eb_wait(s, ticket, err) : st;
}
