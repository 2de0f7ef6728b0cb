/* main.c: ebro_vkcheck: makes every pipeline of the Vulkan backend that real models need, and
 * prints what the driver's compiler says of them. Nothing is run. With --driver the device may be
 * one that the driver only pretends to have; tools/vendors.sh goes through those.
 *
 * Exit codes: 0, every kernel was made and none puts registers into memory; 1, some failed, do, or
 * were called for by nothing; 2, the check could not be made, for the reason that is said. */
#include <dlfcn.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "driver.h"
#include "table.h"
#include "walk.h"

struct check {
    struct eb_table table;
    struct eb_walk walk;
    bool verbose;
    char device[160];
};

static void on_log(void *user, int32_t level, const char *text) {
    struct check *c = user;
    if (c->verbose || level <= EBRO_LOG_WARN) fprintf(stderr, "%s\n", text);
    eb_table_add(&c->table, text, c->walk.what);
}

static void on_failure(void *user, const char *what, const ebro_error *err) {
    (void)user;
    fprintf(stderr, "failed: %s: %s\n", what, err->text);
}

/* One rung: every capability but those of `mask`. */
static int32_t run(struct check *c, ebro_runtime *rt, const char *name, uint64_t mask,
                   ebro_error *err) {
    const ebro_device_options options = {.size = sizeof options, .caps_mask = mask};
    ebro_device *device = NULL;
    int32_t st = eb_device_open(rt, name, &options, &device, err);
    if (st != EBRO_OK) return st;
    snprintf(c->device, sizeof c->device, "%s", device->info.description);
    c->walk.device = device;
    st = eb_stream_open(device, &c->walk.stream, err);
    if (st == EBRO_OK) {
        eb_walk_all(&c->walk);
        eb_stream_close(&c->walk.stream);
    }
    ebro_device_close(&device);
    return st;
}

/* The best rung of the device, then the plain one. */
static int32_t check(struct check *c, const char *name, ebro_error *err) {
    const ebro_runtime_options options = {
        .size = sizeof options, .log = on_log, .log_user = c, .log_level = EBRO_LOG_TRACE};
    ebro_runtime *rt = NULL;
    int32_t st = ebro_runtime_open(&options, &rt, err);
    if (st == EBRO_OK) st = run(c, rt, name, 0, err);
    if (st == EBRO_OK)
        st = run(c, rt, name, EBRO_CAP_SUBGROUP | EBRO_CAP_MATRIX | EBRO_CAP_BF16, err);
    ebro_runtime_close(&rt);
    return st;
}

/* Puts driver.c, from the folder of this program, and behind it the driver at `path` in the place
 * of Vulkan's loader. */
static bool use_driver(const char *program, const char *path) {
    char own[4096];
    const char *slash = strrchr(program, '/'), *why = NULL;
    int n = snprintf(own, sizeof own, "%.*s/vkcheck/libvulkan.so.1",
                     slash != NULL ? (int)(slash - program) : 1, slash != NULL ? program : ".");
    void *library = n > 0 && (size_t)n < sizeof own ? dlopen(own, RTLD_NOW) : NULL;
    void *symbol = library != NULL ? dlsym(library, "eb_driver_open") : NULL;
    if (symbol != NULL) {
        eb_driver_open_fn open;
        memcpy(&open, &symbol, sizeof open);
        why = open(path);
    } else {
        path = own;
        why = dlerror();
    }
    if (why != NULL || symbol == NULL)
        fprintf(stderr, "ebro_vkcheck: %s: %s\n", path, why != NULL ? why : "cannot be loaded");
    return why == NULL && symbol != NULL;
}

static int usage(void) {
    fputs(
        "usage: ebro_vkcheck [--driver LIBRARY] [--op NAME] [--sum] [--verbose] [DEVICE]\n"
        "Makes every pipeline of DEVICE (Vulkan0), runs none, and prints a table.\n"
        "  --driver LIBRARY  the driver's library; no loader, and nothing that needs hardware\n"
        "  --op NAME         one operator alone: linear, mla_decode, ...\n"
        "  --sum             the table's last line alone\n"
        "  --verbose         what the backend logs, too\n",
        stderr);
    return 2;
}

int main(int argc, char **argv) {
    const char *name = "Vulkan0", *driver = NULL;
    bool sum = false;
    ebro_error err;
    struct check *c = calloc(1, sizeof *c);
    if (c == NULL) return 2;
    c->walk.failed = on_failure;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--sum") == 0) {
            sum = true;
        } else if (strcmp(argv[i], "--verbose") == 0) {
            c->verbose = true;
        } else if (strcmp(argv[i], "--op") == 0 && i + 1 < argc) {
            c->walk.only = argv[++i];
        } else if (strcmp(argv[i], "--driver") == 0 && i + 1 < argc) {
            driver = argv[++i];
        } else if (argv[i][0] != '-') {
            name = argv[i];
        } else {
            free(c);
            return usage();
        }
    }
    int rc = 2;
    if (driver != NULL && !use_driver(argv[0], driver)) {
        free(c);
        return rc;
    }
    if (check(c, name, &err) != EBRO_OK) {
        fprintf(stderr, "ebro_vkcheck: %s\n", err.text);
    } else if (c->walk.n_calls == 0) {
        fprintf(stderr, "ebro_vkcheck: no operator is called \"%s\"\n", c->walk.only);
    } else if (c->table.n_rows == 0 && c->walk.n_failed == 0) {
        fprintf(stderr, "ebro_vkcheck: %s lacks VK_KHR_pipeline_executable_properties\n",
                c->device);
    } else {
        if (!sum) eb_table_print(&c->table, stdout);
        eb_table_sum_up(&c->table, c->device, c->walk.n_failed, stdout);
        if (c->table.n_lost > 0)
            fprintf(stderr, "ebro_vkcheck: %" PRIu32 " pipelines are not in the table\n",
                    c->table.n_lost);
        uint32_t n_unseen = c->walk.only == NULL ? eb_table_unseen(&c->table, stderr) : 0;
        rc = c->walk.n_failed > 0 || c->table.n_lost > 0 || n_unseen > 0 ||
             eb_table_spilling(&c->table) > 0;
    }
    free(c);
    return rc;
}
