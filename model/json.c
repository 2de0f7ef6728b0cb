/* json.c: wraps jansson, the only file that includes it for the model room's configurations. Not
 * its job: what the keys mean (config.c). */
#include "model/json.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

const char *eb_json_type_name(const void *value) {
    const json_t *v = value;
    if (v == NULL) return "nothing";
    switch (json_typeof(v)) {
        case JSON_OBJECT:
            return "an object";
        case JSON_ARRAY:
            return "an array";
        case JSON_STRING:
            return "a string";
        case JSON_INTEGER:
            return "an integer";
        case JSON_REAL:
            return "a real number";
        case JSON_TRUE:
            return "true";
        case JSON_FALSE:
            return "false";
        case JSON_NULL:
            break;
    }
    return "null";
}

/* One walk over the bytes: jansson itself has no limit on the number of values, and its own depth
 * limit is deeper than what is read here needs. */
int32_t eb_json_bound(const char *label, const struct eb_bytes *text,
                      const struct eb_json_limits *limits, int32_t status, ebro_error *err) {
    if (text->bytes > limits->bytes)
        return eb_fail(err, status, "%s: %zu bytes, more than the %zu it may have", label,
                       text->bytes, limits->bytes);
    size_t depth = 0, n_values = 1;
    bool in_string = false;
    for (size_t i = 0; i < text->bytes; i++) {
        uint8_t c = text->data[i];
        if (in_string) {
            if (c == '\\') i++;
            if (c == '"') in_string = false;
            continue;
        }
        if (c == '"') in_string = true;
        if (c == ',' || c == ':' || c == '[' || c == '{') n_values++;
        if (c == '[' || c == '{') depth++;
        if ((c == ']' || c == '}') && depth > 0) depth--;
        if (depth > limits->depth)
            return eb_fail(err, status, "%s: byte %zu: nested deeper than %zu levels", label, i,
                           limits->depth);
        if (n_values > limits->values)
            return eb_fail(err, status, "%s: more than %zu values", label, limits->values);
    }
    return EBRO_OK;
}

int32_t eb_json_open(const char *file, const struct eb_bytes *text, struct eb_json *out,
                     ebro_error *err) {
    out->file = file;
    out->root = NULL;
    static const struct eb_json_limits limits = {EB_JSON_MAX_BYTES, EB_JSON_MAX_DEPTH,
                                                 EB_JSON_MAX_VALUES};
    int32_t st = eb_json_bound(file, text, &limits, EBRO_FORMAT, err);
    if (st != EBRO_OK) return st;
    json_error_t e;
    json_t *root = json_loadb((const char *)text->data, text->bytes, JSON_REJECT_DUPLICATES, &e);
    if (root == NULL) {
        if (json_error_code(&e) == json_error_out_of_memory)
            return eb_fail(err, EBRO_NOMEM_HOST, "%s: out of memory", file);
        return eb_fail(err, EBRO_FORMAT, "%s: line %d, column %d: %s", file, e.line, e.column,
                       e.text);
    }
    if (!json_is_object(root)) {
        st = eb_fail(err, EBRO_FORMAT, "%s: wanted an object, found %s", file,
                     eb_json_type_name(root));
        json_decref(root);
        return st;
    }
    out->root = root;
    return EBRO_OK;
}

void eb_json_close(struct eb_json *doc) {
    json_decref((json_t *)doc->root); /* NULL-safe */
    doc->root = NULL;
}

struct eb_json_node eb_json_root(const struct eb_json *doc) {
    struct eb_json_node n = {.file = doc->file, .value = doc->root};
    return n;
}

static const json_t *get(const struct eb_json_node *n, const char *key) {
    if (n->value == NULL) return NULL;
    const json_t *v = json_object_get((const json_t *)n->value, key);
    return json_is_null(v) ? NULL : v;
}

static int32_t wrong(const struct eb_json_node *n, const char *key, const char *want,
                     const json_t *found, ebro_error *err) {
    if (found == NULL)
        return eb_fail(err, EBRO_FORMAT, "%s: no key \"%s%s\" (wanted %s)", n->file, n->path, key,
                       want);
    return eb_fail(err, EBRO_FORMAT, "%s: key \"%s%s\": wanted %s, found %s", n->file, n->path, key,
                   want, eb_json_type_name(found));
}

bool eb_json_has(const struct eb_json_node *n, const char *key) {
    return get(n, key) != NULL;
}

bool eb_json_is_array(const struct eb_json_node *n, const char *key) {
    return json_is_array(get(n, key));
}

static void enter(const struct eb_json_node *n, const char *key, const json_t *v,
                  struct eb_json_node *out) {
    struct eb_json_node child = {.file = n->file, .value = v};
    int length = snprintf(child.path, sizeof child.path, "%s%s.", n->path, key);
    if (length < 0 || (size_t)length >= sizeof child.path) /* cut off: it only serves errors */
        memcpy(child.path + sizeof child.path - 5, "....", 5);
    *out = child;
}

int32_t eb_json_object(const struct eb_json_node *n, const char *key, struct eb_json_node *out,
                       ebro_error *err) {
    const json_t *v = get(n, key);
    if (!json_is_object(v)) return wrong(n, key, "an object", v, err);
    enter(n, key, v, out);
    return EBRO_OK;
}

