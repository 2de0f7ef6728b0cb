/* guard.c: files that shrink while they are mapped: what is read then, in any number of threads,
 * what is said of it, and that faults elsewhere do what they did before. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "base/guard.h"
#include "tests/harness/test.h"

static size_t page;

struct mapped {
    char *dir;
    char path[512];
    struct eb_bytes bytes;
};

/* A file of n bytes, each `fill`, mapped. */
static void map_file(struct mapped *m, size_t n, uint8_t fill) {
    ebro_error err;
    uint8_t *data = malloc(n + 1);
    assert_non_null(data);
    memset(data, fill, n);
    m->dir = test_tmp_dir();
    test_write_file(m->dir, "weights", data, n);
    free(data);
    snprintf(m->path, sizeof m->path, "%s/weights", m->dir);
    test_ok(eb_file_map(m->path, &m->bytes, &err), &err);
}

static void unmap_file(struct mapped *m) {
    eb_bytes_close(&m->bytes);
    test_tmp_remove(&m->dir);
}

static void expect_whole(const struct mapped *m) {
    ebro_error err;
    test_ok(eb_bytes_check(&m->bytes, "weights", &err), &err);
}

static void expect_damage(const struct mapped *m) {
    ebro_error err;
    test_fails(eb_bytes_check(&m->bytes, "weights", &err), EBRO_IO, &err, "weights shrank");
}

/* Inside a test: cmocka sets a handler of its own before each, and puts its own back after it. */
static void install(void) {
    ebro_error err;
    page = (size_t)sysconf(_SC_PAGESIZE);
    test_ok(ebro_guard_install(&err), &err);
    test_ok(ebro_guard_install(&err), &err);
    assert_true(eb_guard_is_installed());
}

static void remove_guard(void) {
    ebro_error err;
    test_ok(ebro_guard_remove(&err), &err);
    test_ok(ebro_guard_remove(&err), &err);
    assert_false(eb_guard_is_installed());
}

/* Cut to nothing, inside a page, at a page, and by one byte. */
static void shorter(void **state) {
    (void)state;
    install();
    const size_t n = 9 * page + 100;
    const size_t lengths[] = {0, 1, page, 3 * page + 7, 9 * page, 9 * page + 1, n - 1};
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        struct mapped m;
        map_file(&m, n, 7);
        expect_whole(&m);
        assert_int_equal(truncate(m.path, (off_t)lengths[i]), 0);
        const volatile uint8_t *p = m.bytes.data;
        for (size_t k = 0; k < n; k++) assert_int_equal(p[k], k < lengths[i] ? 7 : 0);
        expect_damage(&m);
        /* Whole again, but not what is mapped. */
        assert_int_equal(truncate(m.path, (off_t)n), 0);
        expect_damage(&m);
        unmap_file(&m);
    }
    remove_guard();
}

/* Nobody has read what is gone; the check alone finds it. */
static void unread(void **state) {
    (void)state;
    install();
    struct mapped cut, zeros, whole, empty;
    map_file(&cut, 5 * page + 1, 1);
    map_file(&whole, 5 * page + 1, 1);
    map_file(&zeros, 5 * page + 9, 0);
    assert_int_equal(truncate(cut.path, (off_t)(5 * page)), 0);
    expect_damage(&cut);
    expect_whole(&whole);
    /* Zeros that become zeros are no loss; a page that is gone is one. */
    assert_int_equal(truncate(zeros.path, (off_t)(5 * page + 1)), 0);
    expect_whole(&zeros);
    assert_int_equal(truncate(zeros.path, (off_t)(5 * page)), 0);
    expect_damage(&zeros);
    unmap_file(&zeros);
    unmap_file(&cut);
    map_file(&empty, 0, 0);
    expect_whole(&empty);
    unmap_file(&empty);
    /* The place in the table that was given back starts anew. */
    map_file(&cut, page, 1);
    expect_whole(&cut);
    expect_whole(&whole);
    unmap_file(&cut);
    unmap_file(&whole);
    remove_guard();
}

enum { N_THREADS = 7, N_PAGES = 64, N_ROUNDS = 20 };

struct reader {
    const uint8_t *data;
    size_t n_zeros;
};

/* From the last page to the first, so that many reads fault, and each thread's by turns. */
static void *read_backwards(void *arg) {
    struct reader *r = arg;
    for (size_t i = N_PAGES; i-- > 0;) {
        const volatile uint8_t *p = r->data + i * page;
        r->n_zeros += *p == 0;
    }
    return NULL;
}

/* Threads fault at once while others map and unmap files of their own. */
static void *churn(void *arg) {
    const char *path = arg;
    ebro_error err;
    for (int i = 0; i < 300; i++) {
        struct eb_bytes b;
        if (eb_file_map(path, &b, &err) != EBRO_OK) return arg;
        if (eb_bytes_check(&b, path, &err) != EBRO_OK) return arg;
        eb_bytes_close(&b);
    }
    return NULL;
}

static void threads(void **state) {
    (void)state;
    install();
    struct mapped other;
    map_file(&other, 3 * page, 9);
    for (int round = 0; round < N_ROUNDS; round++) {
        struct mapped m;
        pthread_t readers[N_THREADS], churner;
        struct reader r[N_THREADS];
        void *bad = NULL;
        map_file(&m, N_PAGES * page, 5);
        assert_int_equal(truncate(m.path, (off_t)(3 * page)), 0);
        assert_int_equal(pthread_create(&churner, NULL, churn, other.path), 0);
        for (int i = 0; i < N_THREADS; i++) {
            r[i] = (struct reader){.data = m.bytes.data};
            assert_int_equal(pthread_create(&readers[i], NULL, read_backwards, &r[i]), 0);
        }
        for (int i = 0; i < N_THREADS; i++) {
            pthread_join(readers[i], NULL);
            assert_int_equal(r[i].n_zeros, N_PAGES - 3);
        }
        pthread_join(churner, &bad);
        assert_null(bad);
        expect_damage(&m);
        unmap_file(&m);
    }
    expect_whole(&other);
    unmap_file(&other);
    remove_guard();
}

