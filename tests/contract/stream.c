/* stream.c: what every backend owes the runtime about streams: bytes that arrive where they belong
 * and nowhere else, tickets, waits, refusals, and the lost flag; run on every device listed. */
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/contract/rig.h"

static size_t below(struct test_rng *r, size_t n) {
    return (size_t)(test_u64(r) % n);
}

/* ---- bytes ------------------------------------------------------------------------------ */

enum { BYTES = 5000, ROUNDS = 300, MAX_PIECE = 700 };

/* What a stream should have done, done to host arrays. */
struct mirror {
    struct eb_stream *s;
    struct test_rng *r;
    ebro_mem *mem[2];
    unsigned char want[2][BYTES];
    unsigned char sent[ROUNDS][MAX_PIECE]; /* stays as it is until the wait */
};

static int32_t random_traffic(struct mirror *m, int round, ebro_error *err) {
    size_t n = below(m->r, MAX_PIECE + 1);
    size_t a = below(m->r, 2), b = 1 - a;
    size_t to = below(m->r, BYTES - n + 1), from = below(m->r, BYTES - n + 1);
    switch (below(m->r, 3)) {
        case 0:
            fill_random(m->r, m->sent[round], n);
            memcpy(m->want[a] + to, m->sent[round], n);
            return eb_upload(m->s, at(m->mem[a], to), m->sent[round], n, err);
        case 1:
            memset(m->want[a] + to, round & 0xff, n);
            return eb_fill(m->s, at(m->mem[a], to), (uint8_t)(round & 0xff), n, err);
        default:
            /* Now and then inside one memory, where the ranges lie apart. */
            if (from + n <= to || to + n <= from) b = below(m->r, 2);
            memcpy(m->want[a] + to, m->want[b] + from, n);
            return eb_copy(m->s, at(m->mem[a], to), at(m->mem[b], from), n, err);
    }
}

/* Random uploads, fills and copies, in order and at odd offsets, against the mirror; 0: all as it
 * should be. No assertions inside: threads run it too. */
static int traffic_differs(struct ebro_device *d, struct eb_stream *s, struct test_rng *r,
                           ebro_error *err) {
    struct mirror *m = calloc(1, sizeof *m);
    unsigned char *back = malloc(BYTES);
    int bad = 0;
    if (m == NULL || back == NULL) {
        free(m);
        free(back);
        return 1;
    }
    m->s = s;
    m->r = r;
    for (int k = 0; k < 2; k++) {
        bad |= eb_mem_alloc(d, BYTES, EBRO_MEM_DEVICE, &m->mem[k], err) != EBRO_OK;
        if (bad) goto out;
        memset(m->want[k], 0xa5, BYTES);
        bad |= eb_fill(s, at(m->mem[k], 0), 0xa5, BYTES, err) != EBRO_OK;
    }
    for (int i = 0; i < ROUNDS && !bad; i++) {
        bad |= random_traffic(m, i, err) != EBRO_OK;
        uint64_t ticket;
        if (below(r, 20) == 0) bad |= eb_submit(s, &ticket, err) != EBRO_OK;
    }
    for (int k = 0; k < 2 && !bad; k++) {
        memset(back, 0x5a, BYTES);
        bad |= eb_download(s, back, at(m->mem[k], 0), BYTES, err) != EBRO_OK;
        bad |= eb_stream_sync(s, err) != EBRO_OK;
        bad |= memcmp(back, m->want[k], BYTES) != 0;
    }
out:
    eb_stream_sync(s, NULL);
    for (int k = 0; k < 2; k++) eb_mem_free(d, &m->mem[k]);
    free(m);
    free(back);
    return bad;
}

static void traffic_arrives(struct ebro_device *d, struct eb_stream *s) {
    ebro_error err = {0};
    for (int i = 0; i < 5; i++) {
        int bad = traffic_differs(d, s, &rng, &err);
        if (bad) fail_msg("%s: %s", d->info.name, err.text[0] != '\0' ? err.text : "other bytes");
    }
}

