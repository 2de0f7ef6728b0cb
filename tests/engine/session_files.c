/* session_files.c: a sequence in a file: written whole or not at all, whatever happens on the way:
 * a full disk, a folder that cannot be written, a process that is killed at any moment. */
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "engine/engine.h"
#include "tests/harness/micro.h"
#include "tests/harness/test.h"

/* The program's own read, so that a disk can be made to fail: -1: it does not; else so many bytes
 * can be read, the end counts as one more. */
static int64_t readable = -1;

ssize_t read(int fd, void *data, size_t bytes) {
    struct iovec v = {data, bytes};
    if (readable >= 0 && (uint64_t)readable < bytes) {
        errno = EIO;
        return -1;
    }
    ssize_t n = readv(fd, &v, 1);
    if (readable >= 0) readable -= n > 0 ? n : 1;
    return n;
}

struct rig {
    ebro_runtime *rt;
    ebro_device *device;
    ebro_model *model;
    ebro_engine *engine;
    struct micro_files files;
    char *dir;
    char path[512];
};

static void rig_open(struct rig *r) {
    ebro_error err;
    const struct micro_spec spec = {.seed = 1, .pattern = "KM"};
    *r = (struct rig){.files = micro_make(&spec)};
    ebro_runtime_options ro = {.size = sizeof ro, .module_dir = test_module_dir()};
    test_ok(ebro_runtime_open(&ro, &r->rt, &err), &err);
    ebro_device_settings one = {.size = sizeof one, .n_threads = 1};
    test_ok(ebro_device_open_with(r->rt, "cpu", &one, &r->device, &err), &err);
    ebro_model_options mo = {.size = sizeof mo, .files = r->files.files, .n_files = r->files.n};
    test_ok(ebro_model_open(r->rt, &mo, &r->model, &err), &err);
    ebro_engine_options eo = {
        .size = sizeof eo, .n_ctx = 256, .cache_dtype = EBRO_F32, .max_seqs = 4};
    test_ok(ebro_engine_open(r->model, r->device, &eo, &r->engine, &err), &err);
}

static void rig_close(struct rig *r) {
    ebro_engine_close(&r->engine);
    ebro_model_close(&r->model);
    ebro_device_close(&r->device);
    ebro_runtime_close(&r->rt);
    micro_files_free(&r->files);
}

static int set_up(void **state) {
    static struct rig r;
    signal(SIGXFSZ, SIG_IGN);
    rig_open(&r);
    r.dir = test_tmp_dir();
    snprintf(r.path, sizeof r.path, "%s/session", r.dir);
    *state = &r;
    return 0;
}

static int tear_down(void **state) {
    struct rig *r = *state;
    test_tmp_remove(&r->dir);
    rig_close(r);
    return 0;
}

static ebro_seq *make(struct rig *r, uint32_t n) {
    ebro_error err;
    ebro_seq *s = NULL;
    int32_t ids[256];
    for (uint32_t i = 0; i < n; i++) ids[i] = (int32_t)(11 * i % MICRO_RANKS);
    test_ok(ebro_seq_create(r->engine, &s, &err), &err);
    test_ok(ebro_seq_append(s, ids, n, 0, &err), &err);
    while (ebro_seq_pending(s) > 0) test_ok(ebro_engine_step(r->engine, &err), &err);
    return s;
}

static void save(const ebro_seq *s, const char *path) {
    ebro_error err;
    test_ok(ebro_seq_save(s, path, NULL, NULL, &err), &err);
}

/* Tokens of the sequence in the file, which must be whole. */
static uint32_t load(struct rig *r, const char *path) {
    ebro_error err;
    ebro_seq *s = NULL;
    test_ok(ebro_seq_load(r->engine, path, &s, NULL, &err), &err);
    uint32_t n = ebro_seq_length(s);
    ebro_seq_destroy(&s);
    ebro_engine_forget(r->engine);
    return n;
}

/* Files that were left in the folder under the names of files on their way. */
static size_t count_left(const struct rig *r, bool remove) {
    char pattern[600];
    glob_t found = {0};
    snprintf(pattern, sizeof pattern, "%s/.ebro-*", r->dir);
    size_t n = glob(pattern, 0, NULL, &found) == 0 ? found.gl_pathc : 0;
    for (size_t i = 0; remove && i < n; i++) unlink(found.gl_pathv[i]);
    globfree(&found);
    return n;
}

