/* report.c: bytes in the place of a report of `ebro check`, whole or put into a good one: refused
 * with a text, or compared with that one and shown. The first byte says which. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check_compare.h"

enum { MAX_BYTES = 1 << 14 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

#define must(condition) ((condition) ? (void)0 : abort())

#define ROW(device, rung, op, verdict, error)                                                      \
    "{\"device\":\"" device "\",\"rung\":\"" rung "\",\"variant\":\"\",\"op\":\"" op               \
    "\",\"case\":\"c\",\"shape\":\"\",\"verdict\":\"" verdict "\",\"error\":" error                \
    ",\"budget\":1,\"measure\":\"\",\"reason\":\"\",\"runs\":1,\"repeatable\":true,\"seconds\":0," \
    "\""                                                                                           \
    "text\":\"\"}"
#define DEVICE(name) \
    "{\"name\":\"" name "\",\"description\":\"\",\"backend\":\"\",\"trouble\":\"\"}"

/* Further ones of a list. */
#define AND_ROW "," ROW
#define AND_DEVICE "," DEVICE

static const char good[] =
    "{\"schema\":\"ebro-check-1\",\"version\":\"0\",\"date\":\"\",\"seed\":\"7\",\"full\":true,"
    "\"summary\":{\"ok\":2,\"failed\":1,\"refused\":1},\"devices\":[" DEVICE("X")
        AND_DEVICE("Y") "],\"results\":[" ROW("X", "best", "a", "ok", "0.5")
            AND_ROW("X", "slow", "a", "ok", "0") AND_ROW("Y", "best", "a", "failed", "null")
                AND_ROW("Y", "best", "b", "refused", "0") "]}";

/* Four bytes say where and how much goes; the rest comes instead. */
static size_t edit(const uint8_t *data, size_t bytes, char *out) {
    const size_t n = sizeof good - 1;
    if (bytes < 4) return 0;
    size_t at = ((size_t)data[0] << 8 | data[1]) % (n + 1);
    size_t gone = ((size_t)data[2] << 8 | data[3]) % (n - at + 1), added = bytes - 4;
    memcpy(out, good, at);
    memcpy(out + at, data + 4, added);
    memcpy(out + at + added, good + at + gone, n - at - gone);
    return n - gone + added;
}

static void show(const struct eb_saved_report reports[2]) {
    struct eb_comparison c;
    must(eb_comparison_make(&c, reports, 2));
    for (size_t i = 0; i < c.n_ops; i++) {
        must(c.ops[i].difference >= 0 || c.ops[i].difference == -1);
        must(i == 0 || c.ops[i - 1].difference >= c.ops[i].difference);
    }
    eb_comparison_print(&c);
    json_t *all = eb_comparison_json(&c);
    must(all != NULL);
    json_decref(all);
    eb_comparison_free(&c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    static struct eb_saved_report reports[2];
    static char changed[MAX_BYTES + sizeof good], text[512];
    static bool ready;
    bool no_memory = false;
    if (!ready) {
        ready = freopen("/dev/null", "w", stdout) != NULL;
        must(ready);
        must(eb_saved_read(&reports[0], "good", json_loads(good, 0, NULL), text, sizeof text,
                           &no_memory));
    }
    if (bytes < 1 || bytes > MAX_BYTES) return 0;
    size_t n = bytes - 1;
    if ((data[0] & 1) != 0)
        memcpy(changed, data + 1, n);
    else
        n = edit(data + 1, n, changed);
    json_t *json = json_loadb(changed, n, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, NULL);
    if (json == NULL) return 0;
    text[0] = '\0';
    if (eb_saved_read(&reports[1], "input", json, text, sizeof text, &no_memory))
        show(reports);
    else
        must(text[0] != '\0' && !no_memory);
    eb_saved_free(&reports[1]);
    return 0;
}