static void traffic_on_every_device(void **state) {
    (void)state;
    on_every_device(traffic_arrives);
}

/* Each move by itself, with guard bytes before and after on both sides. */
static void guards_stay(struct ebro_device *d, struct eb_stream *s) {
    enum { N = 1024 };
    static const size_t offsets[] = {0, 1, 3, 64, 513},
                        sizes[] = {0, 1, 2, 3, 5, 16, 255, 256, 400};
    ebro_mem *a = NULL, *b = NULL;
    ebro_error err = {0};
    test_ok(eb_mem_alloc(d, N, EBRO_MEM_DEVICE, &a, &err), &err);
    test_ok(eb_mem_alloc(d, N, EBRO_MEM_DEVICE, &b, &err), &err);
    for (size_t i = 0; i < sizeof offsets / sizeof offsets[0]; i++) {
        for (size_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++) {
            size_t at_byte = offsets[i], n = sizes[k];
            unsigned char data[N], want[N], back[N];
            fill_random(&rng, data, N);
            memset(want, 0xa5, N);
            memcpy(want + at_byte, data, n);
            test_ok(eb_fill(s, at(a, 0), 0xa5, N, &err), &err);
            test_ok(eb_fill(s, at(b, 0), 0xa5, N, &err), &err);
            test_ok(eb_upload(s, at(a, at_byte), data, n, &err), &err);
            test_ok(eb_copy(s, at(b, at_byte), at(a, at_byte), n, &err), &err);
            test_ok(eb_fill(s, at(a, at_byte), 0xa5, n, &err), &err);
            memset(back, 0x5a, N);
            test_ok(eb_download(s, back, at(b, 0), N, &err), &err);
            test_ok(eb_stream_sync(s, &err), &err);
            assert_memory_equal(back, want, N);
            memset(want, 0xa5, N);
            test_ok(eb_download(s, back, at(a, 0), N, &err), &err);
            test_ok(eb_stream_sync(s, &err), &err);
            assert_memory_equal(back, want, N);
            /* A part download writes its part alone. */
            memset(back, 0x5a, N);
            memset(want, 0x5a, N);
            memcpy(want + 7, data, n);
            test_ok(eb_download(s, back + 7, at(b, at_byte), n, &err), &err);
            test_ok(eb_stream_sync(s, &err), &err);
            assert_memory_equal(back, want, N);
        }
    }
    eb_mem_free(d, &a);
    eb_mem_free(d, &b);
}

static void guards_on_every_device(void **state) {
    (void)state;
    on_every_device(guards_stay);
}

/* Mapped memory is coherent once a ticket is waited for. */
static void mapped_memory_is_seen(struct ebro_device *d, struct eb_stream *s) {
    enum { N = 3000 };
    ebro_mem *up = NULL, *dev = NULL, *down = NULL;
    ebro_error err = {0};
    test_ok(eb_mem_alloc(d, N, EBRO_MEM_UPLOAD, &up, &err), &err);
    test_ok(eb_mem_alloc(d, N, EBRO_MEM_DEVICE, &dev, &err), &err);
    test_ok(eb_mem_alloc(d, N, EBRO_MEM_READBACK, &down, &err), &err);
    for (int i = 0; i < 10; i++) {
        fill_random(&rng, up->host, N);
        test_ok(eb_copy(s, at(dev, 0), at(up, 0), N, &err), &err);
        test_ok(eb_copy(s, at(down, 0), at(dev, 0), N, &err), &err);
        test_ok(eb_stream_sync(s, &err), &err);
        assert_memory_equal(down->host, up->host, N);
    }
    eb_mem_free(d, &up);
    eb_mem_free(d, &dev);
    eb_mem_free(d, &down);
}

static void mapped_memory_on_every_device(void **state) {
    (void)state;
    on_every_device(mapped_memory_is_seen);
}