static size_t leftovers(const struct rig *r) {
    return count_left(r, true);
}

static void there_and_back(void **state) {
    struct rig *r = *state;
    ebro_error err;
    ebro_transfer t = {.size = sizeof t}, u = {.size = sizeof u};
    ebro_seq *s = make(r, 100), *back = NULL;
    struct stat info;
    test_ok(ebro_seq_save(s, r->path, NULL, &t, &err), &err);
    assert_int_equal(stat(r->path, &info), 0);
    assert_int_equal(info.st_size, t.total_bytes);
    test_ok(ebro_seq_load(r->engine, r->path, &back, &u, &err), &err);
    assert_int_equal(t.total_bytes, u.total_bytes);
    assert_int_equal(ebro_seq_length(back), 100);
    ebro_seq_destroy(&back);
    assert_int_equal(leftovers(r), 0);
    /* Through a link: the link stays. */
    char link[600];
    snprintf(link, sizeof link, "%s/link", r->dir);
    assert_int_equal(symlink(r->path, link), 0);
    ebro_seq *other = make(r, 30);
    save(other, link);
    assert_int_equal(lstat(link, &info), 0);
    assert_true(S_ISLNK(info.st_mode));
    assert_int_equal(load(r, r->path), 30);
    unlink(link);
    ebro_seq_destroy(&other);
    ebro_seq_destroy(&s);
}

static void refusals(void **state) {
    struct rig *r = *state;
    ebro_error err;
    ebro_seq *s = make(r, 40), *back = NULL;
    char path[600];
    save(s, r->path);
    snprintf(path, sizeof path, "%s/absent/x", r->dir);
    test_fails(ebro_seq_save(s, path, NULL, NULL, &err), EBRO_IO, &err, "No such file");
    test_fails(ebro_seq_load(r->engine, path, &back, NULL, &err), EBRO_IO, &err, "No such file");
    test_fails(ebro_seq_save(s, r->dir, NULL, NULL, &err), EBRO_INVALID, &err, "not a regular");
    test_fails(ebro_seq_load(r->engine, r->dir, &back, NULL, &err), EBRO_INVALID, &err, "folder");
    test_fails(ebro_seq_save(s, NULL, NULL, NULL, &err), EBRO_INVALID, &err, "NULL");
    test_fails(ebro_seq_load(r->engine, NULL, &back, NULL, &err), EBRO_INVALID, &err, "NULL");
    snprintf(path, sizeof path, "%s/nowhere", r->dir);
    assert_int_equal(symlink("absent", path), 0);
    test_fails(ebro_seq_save(s, path, NULL, NULL, &err), EBRO_IO, &err, "a link to a file");
    unlink(path);
    FILE *f = fopen(r->path, "ab");
    assert_non_null(f);
    fputc(0, f);
    fclose(f);
    test_fails(ebro_seq_load(r->engine, r->path, &back, NULL, &err), EBRO_FORMAT, &err,
               "bytes behind it");
    assert_null(back);
    ebro_seq_destroy(&s);
}

/* A disk that does not give some byte of the file, or its very end, says nothing about what is in
 * it. */
static void unreadable(void **state) {
    struct rig *r = *state;
    ebro_error err;
    ebro_transfer t = {.size = sizeof t};
    ebro_seq *s = make(r, 40), *back = NULL;
    test_ok(ebro_seq_save(s, r->path, NULL, &t, &err), &err);
    for (uint64_t n = 0; n <= t.total_bytes; n += n == 0 || n == t.total_bytes ? 1 : 997) {
        if (n > t.total_bytes - 997 && n < t.total_bytes) n = t.total_bytes;
        readable = (int64_t)n;
        int32_t st = ebro_seq_load(r->engine, r->path, &back, NULL, &err);
        readable = -1;
        test_fails(st, EBRO_IO, &err, "reading: Input/output error");
        assert_null(back);
    }
    assert_int_equal(load(r, r->path), 40);
    ebro_seq_destroy(&s);
}

