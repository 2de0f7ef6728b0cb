/* cmd_devices.c: `ebro devices`: what can be given to --device. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common.h"

static const char usage[] =
    "usage: ebro devices [--json] [--log LEVEL]\n"
    "\n"
    "Lists the devices that can be used, best first, one a line:\n"
    "  NAME: DESCRIPTION (TOTAL MiB, FREE MiB free)\n"
    "On stderr it says why a backend that is installed finds none, unless --log is\n"
    "below 2.\n";

static const struct eb_arg args[] = {
    {.name = "--json",
     .env = "EBRO_JSON",
     .kind = EB_ARG_FLAG,
     .offset = offsetof(struct eb_options, json),
     .help = "a JSON array of objects: name, description, id\n"
             "(stable: use it in settings), backend, total_bytes,\n"
             "free_bytes (0: not known)"},
};

/* Returns how many are left. */
static uint32_t keep_computing(ebro_device_info *list, uint32_t n) {
    uint32_t kept = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (eb_device_computes(&list[i])) list[kept++] = list[i];
    }
    return kept;
}

static void print_lines(const ebro_device_info *list, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        printf("%s: %s", list[i].name, list[i].description);
        if (list[i].total_bytes)
            printf(" (%llu MiB, %llu MiB free)\n", (unsigned long long)(list[i].total_bytes >> 20),
                   (unsigned long long)(list[i].free_bytes >> 20));
        else
            printf(" (memory not known)\n");
    }
}

static bool print_json(const ebro_device_info *list, uint32_t n) {
    bool ok = false;
    json_t *all = json_array();
    for (uint32_t i = 0; all && i < n; i++) {
        json_t *one = json_pack("{s:s, s:s, s:s, s:s, s:I, s:I}", "name", list[i].name,
                                "description", list[i].description, "id", list[i].id, "backend",
                                list[i].backend, "total_bytes", (json_int_t)list[i].total_bytes,
                                "free_bytes", (json_int_t)list[i].free_bytes);
        if (!one || json_array_append_new(all, one) != 0) goto out;
    }
    if (!all) goto out;
    char *text = json_dumps(all, JSON_INDENT(2));
    if (!text) goto out;
    puts(text);
    free(text);
    ok = true;
out:
    json_decref(all);
    return ok;
}

int eb_cmd_devices(int argc, char **argv) {
    const struct eb_arg_group groups[] = {{"Output", args, sizeof args / sizeof *args},
                                          eb_log_args};
    struct eb_options o;
    int code = eb_command_options("devices", usage, groups, sizeof groups / sizeof *groups, argc,
                                  argv, &o);
    if (code >= 0) return code;

    enum { CAPACITY = 64 };
    ebro_device_info list[CAPACITY];
    ebro_runtime *runtime = NULL;
    ebro_error err = {0};
    uint32_t n = 0;
    code = EB_EXIT_OK;
    /* Elsewhere a backend without a device is no news; here it is what was asked for. */
    if (o.log == EBRO_LOG_WARN) o.log = EBRO_LOG_INFO;
    if (eb_runtime_open(&o, &runtime, &err) != EBRO_OK ||
        ebro_device_list(runtime, list, CAPACITY, &n, &err) != EBRO_OK) {
        code = eb_complain_error(&err);
        goto out;
    }
    n = keep_computing(list, n < CAPACITY ? n : CAPACITY);
    if (n == 0) {
        code = EB_EXIT_DEVICE;
        eb_complain(
            "no device can be used: no backend module (ebro_*.so) lies beside the program, or "
            "none of them works");
    }
    if (o.json) {
        if (!print_json(list, n)) {
            eb_complain("out of memory, or a device whose name is not UTF-8");
            code = EB_EXIT_MEMORY;
            goto out;
        }
    } else {
        print_lines(list, n);
    }
    if (!eb_flush_stdout()) code = EB_EXIT_USAGE;
out:
    ebro_runtime_close(&runtime);
    return code;
}
