#include "tests/harness/process.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tests/harness/test.h"

/* "/proc/PID/NAME". */
struct path {
    char text[64];
};

static struct path path_of(int64_t pid, const char *name) {
    struct path p;
    if (pid == 0) {
        snprintf(p.text, sizeof p.text, "/proc/self/%s", name);
    } else {
        snprintf(p.text, sizeof p.text, "/proc/%lld/%s", (long long)pid, name);
    }
    return p;
}

int64_t test_resident_bytes(int64_t pid) {
    long pages = 0;
    FILE *f = fopen(path_of(pid, "statm").text, "r");
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%*s %ld", &pages), 1);
    fclose(f);
    return (int64_t)pages * sysconf(_SC_PAGESIZE);
}

static uint32_t count_entries(int64_t pid, const char *name) {
    uint32_t n = 0;
    DIR *d = opendir(path_of(pid, name).text);
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d)) != NULL;) n += e->d_name[0] != '.';
    closedir(d);
    return n;
}

uint32_t test_open_files(int64_t pid) {
    uint32_t n = count_entries(pid, "fd");
    return pid == 0 ? n - 1 : n; /* the folder that was just read */
}

uint32_t test_threads(int64_t pid) {
    return count_entries(pid, "task");
}

double test_cpu_seconds(int64_t pid) {
    char line[1024];
    unsigned long user = 0, kernel = 0;
    FILE *f = fopen(path_of(pid, "stat").text, "r");
    assert_non_null(f);
    assert_non_null(fgets(line, sizeof line, f));
    fclose(f);
    /* the name may hold blanks and brackets; what follows its last one are numbers */
    const char *rest = strrchr(line, ')');
    assert_non_null(rest);
    int n =
        sscanf(rest + 1, " %*c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %lu %lu", &user, &kernel);
    assert_int_equal(n, 2);
    return (double)(user + kernel) / (double)sysconf(_SC_CLK_TCK);
}

bool test_is_sanitized(void) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    return true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
    return true;
#else
    return false;
#endif
#else
    return false;
#endif
}