/* ---- tickets ---------------------------------------------------------------------------- */

static void tickets_rise_and_wait_twice(struct ebro_device *d, struct eb_stream *s) {
    enum { N = 8 };
    ebro_mem *mem = NULL;
    ebro_error err = {0};
    uint64_t tickets[N], last = 0;
    test_ok(eb_mem_alloc(d, 64, EBRO_MEM_DEVICE, &mem, &err), &err);
    /* Every other one without work. */
    for (int i = 0; i < N; i++) {
        if (i % 2 == 0) test_ok(eb_fill(s, at(mem, 0), (uint8_t)i, 64, &err), &err);
        test_ok(eb_submit(s, &tickets[i], &err), &err);
        assert_true(tickets[i] > last);
        last = tickets[i];
    }
    /* The last one first, then all of them, then all again. */
    test_ok(eb_wait(s, tickets[N - 1], &err), &err);
    for (int k = 0; k < 2; k++) {
        for (int i = 0; i < N; i++) test_ok(eb_wait(s, tickets[i], &err), &err);
    }
    test_ok(eb_stream_sync(s, &err), &err);
    test_ok(eb_stream_sync(s, &err), &err);
    /* A stream of its own counts by itself. */
    struct eb_stream other;
    uint64_t a, b;
    test_ok(eb_stream_open(d, &other, &err), &err);
    test_ok(eb_submit(&other, &a, &err), &err);
    test_ok(eb_submit(&other, &b, &err), &err);
    assert_true(b > a && a > 0);
    test_ok(eb_wait(&other, b, &err), &err);
    eb_stream_close(&other);
    eb_mem_free(d, &mem);
}

static void tickets_on_every_device(void **state) {
    (void)state;
    on_every_device(tickets_rise_and_wait_twice);
}

static void a_fresh_stream_closes(struct ebro_device *d, struct eb_stream *s) {
    (void)s;
    struct eb_stream t;
    ebro_error err = {0};
    test_ok(eb_stream_open(d, &t, &err), &err);
    eb_stream_close(&t);
    assert_null(t.impl);
    assert_null(t.device);
    eb_stream_close(&t);
    eb_stream_close(NULL);
}

static void fresh_streams_on_every_device(void **state) {
    (void)state;
    on_every_device(a_fresh_stream_closes);
}

/* ---- refusals --------------------------------------------------------------------------- */

static void refuse_all(struct eb_stream *s, ebro_mem *a, ebro_mem *b, uint64_t offset,
                       uint64_t bytes) {
    unsigned char host[16] = {0};
    ebro_error err = {0};
    char size[32];
    snprintf(size, sizeof size, "%" PRIu64 " bytes", a->bytes);
    test_fails(eb_upload(s, at(a, offset), host, bytes, &err), EBRO_INVALID, &err, size);
    test_fails(eb_download(s, host, at(a, offset), bytes, &err), EBRO_INVALID, &err, size);
    test_fails(eb_fill(s, at(a, offset), 1, bytes, &err), EBRO_INVALID, &err, size);
    test_fails(eb_copy(s, at(a, offset), at(b, 0), bytes, &err), EBRO_INVALID, &err, size);
    test_fails(eb_copy(s, at(b, 0), at(a, offset), bytes, &err), EBRO_INVALID, &err, "outside");
}

