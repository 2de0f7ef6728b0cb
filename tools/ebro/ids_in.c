/* ids_in.c: see ids_in.h. */
#include "ids_in.h"

#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "json_in.h"

static int no_memory(size_t n) {
    eb_complain("out of memory for %zu token ids", n);
    return EB_EXIT_MEMORY;
}

static int take_array(const char *what, const json_t *all, uint32_t vocab, struct eb_tokens *out) {
    size_t n = json_array_size(all);
    if (n == 0) {
        eb_complain("%s: a JSON array of at least one token id is needed", what);
        return EB_EXIT_USAGE;
    }
    if (!(out->ids = calloc(n, sizeof *out->ids))) return no_memory(n);
    for (size_t i = 0; i < n; i++) {
        const json_t *one = json_array_get(all, i);
        if (!json_is_integer(one) || json_integer_value(one) < 0 ||
            json_integer_value(one) >= (json_int_t)vocab) {
            char value[32];
            eb_json_shorten(one, value, sizeof value);
            eb_complain("%s: element %zu (%s) is not a token id from 0 to %u", what, i + 1, value,
                        vocab - 1);
            return EB_EXIT_USAGE;
        }
        out->ids[i] = (int32_t)json_integer_value(one);
    }
    out->n = n;
    return EB_EXIT_OK;
}

static int complain_json(const char *what, const json_error_t *why) {
    if (json_error_code(why) == json_error_out_of_memory) {
        eb_complain("out of memory while reading %s", what);
        return EB_EXIT_MEMORY;
    }
    if (why->line > 0)
        eb_complain("%s is not valid JSON: %s (line %d)", what, why->text, why->line);
    else
        eb_complain("cannot read %s: %s", what, why->text);
    return EB_EXIT_USAGE;
}

int eb_ids_read_file(const char *path, uint32_t vocab, struct eb_tokens *out) {
    json_error_t why;
    const char *what = strcmp(path, "-") == 0 ? "standard input" : path;
    json_t *all = eb_json_read_file(path, JSON_DECODE_ANY, &why);
    if (!all) return complain_json(what, &why);
    int code = take_array(what, all, vocab, out);
    json_decref(all);
    return code;
}

int eb_ids_read_text(const char *what, const char *text, uint32_t vocab, struct eb_tokens *out) {
    static const char between[] = " \t\r\n,";
    text += strspn(text, between);
    if (*text == '[') {
        json_error_t why;
        json_t *all = json_loads(text, 0, &why);
        if (!all) return complain_json(what, &why);
        int code = take_array(what, all, vocab, out);
        json_decref(all);
        return code;
    }
    /* an id takes one byte at least */
    size_t capacity = strlen(text) + 1;
    if (!(out->ids = calloc(capacity, sizeof *out->ids))) return no_memory(capacity);
    for (; *text; text += strspn(text, between)) {
        char *end = NULL;
        errno = 0;
        unsigned long id = *text >= '0' && *text <= '9' ? strtoul(text, &end, 10) : ULONG_MAX;
        if (errno != 0 || id >= vocab || (*end && !strchr(between, *end))) {
            eb_complain("%s: \"%.20s\" is not a token id from 0 to %u", what, text, vocab - 1);
            return EB_EXIT_USAGE;
        }
        out->ids[out->n++] = (int32_t)id;
        text = end;
    }
    return EB_EXIT_OK;
}