/* More mappings than there is room for are refused, and the room comes back. */
static void full_table(void **state) {
    (void)state;
    install();
    static uint32_t taken[EB_GUARD_MAX];
    static const uint8_t byte[1] = {1};
    size_t n = 0;
    while (n < EB_GUARD_MAX && (taken[n] = eb_guard_watch(byte, 1)) != 0) n++;
    assert_int_equal(eb_guard_watch(byte, 1), 0);
    char *dir = test_tmp_dir(), path[512];
    struct eb_bytes b;
    ebro_error err;
    test_write_file(dir, "x", byte, 1);
    snprintf(path, sizeof path, "%s/x", dir);
    test_fails(eb_file_map(path, &b, &err), EBRO_UNSUPPORTED, &err, "mapped already");
    assert_null(b.map);
    for (size_t i = 0; i < n; i++) eb_guard_release(taken[i]);
    test_ok(eb_file_map(path, &b, &err), &err);
    eb_bytes_close(&b);
    test_tmp_remove(&dir);
    remove_guard();
}

/* ---- faults that are not the guard's: in child processes ---------------------------------- */

enum child {
    FOREIGN_FAULT,    /* in a mapping of the application */
    FOREIGN_HANDLED,  /* the same, where the application has a handler */
    SENT,             /* SIGBUS by kill */
    SENT_AND_IGNORED, /* where the application ignores it */
    AFTER_CLOSE,      /* in a file that the runtime has mapped once */
    AFTER_REMOVE,     /* in one that it has mapped, without the guard */
    REPLACED          /* a handler that came later stays */
};

static void leave_with_42(int number, siginfo_t *info, void *context) {
    (void)context;
    _exit(number == SIGBUS && info->si_code == BUS_ADRERR ? 42 : 43);
}

static void read_foreign(const char *path) {
    FILE *f = fopen(path, "r+b");
    const volatile uint8_t *p = mmap(NULL, page, PROT_READ, MAP_PRIVATE, fileno(f), 0);
    if (p == MAP_FAILED || ftruncate(fileno(f), 0) != 0) _exit(50);
    _exit(*p);
}

static void set_handler(void (*handler)(int)) {
    struct sigaction action = {.sa_handler = handler};
    if (sigaction(SIGBUS, &action, NULL) != 0) _exit(51);
}

static void be_child(enum child kind, struct mapped *m, const char *foreign) {
    struct sigaction own = {.sa_sigaction = leave_with_42, .sa_flags = SA_SIGINFO};
    /* Not the handlers of the test program: what a bare program has. */
    if (ebro_guard_remove(NULL) != EBRO_OK) _exit(52);
    set_handler(kind == SENT_AND_IGNORED ? SIG_IGN : SIG_DFL);
    if (kind == FOREIGN_HANDLED) sigaction(SIGBUS, &own, NULL);
    if (ebro_guard_install(NULL) != EBRO_OK) _exit(53);
    /* First a fault of the guard's own. */
    const volatile uint8_t *p = m->bytes.data;
    if (p[2 * page] != 0 || p[0] != 7) _exit(54);
    switch (kind) {
        case FOREIGN_FAULT:
        case FOREIGN_HANDLED:
            read_foreign(foreign);
            break;
        case SENT:
        case SENT_AND_IGNORED:
            kill(getpid(), SIGBUS);
            _exit(44);
        case AFTER_CLOSE: {
            const uintptr_t address = (uintptr_t)m->bytes.data;
            FILE *f = fopen(m->path, "rb");
            eb_bytes_close(&m->bytes);
            p = mmap((void *)address, 3 * page, PROT_READ, MAP_PRIVATE, fileno(f), 0);
            if ((uintptr_t)p != address) _exit(55);
            _exit(p[2 * page]);
        }
        case AFTER_REMOVE:
            if (ebro_guard_remove(NULL) != EBRO_OK) _exit(56);
            if (truncate(m->path, 0) != 0) _exit(57);
            _exit(p[0]);
        case REPLACED:
            sigaction(SIGBUS, &own, NULL);
            if (ebro_guard_remove(NULL) != EBRO_INVALID) _exit(58);
            read_foreign(foreign);
    }
}

static int run_child(enum child kind) {
    struct mapped m, foreign;
    int status = 0;
    map_file(&m, 3 * page, 7);
    map_file(&foreign, page, 7);
    assert_int_equal(truncate(m.path, (off_t)page), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        be_child(kind, &m, foreign.path);
        _exit(60);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    unmap_file(&m);
    unmap_file(&foreign);
    return status;
}

static void dies(enum child kind) {
    int status = run_child(kind);
    if (!WIFSIGNALED(status)) print_message("exit code %d\n", WEXITSTATUS(status));
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGBUS);
}

static void leaves(enum child kind, int code) {
    int status = run_child(kind);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), code);
}

static void faults_elsewhere(void **state) {
    (void)state;
    install();
    dies(FOREIGN_FAULT);
    dies(SENT);
    dies(AFTER_CLOSE);
    dies(AFTER_REMOVE);
    leaves(FOREIGN_HANDLED, 42);
    leaves(SENT_AND_IGNORED, 44);
    leaves(REPLACED, 42);
    remove_guard();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shorter),    cmocka_unit_test(unread),           cmocka_unit_test(threads),
        cmocka_unit_test(full_table), cmocka_unit_test(faults_elsewhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