/* A name as long as a name can be is as good as any other. */
static void long_names(void **state) {
    struct rig *r = *state;
    ebro_error err;
    ebro_seq *s = make(r, 40);
    enum { MOST = 255 };
    char path[1024];
    int n = snprintf(path, sizeof path, "%s/", r->dir);
    memset(path + n, 'x', MOST + 1);
    path[n + MOST + 1] = '\0';
    test_fails(ebro_seq_save(s, path, NULL, NULL, &err), EBRO_IO, &err, "name too long");
    path[n + MOST] = '\0';
    save(s, path);
    save(s, path);
    assert_int_equal(load(r, path), 40);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(leftovers(r), 0);
    ebro_seq_destroy(&s);
}

/* What a process that is gone has left is removed by the next save in the folder; nothing else is.
 */
static void left_behind(void **state) {
    struct rig *r = *state;
    ebro_seq *s = make(r, 40);
    char path[600];
    const char *const strangers[] = {".ebro-save-1-",  ".ebro-save--1",   ".ebro-save-1-2.bak",
                                     ".ebro-save-1x2", ".ebro-save-12",   "ebro-save-1-2",
                                     ".ebro-save-1-x", ".ebro-save-1-2-3"};
    enum { N = sizeof strangers / sizeof *strangers };
    for (size_t i = 0; i < N; i++) test_write_file(r->dir, strangers[i], "x", 1);
    test_write_file(r->dir, ".ebro-save-123456789-0", "left", 4);
    test_write_file(r->dir, ".ebro-save-1-17", "left", 4);
    /* One is being written: its writer has locked it. */
    test_write_file(r->dir, ".ebro-save-1-0", "on its way", 10);
    snprintf(path, sizeof path, "%s/.ebro-save-1-0", r->dir);
    int fd = open(path, O_WRONLY);
    assert_true(fd >= 0);
    assert_int_equal(flock(fd, LOCK_EX), 0);
    char link[600], folder[600];
    snprintf(link, sizeof link, "%s/.ebro-save-1-1", r->dir);
    assert_int_equal(symlink("session", link), 0);
    snprintf(folder, sizeof folder, "%s/.ebro-save-1-2", r->dir);
    assert_int_equal(mkdir(folder, 0700), 0);
    save(s, r->path);
    assert_int_equal(load(r, r->path), 40);
    snprintf(path, sizeof path, "%s/.ebro-save-123456789-0", r->dir);
    assert_int_equal(access(path, F_OK), -1);
    snprintf(path, sizeof path, "%s/.ebro-save-1-17", r->dir);
    assert_int_equal(access(path, F_OK), -1);
    for (size_t i = 0; i < N; i++) {
        snprintf(path, sizeof path, "%s/%s", r->dir, strangers[i]);
        assert_int_equal(unlink(path), 0);
    }
    assert_int_equal(rmdir(folder), 0);
    assert_int_equal(unlink(link), 0);
    assert_int_equal(count_left(r, false), 1);
    close(fd); /* and now the writer is gone */
    save(s, r->path);
    assert_int_equal(leftovers(r), 0);
    ebro_seq_destroy(&s);
}

/* A disk that is full after any number of bytes: the old file stays, and nothing else. */
static void full_disk(void **state) {
    struct rig *r = *state;
    ebro_error err;
    ebro_transfer t = {.size = sizeof t};
    ebro_seq *before = make(r, 20), *after = make(r, 21);
    save(before, r->path);
    struct rlimit old, tight;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    for (rlim_t bytes = 0; bytes < 40000; bytes += bytes < 300 ? 7 : 3001) {
        tight = old;
        tight.rlim_cur = bytes;
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &tight), 0);
        int32_t st = ebro_seq_save(after, r->path, NULL, &t, &err);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
        test_fails(st, EBRO_IO, &err, "writing: File too large");
        assert_int_equal(load(r, r->path), 20);
        assert_int_equal(leftovers(r), 0);
    }
    save(after, r->path);
    assert_int_equal(load(r, r->path), 21);
    ebro_seq_destroy(&before);
    ebro_seq_destroy(&after);
}

