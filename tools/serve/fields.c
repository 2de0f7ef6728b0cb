/* fields.c: see fields.h. */
#include "fields.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- parsing ------------------------------------------------------------------------------ */

/* How much of everything there is in a text, whether or not it is JSON. */
struct extent {
    size_t depth, deepest, containers, values;
};

/* Steps over a string whose first quote is at text[at]; returns where its last quote is. */
static size_t end_of_string(const char *text, size_t bytes, size_t at) {
    for (at++; at < bytes && text[at] != '"'; at++)
        if (text[at] == '\\') at++;
    return at;
}

static struct extent measure(const char *text, size_t bytes) {
    struct extent e = {.values = 1};
    for (size_t at = 0; at < bytes; at++) {
        switch (text[at]) {
            case '"':
                at = end_of_string(text, bytes, at);
                break;
            case '[':
            case '{':
                e.containers++;
                if (++e.depth > e.deepest) e.deepest = e.depth;
                break;
            case ']':
            case '}':
                if (e.depth > 0) e.depth--;
                break;
            case ',':
                e.values++;
                break;
            default:
                break;
        }
    }
    return e;
}

static bool check_extent(const char *text, size_t bytes, struct eb_fault *fault) {
    struct extent e = measure(text, bytes);
    if (e.deepest > EB_JSON_DEPTH)
        return eb_fault_set(fault, 400, NULL,
                            "the body is nested %zu levels deep; at most %d are read", e.deepest,
                            EB_JSON_DEPTH);
    if (e.containers > EB_JSON_CONTAINERS)
        return eb_fault_set(fault, 400, NULL,
                            "the body holds %zu arrays and objects; at most %d are read",
                            e.containers, EB_JSON_CONTAINERS);
    if (e.values > EB_JSON_VALUES)
        return eb_fault_set(fault, 400, NULL, "the body holds %zu values; at most %d are read",
                            e.values, EB_JSON_VALUES);
    return true;
}

static const char *kind_of(const json_t *value) {
    switch (json_typeof(value)) {
        case JSON_OBJECT:
            return "an object";
        case JSON_ARRAY:
            return "an array";
        case JSON_STRING:
            return "a string";
        case JSON_INTEGER:
        case JSON_REAL:
            return "a number";
        case JSON_NULL:
            return "null";
        default:
            return "true or false";
    }
}

bool eb_json_read(const char *text, size_t bytes, json_t **out, struct eb_fault *fault) {
    json_error_t why;
    *out = NULL;
    if (bytes == 0)
        return eb_fault_set(fault, 400, NULL, "the body is empty; a JSON object is read");
    if (!check_extent(text, bytes, fault)) return false;
    json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &why);
    /* where memory is short, the parser mostly has no reason to give */
    if (!root && (why.text[0] == '\0' || json_error_code(&why) == json_error_out_of_memory))
        return eb_fault_no_memory(fault);
    if (!root)
        return eb_fault_set(fault, 400, NULL, "the body is no JSON: line %d, column %d: %s",
                            why.line, why.column, why.text);
    if (!json_is_object(root)) {
        eb_fault_set(fault, 400, NULL, "the body is %s; a JSON object is read", kind_of(root));
        json_decref(root);
        return false;
    }
    *out = root;
    return true;
}

/* ---- fields ------------------------------------------------------------------------------- */

json_t *eb_field(const json_t *object, const char *place) {
    const char *dot = strrchr(place, '.');
    json_t *value = json_object_get(object, dot ? dot + 1 : place);
    return json_is_null(value) ? NULL : value;
}

bool eb_field_wrong(const json_t *value, const char *place, const char *wanted,
                    struct eb_fault *fault) {
    if (json_is_integer(value))
        return eb_fault_set(fault, 400, place, "%s is %" JSON_INTEGER_FORMAT "; it must be %s",
                            place, json_integer_value(value), wanted);
    if (json_is_real(value))
        return eb_fault_set(fault, 400, place, "%s is %.12g; it must be %s", place,
                            json_real_value(value), wanted);
    if (json_is_string(value))
        return eb_fault_set(fault, 400, place, "%s is \"%.60s%s\"; it must be %s", place,
                            json_string_value(value), json_string_length(value) > 60 ? "..." : "",
                            wanted);
    return eb_fault_set(fault, 400, place, "%s is %s; it must be %s", place, kind_of(value),
                        wanted);
}

bool eb_field_bool(const json_t *object, const char *place, bool *out, struct eb_fault *fault) {
    const json_t *value = eb_field(object, place);
    if (!value) return true;
    if (!json_is_boolean(value)) return eb_field_wrong(value, place, "true or false", fault);
    *out = json_is_true(value);
    return true;
}

bool eb_field_int(const json_t *object, const char *place, int64_t min, int64_t max, int64_t *out,
                  struct eb_fault *fault) {
    const double exact = 9007199254740992.0; /* 2^53: up to here every whole number is a double */
    const json_t *value = eb_field(object, place);
    char wanted[96];
    if (!value) return true;
    int64_t n = 0;
    bool whole = json_is_integer(value);
    if (whole) {
        n = json_integer_value(value);
    } else if (json_is_real(value)) {
        double real = json_real_value(value);
        whole = fabs(real) <= exact && floor(real) == real;
        if (whole) n = (int64_t)real;
    }
    if (whole && n >= min && n <= max) {
        *out = n;
        return true;
    }
    snprintf(wanted, sizeof wanted, "a whole number from %lld to %lld", (long long)min,
             (long long)max);
    return eb_field_wrong(value, place, wanted, fault);
}

bool eb_field_real(const json_t *object, const char *place, double min, double max, double *out,
                   struct eb_fault *fault) {
    const json_t *value = eb_field(object, place);
    char wanted[96];
    if (!value) return true;
    if (json_is_number(value)) {
        double real = json_number_value(value);
        if (real >= min && real <= max) {
            *out = real;
            return true;
        }
    }
    snprintf(wanted, sizeof wanted, "a number from %g to %g", min, max);
    return eb_field_wrong(value, place, wanted, fault);
}

bool eb_field_text(const json_t *object, const char *place, const char **out,
                   struct eb_fault *fault) {
    const json_t *value = eb_field(object, place);
    if (!value) return true;
    if (!json_is_string(value)) return eb_field_wrong(value, place, "a string", fault);
    *out = json_string_value(value);
    return true;
}

bool eb_field_object(const json_t *object, const char *place, json_t **out,
                     struct eb_fault *fault) {
    json_t *value = eb_field(object, place);
    if (value && !json_is_object(value)) return eb_field_wrong(value, place, "an object", fault);
    if (value) *out = value;
    return true;
}

bool eb_field_array(const json_t *object, const char *place, json_t **out, struct eb_fault *fault) {
    json_t *value = eb_field(object, place);
    if (value && !json_is_array(value)) return eb_field_wrong(value, place, "an array", fault);
    if (value) *out = value;
    return true;
}