static void outside_is_refused(struct ebro_device *d, struct eb_stream *s) {
    enum { N = 100 };
    ebro_mem *a = NULL, *b = NULL;
    ebro_error err = {0};
    unsigned char host[N], back[N];
    test_ok(eb_mem_alloc(d, N, EBRO_MEM_DEVICE, &a, &err), &err);
    test_ok(eb_mem_alloc(d, 4096, EBRO_MEM_DEVICE, &b, &err), &err);
    test_ok(eb_fill(s, at(a, 0), 0xa5, N, &err), &err);
    const uint64_t n = a->bytes;
    refuse_all(s, a, b, 0, n + 1);
    refuse_all(s, a, b, n, 1);
    refuse_all(s, a, b, n - 1, 2);
    refuse_all(s, a, b, n + 1, 0);
    refuse_all(s, a, b, UINT64_MAX, 1);
    refuse_all(s, a, b, 8, UINT64_MAX - 4);
    refuse_all(s, a, b, UINT64_MAX, UINT64_MAX);
    test_fails(eb_upload(s, at(NULL, 0), host, 1, &err), EBRO_INVALID, &err, "no memory");
    test_fails(eb_fill(s, at(NULL, 0), 1, 1, &err), EBRO_INVALID, &err, "no memory");
    test_fails(eb_copy(s, at(a, 0), at(NULL, 0), 1, &err), EBRO_INVALID, &err, "no memory");
    test_fails(eb_copy(s, at(NULL, 0), at(a, 0), 1, &err), EBRO_INVALID, &err, "no memory");
    test_fails(eb_upload(s, at(a, 0), NULL, 1, &err), EBRO_INVALID, &err, "NULL");
    test_fails(eb_download(s, NULL, at(a, 0), 1, &err), EBRO_INVALID, &err, "NULL");
    test_fails(eb_copy(s, at(b, 0), at(b, 0), 10, &err), EBRO_INVALID, &err, "overlap");
    test_fails(eb_copy(s, at(b, 5), at(b, 14), 10, &err), EBRO_INVALID, &err, "overlap");
    test_fails(eb_copy(s, at(b, 14), at(b, 5), 10, &err), EBRO_INVALID, &err, "overlap");
    test_ok(eb_copy(s, at(b, 5), at(b, 15), 10, &err), &err);
    /* The end itself is a place, for nothing. */
    test_ok(eb_fill(s, at(a, n), 1, 0, &err), &err);
    /* Nothing of what was refused happened, and the stream goes on. */
    memset(host, 0xa5, N);
    test_ok(eb_download(s, back, at(a, 0), N, &err), &err);
    test_ok(eb_stream_sync(s, &err), &err);
    assert_memory_equal(back, host, N);
    eb_mem_free(d, &a);
    eb_mem_free(d, &b);
}

static void bounds_on_every_device(void **state) {
    (void)state;
    on_every_device(outside_is_refused);
}

/* ---- the lost flag ---------------------------------------------------------------------- */

static int32_t lose(ebro_stream *s, uint64_t ticket, uint64_t timeout_ns, ebro_error *err) {
    (void)s;
    (void)ticket;
    (void)timeout_ns;
    return eb_fail(err, EBRO_DEVICE_LOST, "the cable is out");
}

static int32_t fail_once(ebro_stream *s, uint64_t ticket, uint64_t timeout_ns, ebro_error *err) {
    (void)s;
    (void)ticket;
    (void)timeout_ns;
    return eb_fail(err, EBRO_TIMEOUT, "not yet");
}