/* ---- killed -------------------------------------------------------------------------------- */

/* The child: saves one of two sequences after the other, for ever; the first has so many tokens. */
static int save_for_ever(const char *path, const char *first) {
    static struct rig r;
    rig_open(&r);
    ebro_seq *s[2] = {make(&r, 20), make(&r, 21)};
    int skip = strcmp(first, "21") == 0;
    ebro_error err;
    if (write(STDOUT_FILENO, "r", 1) != 1) return 1;
    for (int i = 0;; i++) {
        if (ebro_seq_save(s[(i + skip) % 2], path, NULL, NULL, &err) != EBRO_OK) return 1;
    }
}

static void sleep_micros(long n) {
    struct timespec t = {n / 1000000, n % 1000000 * 1000};
    nanosleep(&t, NULL);
}

/* Starts a child, waits until it saves, and kills it so much later. */
static void kill_one(const struct rig *r, const char *first, long micros) {
    int ready[2];
    char byte;
    assert_int_equal(pipe(ready), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        dup2(ready[1], STDOUT_FILENO);
        close(ready[0]);
        close(ready[1]);
        execl("/proc/self/exe", "session_files", "save", r->path, first, (char *)NULL);
        _exit(127);
    }
    close(ready[1]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    sleep_micros(micros);
    int status = 0;
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    /* A child that ended by itself would have saved nothing. */
    assert_true(WIFSIGNALED(status));
}

/* How long a save takes here: the mean of a few. */
static long micros_to_save(const struct rig *r, const ebro_seq *s) {
    enum { TIMES = 8 };
    struct timespec a, b;
    clock_gettime(CLOCK_MONOTONIC, &a);
    for (int i = 0; i < TIMES; i++) save(s, r->path);
    clock_gettime(CLOCK_MONOTONIC, &b);
    return ((b.tv_sec - a.tv_sec) * 1000000 + (b.tv_nsec - a.tv_nsec) / 1000) / TIMES;
}

static void killed(void **state) {
    struct rig *r = *state;
    struct test_rng rng = {test_seed()};
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    enum { KILLS = 100 }; /* a child takes ten times as long to start */
#else
    enum { KILLS = 1000 };
#endif
    enum { LEAST = 1000, MOST = 50000 };
    uint32_t n = 20, n_changed = 0;
    size_t half_written = 0;
    ebro_seq *s = make(r, n);
    long micros = 3 * micros_to_save(r, s) / 2;
    ebro_seq_destroy(&s);
    if (micros < LEAST) micros = LEAST;
    if (micros > MOST) micros = MOST;
    /* At any moment of the first save, or of the one after it. */
    for (int i = 0; i < KILLS; i++) {
        kill_one(r, n == 20 ? "21" : "20", (long)(test_u64(&rng) % (uint64_t)micros));
        uint32_t now = load(r, r->path);
        assert_in_range(now, 20, 21);
        n_changed += now != n;
        n = now;
        half_written += leftovers(r);
    }
    print_message("%d kills within %ld us: %zu in the middle of a file, %u after it\n", KILLS,
                  micros, half_written, n_changed);
    /* The next save removes what a killed one has left. */
    for (int i = 0; i < KILLS && count_left(r, false) == 0; i++)
        kill_one(r, "20", (long)(test_u64(&rng) % (uint64_t)micros));
    assert_int_equal(count_left(r, false), 1);
    s = make(r, n);
    save(s, r->path);
    ebro_seq_destroy(&s);
    assert_int_equal(count_left(r, false), 0);
    /* The moments were worth trying: some hit a file that was not whole yet, some one that was. */
    assert_true(half_written > KILLS / 20 && n_changed > KILLS / 100);
}

int main(int argc, char **argv) {
    if (argc == 4 && strcmp(argv[1], "save") == 0) return save_for_ever(argv[2], argv[3]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(there_and_back), cmocka_unit_test(refusals),
        cmocka_unit_test(unreadable),     cmocka_unit_test(long_names),
        cmocka_unit_test(left_behind),    cmocka_unit_test(full_disk),
        cmocka_unit_test(killed)};
    return cmocka_run_group_tests_name("engine/session_files", tests, set_up, tear_down);
}