int32_t eb_json_object_opt(const struct eb_json_node *n, const char *key, struct eb_json_node *out,
                           ebro_error *err) {
    if (eb_json_has(n, key)) return eb_json_object(n, key, out, err);
    enter(n, key, NULL, out);
    return EBRO_OK;
}

static int32_t read_u32(const struct eb_json_node *n, const char *key, const json_t *v, uint32_t lo,
                        uint32_t hi, uint32_t *out, ebro_error *err) {
    char want[64];
    snprintf(want, sizeof want, "an integer from %u to %u", lo, hi);
    if (!json_is_integer(v)) return wrong(n, key, want, v, err);
    json_int_t x = json_integer_value(v);
    if (x < (json_int_t)lo || x > (json_int_t)hi)
        return eb_fail(err, EBRO_FORMAT, "%s: key \"%s%s\": wanted %s, found %lld", n->file,
                       n->path, key, want, (long long)x);
    *out = (uint32_t)x;
    return EBRO_OK;
}

int32_t eb_json_u32(const struct eb_json_node *n, const char *key, uint32_t lo, uint32_t hi,
                    uint32_t *out, ebro_error *err) {
    return read_u32(n, key, get(n, key), lo, hi, out, err);
}

int32_t eb_json_u32_or(const struct eb_json_node *n, const char *key, uint32_t lo, uint32_t hi,
                       uint32_t absent, uint32_t *out, ebro_error *err) {
    if (eb_json_has(n, key)) return eb_json_u32(n, key, lo, hi, out, err);
    *out = absent;
    return EBRO_OK;
}

int32_t eb_json_f32(const struct eb_json_node *n, const char *key, float lo, float hi, float *out,
                    ebro_error *err) {
    char want[64];
    snprintf(want, sizeof want, "a number from %g to %g", (double)lo, (double)hi);
    const json_t *v = get(n, key);
    if (!json_is_number(v)) return wrong(n, key, want, v, err);
    double x = json_number_value(v);
    if (!(x >= (double)lo && x <= (double)hi))
        return eb_fail(err, EBRO_FORMAT, "%s: key \"%s%s\": wanted %s, found %g", n->file, n->path,
                       key, want, x);
    *out = (float)x;
    return EBRO_OK;
}

int32_t eb_json_f32_or(const struct eb_json_node *n, const char *key, float lo, float hi,
                       float absent, float *out, ebro_error *err) {
    if (eb_json_has(n, key)) return eb_json_f32(n, key, lo, hi, out, err);
    *out = absent;
    return EBRO_OK;
}

int32_t eb_json_bool(const struct eb_json_node *n, const char *key, bool *out, ebro_error *err) {
    const json_t *v = get(n, key);
    if (!json_is_boolean(v)) return wrong(n, key, "true or false", v, err);
    *out = json_is_true(v);
    return EBRO_OK;
}

int32_t eb_json_bool_or(const struct eb_json_node *n, const char *key, bool absent, bool *out,
                        ebro_error *err) {
    if (eb_json_has(n, key)) return eb_json_bool(n, key, out, err);
    *out = absent;
    return EBRO_OK;
}

int32_t eb_json_string(const struct eb_json_node *n, const char *key, const char **out,
                       ebro_error *err) {
    const json_t *v = get(n, key);
    if (!json_is_string(v)) return wrong(n, key, "a string", v, err);
    *out = json_string_value(v);
    return EBRO_OK;
}

int32_t eb_json_string_or(const struct eb_json_node *n, const char *key, const char *absent,
                          const char **out, ebro_error *err) {
    if (eb_json_has(n, key)) return eb_json_string(n, key, out, err);
    *out = absent;
    return EBRO_OK;
}

int32_t eb_json_array(const struct eb_json_node *n, const char *key, size_t *length,
                      ebro_error *err) {
    const json_t *v = get(n, key);
    if (!json_is_array(v)) return wrong(n, key, "an array", v, err);
    *length = json_array_size(v);
    return EBRO_OK;
}

int32_t eb_json_u32_at(const struct eb_json_node *n, const char *key, size_t i, uint32_t lo,
                       uint32_t hi, uint32_t *out, ebro_error *err) {
    char name[96];
    snprintf(name, sizeof name, "%s[%zu]", key, i);
    return read_u32(n, name, json_array_get(get(n, key), i), lo, hi, out, err);
}

int32_t eb_json_string_at(const struct eb_json_node *n, const char *key, size_t i, const char **out,
                          ebro_error *err) {
    char name[96];
    snprintf(name, sizeof name, "%s[%zu]", key, i);
    const json_t *v = json_array_get(get(n, key), i);
    if (!json_is_string(v)) return wrong(n, name, "a string", v, err);
    *out = json_string_value(v);
    return EBRO_OK;
}

int32_t eb_json_each(const struct eb_json_node *n,
                     int32_t (*each)(void *user, const struct eb_json_node *member,
                                     ebro_error *err),
                     void *user, ebro_error *err) {
    /* jansson's iterators want a mutable object though they only read it. */
    json_t *o = (json_t *)(uintptr_t)n->value;
    int32_t st = EBRO_OK;
    for (void *it = json_object_iter(o); it != NULL && st == EBRO_OK;
         it = json_object_iter_next(o, it)) {
        const json_t *v = json_object_iter_value(it);
        struct eb_json_node member;
        enter(n, json_object_iter_key(it), json_is_object(v) ? v : NULL, &member);
        st = each(user, &member, err);
    }
    return st;
}