static void loss_is_sticky(struct ebro_device *d, struct eb_stream *s) {
    const ebro_backend *real = d->be;
    ebro_backend be = *real;
    d->be = &be;
    ebro_mem *mem = NULL, *none = NULL;
    ebro_error err = {0};
    unsigned char host[8] = {0};
    uint64_t ticket = 0;
    struct eb_stream other;
    test_ok(eb_mem_alloc(d, 64, EBRO_MEM_DEVICE, &mem, &err), &err);
    /* Any other failure passes. */
    be.wait = fail_once;
    test_fails(eb_stream_sync(s, &err), EBRO_TIMEOUT, &err, d->info.name);
    be.wait = real->wait;
    test_ok(eb_stream_sync(s, &err), &err);
    be.wait = lose;
    test_fails(eb_stream_sync(s, &err), EBRO_DEVICE_LOST, &err, "the cable is out; while waiting");
    /* From here on the backend is not asked again, though it would now answer. */
    be.wait = real->wait;
    const char *part = "open it again";
    test_fails(eb_wait(s, 1, &err), EBRO_DEVICE_LOST, &err, part);
    test_fails(eb_submit(s, &ticket, &err), EBRO_DEVICE_LOST, &err, part);
    test_fails(eb_stream_sync(s, &err), EBRO_DEVICE_LOST, &err, part);
    test_fails(eb_upload(s, at(mem, 0), host, 8, &err), EBRO_DEVICE_LOST, &err, part);
    test_fails(eb_download(s, host, at(mem, 0), 8, &err), EBRO_DEVICE_LOST, &err, part);
    test_fails(eb_fill(s, at(mem, 0), 1, 8, &err), EBRO_DEVICE_LOST, &err, part);
    test_fails(eb_copy(s, at(mem, 0), at(mem, 8), 8, &err), EBRO_DEVICE_LOST, &err, part);
    test_fails(eb_mem_alloc(d, 8, EBRO_MEM_DEVICE, &none, &err), EBRO_DEVICE_LOST, &err, part);
    test_fails(eb_mem_import(s, host, 8, &none, &err), EBRO_DEVICE_LOST, &err, part);
    test_fails(eb_stream_open(d, &other, &err), EBRO_DEVICE_LOST, &err, part);
    test_fails(eb_device_check(d, &err), EBRO_DEVICE_LOST, &err, d->info.name);
    assert_null(none);
    /* What was had can still be given back, and a new opening is a new device. */
    eb_mem_free(d, &mem);
    d->be = real;
    ebro_device *again = NULL;
    test_ok(ebro_device_open(rt, d->info.name, &again, &err), &err);
    test_ok(eb_device_check(again, &err), &err);
    ebro_device_close(&again);
}

static void loss_on_every_device(void **state) {
    (void)state;
    on_every_device(loss_is_sticky);
}

/* ---- threads ---------------------------------------------------------------------------- */

struct worker {
    pthread_t thread;
    struct ebro_device *device;
    struct test_rng rng;
    ebro_error err;
    int bad;
};

static void *work(void *argument) {
    struct worker *w = argument;
    struct eb_stream s;
    w->bad = eb_stream_open(w->device, &s, &w->err) != EBRO_OK;
    if (w->bad) return NULL;
    for (int i = 0; i < 3 && !w->bad; i++) {
        w->bad = traffic_differs(w->device, &s, &w->rng, &w->err);
    }
    eb_stream_close(&s);
    return NULL;
}

/* A device may be used from several threads, each with a stream of its own. */
static void threads_share_a_device(struct ebro_device *d, struct eb_stream *s) {
    (void)s;
    enum { N = 4 };
    struct worker w[N];
    memset(w, 0, sizeof w);
    for (int i = 0; i < N; i++) {
        w[i].device = d;
        w[i].rng.s = test_u64(&rng);
        assert_int_equal(pthread_create(&w[i].thread, NULL, work, &w[i]), 0);
    }
    for (int i = 0; i < N; i++) assert_int_equal(pthread_join(w[i].thread, NULL), 0);
    for (int i = 0; i < N; i++) {
        if (w[i].bad) fail_msg("%s, thread %d: %s", d->info.name, i, w[i].err.text);
    }
}

static void threads_on_every_device(void **state) {
    (void)state;
    on_every_device(threads_share_a_device);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(traffic_on_every_device),       cmocka_unit_test(guards_on_every_device),
        cmocka_unit_test(mapped_memory_on_every_device), cmocka_unit_test(tickets_on_every_device),
        cmocka_unit_test(fresh_streams_on_every_device), cmocka_unit_test(bounds_on_every_device),
        cmocka_unit_test(loss_on_every_device),          cmocka_unit_test(threads_on_every_device),
    };
    return cmocka_run_group_tests(tests, rig_open, rig_close);
}
