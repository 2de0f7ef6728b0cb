/* schema.c: what may pass for a schema; members.c and items.c write objects and arrays. A schema is
 * gone through once for each way it is referred to; recursion is as deep as the schema is nested,
 * which is bounded. */
#include "schema.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "literals.h"

/* ---- places ------------------------------------------------------------------------------- */

struct eb_where eb_where_below(const struct eb_where *up, const char *name) {
    return (struct eb_where){.up = up, .name = name, .depth = up->depth};
}

struct eb_where eb_where_item(const struct eb_where *up, size_t index) {
    return (struct eb_where){.up = up, .index = index, .depth = up->depth};
}

static void write_where(const struct eb_where *w, char *out, size_t room) {
    const struct eb_where *chain[4 * EB_MAX_NESTING];
    size_t n = 0, at = 0;
    for (; w != NULL && n < sizeof chain / sizeof *chain; w = w->up) chain[n++] = w;
    out[0] = '\0';
    while (n > 0 && at < room) {
        const struct eb_where *c = chain[--n];
        int wrote = c->name == NULL ? snprintf(out + at, room - at, "/%zu", c->index)
                                    : snprintf(out + at, room - at, "%s%.80s",
                                               c->up != NULL ? "/" : "", c->name);
        at += wrote > 0 ? (size_t)wrote : 0;
    }
}

void eb_schema_refuse(struct eb_schema *s, int32_t status, const struct eb_where *where,
                      const char *fmt, ...) {
    char cause[400], place[400];
    va_list args;
    va_start(args, fmt);
    vsnprintf(cause, sizeof cause, fmt, args);
    va_end(args);
    write_where(where, place, sizeof place);
    eb_build_fail(s->b, status, "%s (at %s)", cause, place);
}

/* ---- keywords ----------------------------------------------------------------------------- */

enum { ANNOTATION = 1 << 8, SHAPE = 1 << 9 };

/* What a keyword is about: types, an annotation, or the whole value. */
static const struct keyword {
    const char *name;
    unsigned about;
} keywords[] = {
    {"type", SHAPE},
    {"enum", SHAPE},
    {"const", SHAPE},
    {"anyOf", SHAPE},
    {"oneOf", SHAPE},
    {"allOf", SHAPE},
    {"$ref", SHAPE},
    {"properties", EB_TYPE_OBJECT},
    {"required", EB_TYPE_OBJECT},
    {"additionalProperties", EB_TYPE_OBJECT},
    {"items", EB_TYPE_ARRAY},
    {"prefixItems", EB_TYPE_ARRAY},
    {"minItems", EB_TYPE_ARRAY},
    {"maxItems", EB_TYPE_ARRAY},
    {"uniqueItems", EB_TYPE_ARRAY},
    {"minLength", EB_TYPE_STRING},
    {"maxLength", EB_TYPE_STRING},
    {"minimum", EB_TYPE_NUMBER},
    {"maximum", EB_TYPE_NUMBER},
    {"exclusiveMinimum", EB_TYPE_NUMBER},
    {"exclusiveMaximum", EB_TYPE_NUMBER},
    {"$defs", ANNOTATION},
    {"definitions", ANNOTATION},
    {"title", ANNOTATION},
    {"description", ANNOTATION},
    {"default", ANNOTATION},
    {"example", ANNOTATION},
    {"examples", ANNOTATION},
    {"format", ANNOTATION},
    {"$schema", ANNOTATION},
    {"$id", ANNOTATION},
    {"$comment", ANNOTATION},
    {"deprecated", ANNOTATION},
    {"readOnly", ANNOTATION},
    {"writeOnly", ANNOTATION},
    {"nullable", ANNOTATION},
    {"discriminator", ANNOTATION},
    {"contentEncoding", ANNOTATION},
    {"contentMediaType", ANNOTATION},
};

static unsigned about(const char *name) {
    for (size_t i = 0; i < sizeof keywords / sizeof *keywords; i++)
        if (strcmp(keywords[i].name, name) == 0) return keywords[i].about;
    return strncmp(name, "x-", 2) == 0 ? ANNOTATION : 0;
}

static void refuse_keyword(struct eb_schema *s, const char *name, const struct eb_where *where) {
    struct eb_where at = eb_where_below(where, name);
    eb_schema_refuse(s, EBRO_UNSUPPORTED, &at, "the keyword \"%.80s\" is not supported", name);
}

/* All that the schema says, but the form of it: what it is about. */
static unsigned read_keywords(struct eb_schema *s, const json_t *schema,
                              const struct eb_where *where) {
    unsigned all = 0;
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)schema, name, value) {
        unsigned one = about(name);
        if (one == 0 || (strcmp(name, "uniqueItems") == 0 && !json_is_false(value)))
            refuse_keyword(s, name, where);
        all |= one;
    }
    return all;
}

/* `keyword` decides alone: only "type" and annotations may stand beside it. */
static void refuse_beside(struct eb_schema *s, const json_t *schema, const char *keyword,
                          const struct eb_where *where) {
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)schema, name, value) {
        if (strcmp(name, keyword) == 0 || strcmp(name, "type") == 0 || about(name) == ANNOTATION)
            continue;
        struct eb_where at = eb_where_below(where, name);
        eb_schema_refuse(s, EBRO_UNSUPPORTED, &at,
                         "the keyword \"%s\" is not supported beside \"%s\"", name, keyword);
    }
}

/* ---- types -------------------------------------------------------------------------------- */

static unsigned type_named(const char *name) {
    static const struct {
        const char *name;
        unsigned type;
    } types[] = {{"null", EB_TYPE_NULL},       {"boolean", EB_TYPE_BOOLEAN},
                 {"integer", EB_TYPE_INTEGER}, {"number", EB_TYPE_NUMBER},
                 {"string", EB_TYPE_STRING},   {"array", EB_TYPE_ARRAY},
                 {"object", EB_TYPE_OBJECT}};
    for (size_t i = 0; name != NULL && i < sizeof types / sizeof *types; i++)
        if (strcmp(types[i].name, name) == 0) return types[i].type;
    return 0;
}

/* Bits of "type", a name or a list of them. Missing: 0. */
static unsigned read_type(struct eb_schema *s, const json_t *schema, const struct eb_where *where) {
    const json_t *type = json_object_get(schema, "type");
    struct eb_where at = eb_where_below(where, "type");
    if (type == NULL) return 0;
    unsigned all = json_is_array(type) ? 0 : type_named(json_string_value(type));
    bool good = json_is_array(type) ? json_array_size(type) > 0 : all != 0;
    for (size_t i = 0; json_is_array(type) && i < json_array_size(type); i++) {
        unsigned one = type_named(json_string_value(json_array_get(type, i)));
        good &= one != 0;
        all |= one;
    }
    if (!good)
        eb_schema_refuse(s, EBRO_INVALID, &at,
                         "\"type\" must be null, boolean, integer, number, string, array or "
                         "object, or a list of these");
    return all;
}

static unsigned type_of(const json_t *value) {
    switch (json_typeof(value)) {
        case JSON_NULL:
            return EB_TYPE_NULL;
        case JSON_TRUE:
        case JSON_FALSE:
            return EB_TYPE_BOOLEAN;
        case JSON_INTEGER:
            return EB_TYPE_INTEGER;
        case JSON_REAL:
            /* 1.0 is a whole number too. */
            return json_real_value(value) == floor(json_real_value(value)) ? EB_TYPE_INTEGER
                                                                           : EB_TYPE_FRACTION;
        case JSON_STRING:
            return EB_TYPE_STRING;
        case JSON_ARRAY:
            return EB_TYPE_ARRAY;
        case JSON_OBJECT:
            return EB_TYPE_OBJECT;
    }
    return 0;
}

/* ---- enum and const ----------------------------------------------------------------------- */

/* Numbers as short as they are the same again. */
static char *dump(const json_t *value) {
    static const size_t flags = JSON_ENCODE_ANY | JSON_COMPACT;
    bool holds_numbers = json_is_real(value) || json_is_array(value) || json_is_object(value);
    if (!holds_numbers) return json_dumps(value, flags);
    char *text = json_dumps(value, flags | JSON_REAL_PRECISION(15));
    json_t *again = text != NULL ? json_loads(text, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL) : NULL;
    bool same = again != NULL && json_equal(again, value);
    json_decref(again);
    if (same) return text;
    free(text);
    return json_dumps(value, flags);
}

/* Texts of values; those that are not the schema's own strings are in `owned`. */
struct texts {
    struct eb_literal *list;
    char **owned;
    size_t n;
};

static void free_texts(struct texts *t, size_t room) {
    for (size_t i = 0; t->owned != NULL && i < room; i++) free(t->owned[i]);
    free(t->owned);
    free(t->list);
}

static bool add_text(struct texts *t, const json_t *value, bool raw) {
    size_t i = t->n++;
    if (raw && json_is_string(value)) {
        t->list[i] = (struct eb_literal){json_string_value(value), json_string_length(value)};
        return true;
    }
    t->owned[i] = dump(value);
    if (t->owned[i] == NULL) return false;
    t->list[i] = (struct eb_literal){t->owned[i], strlen(t->owned[i])};
    return true;
}

/* One of the values in the array. */
static void build_values(struct eb_schema *s, const json_t *values, struct eb_form form) {
    size_t n = json_array_size(values);
    struct texts t = {.list = calloc(n, sizeof *t.list), .owned = calloc(n, sizeof *t.owned)};
    bool good = t.list != NULL && t.owned != NULL;
    for (size_t i = 0; i < n && good; i++) {
        const json_t *value = json_array_get(values, i);
        if ((type_of(value) & form.types) != 0) good = add_text(&t, value, form.raw);
    }
    if (good)
        eb_build_one_of(s->b, t.list, t.n);
    else
        eb_build_fail(s->b, EBRO_NOMEM_HOST, "no memory for the values of \"enum\"");
    free_texts(&t, n);
}

static void build_enum(struct eb_schema *s, const json_t *schema, struct eb_form form,
                       const struct eb_where *where) {
    const json_t *values = json_object_get(schema, "enum");
    struct eb_where at = eb_where_below(where, "enum");
    refuse_beside(s, schema, "enum", where);
    if (!json_is_array(values) || json_array_size(values) == 0)
        eb_schema_refuse(s, EBRO_INVALID, &at, "\"enum\" must be a list of at least one value");
    else if (json_array_size(values) > EB_MAX_VALUES)
        eb_schema_refuse(s, EBRO_INVALID, &at, "the schema is too large: more than %d values",
                         EB_MAX_VALUES);
    else
        build_values(s, values, form);
}

static void build_const(struct eb_schema *s, const json_t *schema, struct eb_form form,
                        const struct eb_where *where) {
    json_t *one = json_array();
    refuse_beside(s, schema, "const", where);
    if (one == NULL || json_array_append(one, json_object_get(schema, "const")) != 0)
        eb_build_fail(s->b, EBRO_NOMEM_HOST, "no memory for the value of \"const\"");
    else
        build_values(s, one, form);
    json_decref(one);
}

/* ---- $ref --------------------------------------------------------------------------------- */

/* One step of a JSON pointer (RFC 6901), unescaped; false: longer than names may be. */
static bool read_step(const char **p, char *out, size_t room) {
    size_t n = 0;
    const char *c = *p + 1;
    for (; *c != '\0' && *c != '/'; c++) {
        if (n + 1 >= room) return false;
        bool escape = *c == '~' && (c[1] == '0' || c[1] == '1');
        out[n++] = escape ? (c[1] == '0' ? '~' : '/') : *c;
        c += escape;
    }
    out[n] = '\0';
    *p = c;
    return true;
}

static const json_t *step_into(const json_t *from, const char *name) {
    char *end = NULL;
    if (json_is_object(from)) return json_object_get(from, name);
    if (!json_is_array(from) || name[0] < '0' || name[0] > '9') return NULL;
    unsigned long index = strtoul(name, &end, 10);
    return *end == '\0' ? json_array_get(from, index) : NULL;
}

const json_t *eb_schema_find(struct eb_schema *s, const json_t *ref, const struct eb_where *where) {
    struct eb_where at = eb_where_below(where, "$ref");
    const char *p = json_string_value(ref);
    const json_t *found = s->root;
    char name[512];
    if (p == NULL || p[0] != '#' || (p[1] != '\0' && p[1] != '/') || strchr(p, '%') != NULL) {
        eb_schema_refuse(s, p == NULL ? EBRO_INVALID : EBRO_UNSUPPORTED, &at,
                         "\"$ref\" must be a text like \"#/$defs/name\"");
        return NULL;
    }
    for (p++; *p == '/' && found != NULL;)
        found = read_step(&p, name, sizeof name) ? step_into(found, name) : NULL;
    if (found == NULL)
        eb_schema_refuse(s, EBRO_INVALID, &at, "\"%.80s\" leads nowhere", json_string_value(ref));
    return found;
}

static void keep_pending(struct eb_schema *s, struct eb_pending pending, const char *name) {
    if (s->b->st != EBRO_OK) return;
    size_t bytes = strlen(name) + 1;
    pending.name = malloc(bytes);
    if (pending.name == NULL ||
        !eb_grammar_grow(&s->pending, &s->pending_room, s->n_pending + 1, sizeof pending)) {
        free(pending.name);
        eb_build_fail(s->b, EBRO_NOMEM_HOST, "no memory for what a schema refers to");
        return;
    }
    memcpy(pending.name, name, bytes);
    s->pending[s->n_pending++] = pending;
}

/* The rule of a schema in a form: each is written once, however often it is referred to. */
static uint32_t find_rule(struct eb_schema *s, const json_t *schema, struct eb_form form,
                          const char *name) {
    char key[64];
    snprintf(key, sizeof key, "%p %x %d", (const void *)schema, form.types, form.raw);
    const json_t *known = json_object_get(s->known, key);
    if (known != NULL) return (uint32_t)json_integer_value(known);
    uint32_t rule = eb_rule_declare(s->b);
    if (json_object_set_new(s->known, key, json_integer(rule)) != 0)
        eb_build_fail(s->b, EBRO_NOMEM_HOST, "no memory for what a schema refers to");
    keep_pending(s, (struct eb_pending){.schema = schema, .form = form, .rule = rule}, name);
    return rule;
}

static void build_ref(struct eb_schema *s, const json_t *schema, struct eb_form form,
                      const struct eb_where *where) {
    const json_t *ref = json_object_get(schema, "$ref"), *found = eb_schema_find(s, ref, where);
    refuse_beside(s, schema, "$ref", where);
    if (found == NULL || s->b->st != EBRO_OK) return;
    eb_build_call(s->b, find_rule(s, found, form, json_string_value(ref)), EB_RECURSION_COST);
}

/* ---- anyOf, oneOf, allOf ------------------------------------------------------------------ */

static void build_any_of(struct eb_schema *s, const json_t *schema, const char *keyword,
                         struct eb_form form, const struct eb_where *where) {
    const json_t *list = json_object_get(schema, keyword);
    struct eb_where at = eb_where_below(where, keyword);
    struct eb_alt alt;
    refuse_beside(s, schema, keyword, where);
    if (!json_is_array(list) || json_array_size(list) == 0) {
        eb_schema_refuse(s, EBRO_INVALID, &at, "\"%s\" must be a list of at least one schema",
                         keyword);
        return;
    }
    eb_alt_begin(s->b, &alt);
    for (size_t i = 0; i < json_array_size(list) && s->b->st == EBRO_OK; i++) {
        struct eb_where item = eb_where_item(&at, i);
        eb_alt_option(s->b, &alt);
        eb_schema_value(s, json_array_get(list, i), form, &item);
    }
    eb_alt_end(s->b, &alt);
}

static void build_all_of(struct eb_schema *s, const json_t *schema, struct eb_form form,
                         const struct eb_where *where) {
    const json_t *list = json_object_get(schema, "allOf");
    struct eb_where at = eb_where_below(where, "allOf"), item = eb_where_item(&at, 0);
    refuse_beside(s, schema, "allOf", where);
    if (!json_is_array(list) || json_array_size(list) == 0)
        eb_schema_refuse(s, EBRO_INVALID, &at, "\"allOf\" must be a list of at least one schema");
    else if (json_array_size(list) > 1)
        eb_schema_refuse(s, EBRO_UNSUPPORTED, &at,
                         "\"allOf\" of more than one schema is not "
                         "supported");
    else
        eb_schema_value(s, json_array_get(list, 0), form, &item);
}

/* ---- strings and numbers ------------------------------------------------------------------ */

uint32_t eb_schema_count(struct eb_schema *s, const json_t *schema, const char *keyword,
                         uint32_t missing, uint32_t most, const struct eb_where *where) {
    const json_t *value = json_object_get(schema, keyword);
    struct eb_where at = eb_where_below(where, keyword);
    if (value == NULL) return missing;
    double n = json_number_value(value);
    if (!json_is_number(value) || n < 0 || n != floor(n))
        eb_schema_refuse(s, EBRO_INVALID, &at, "\"%s\" must be a whole number from 0", keyword);
    else if (n > most)
        eb_schema_refuse(s, EBRO_UNSUPPORTED, &at, "\"%s\" of more than %u is not supported",
                         keyword, most);
    return s->b->st == EBRO_OK ? (uint32_t)n : 0;
}

static void build_string(struct eb_schema *s, const json_t *schema, bool raw,
                         const struct eb_where *where) {
    uint32_t least = eb_schema_count(s, schema, "minLength", 0, EB_MAX_COUNT, where);
    uint32_t most = eb_schema_count(s, schema, "maxLength", EB_UNBOUNDED, EB_UNBOUNDED - 1, where);
    enum eb_rule_id character = raw ? EB_RULE_TEXT_CHARACTER : EB_RULE_CHARACTER;
    if (least > most)
        eb_build_fail_here(s->b);
    else if (least == 0 && most == EB_UNBOUNDED && raw)
        eb_build_any_text(s->b);
    else if (least == 0 && most == EB_UNBOUNDED)
        eb_rules_call(s->b, s->rules, EB_RULE_STRING);
    else {
        uint32_t rule = eb_rules_get(s->b, s->rules, character);
        if (!raw) eb_build_byte(s->b, '"');
        eb_build_repeat(s->b, rule, least, most);
        if (!raw) eb_build_byte(s->b, '"');
    }
}

/* One of the keywords that bound numbers. sign: 1 for lower ones, -1 for upper ones. Where whole
 * numbers alone are meant it is rounded to the next one that keeps it, else it must be whole. */
struct bound_keyword {
    const char *name;
    int sign;
    bool open;
};

static struct eb_bound round_bound(struct bound_keyword k, double real) {
    double toward = real * k.sign, most = (double)EB_MAX_INTEGER;
    if (toward <= -most) return (struct eb_bound){-k.sign * EB_MAX_INTEGER, false};
    if (toward >= most) return (struct eb_bound){k.sign * EB_MAX_INTEGER, true};
    double whole = k.sign > 0 ? ceil(real) : floor(real);
    return (struct eb_bound){(int64_t)whole, k.open && whole == real};
}

static struct eb_bound read_bound(struct eb_schema *s, const json_t *schema, struct bound_keyword k,
                                  bool integer, const struct eb_where *where) {
    const json_t *value = json_object_get(schema, k.name);
    struct eb_where at = eb_where_below(where, k.name);
    struct eb_bound none = {-k.sign * EB_MAX_INTEGER, false};
    if (value == NULL) return none;
    double real = json_number_value(value);
    if (!json_is_number(value))
        eb_schema_refuse(s, EBRO_INVALID, &at, "\"%s\" must be a number", k.name);
    else if (!integer && (real != floor(real) || fabs(real) > (double)EB_MAX_INTEGER))
        eb_schema_refuse(s, EBRO_UNSUPPORTED, &at,
                         "\"%s\" that is no whole number of at most %d digits is supported for "
                         "\"type\": \"integer\" only",
                         k.name, EB_INTEGER_DIGITS);
    if (s->b->st != EBRO_OK) return none;
    if (json_is_integer(value) && fabs(real) < (double)EB_MAX_INTEGER)
        return (struct eb_bound){json_integer_value(value), k.open};
    return round_bound(k, real);
}

/* The narrower of a bound and its exclusive form. */
static struct eb_bound read_side(struct eb_schema *s, const json_t *schema, int sign, bool integer,
                                 const struct eb_where *where) {
    struct bound_keyword closed = {sign > 0 ? "minimum" : "maximum", sign, false};
    struct bound_keyword open = {sign > 0 ? "exclusiveMinimum" : "exclusiveMaximum", sign, true};
    struct eb_bound a = read_bound(s, schema, closed, integer, where);
    struct eb_bound b = read_bound(s, schema, open, integer, where);
    if (a.value == b.value) return (struct eb_bound){a.value, a.open || b.open};
    return (a.value > b.value) == (sign > 0) ? a : b;
}

static void build_number(struct eb_schema *s, const json_t *schema, unsigned types,
                         const struct eb_where *where) {
    bool integer = (types & EB_TYPE_FRACTION) == 0;
    struct eb_bound low = read_side(s, schema, 1, integer, where);
    struct eb_bound high = read_side(s, schema, -1, integer, where);
    if (low.value == -EB_MAX_INTEGER && high.value == EB_MAX_INTEGER && !low.open && !high.open)
        eb_rules_call(s->b, s->rules, integer ? EB_RULE_INTEGER : EB_RULE_NUMBER);
    else if (integer)
        eb_build_integer_range(s->b, s->rules, low.value + low.open, high.value - high.open);
    else
        eb_build_number_range(s->b, s->rules, low, high);
}

/* ---- values ------------------------------------------------------------------------------- */

static void build_words(struct eb_schema *s, struct eb_alt *alt, unsigned types) {
    static const struct {
        const char *text;
        unsigned type;
    } words[] = {{"null", EB_TYPE_NULL}, {"true", EB_TYPE_BOOLEAN}, {"false", EB_TYPE_BOOLEAN}};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if ((types & words[i].type) == 0) continue;
        eb_alt_option(s->b, alt);
        eb_build_text(s->b, words[i].text);
    }
}

static void build_types(struct eb_schema *s, const json_t *schema, struct eb_form form,
                        const struct eb_where *where) {
    struct eb_alt alt;
    eb_alt_begin(s->b, &alt);
    build_words(s, &alt, form.types);
    if ((form.types & EB_TYPE_NUMBER) != 0) {
        eb_alt_option(s->b, &alt);
        build_number(s, schema, form.types, where);
    }
    if ((form.types & EB_TYPE_STRING) != 0) {
        eb_alt_option(s->b, &alt);
        build_string(s, schema, form.raw, where);
    }
    if ((form.types & EB_TYPE_ARRAY) != 0) {
        eb_alt_option(s->b, &alt);
        eb_schema_array(s, schema, where);
    }
    if ((form.types & EB_TYPE_OBJECT) != 0) {
        eb_alt_option(s->b, &alt);
        eb_schema_object(s, schema, where);
    }
    eb_alt_end(s->b, &alt);
}

/* An object that is a schema. */
static void build_schema(struct eb_schema *s, const json_t *schema, struct eb_form form,
                         const struct eb_where *where) {
    unsigned all = read_keywords(s, schema, where), stated = read_type(s, schema, where);
    unsigned meant = all & EB_TYPE_ANY;
    if (stated != 0) form.types &= stated;
    if (s->b->st != EBRO_OK) return;
    if (json_object_get(schema, "$ref") != NULL)
        build_ref(s, schema, form, where);
    else if (json_object_get(schema, "allOf") != NULL)
        build_all_of(s, schema, form, where);
    else if (json_object_get(schema, "anyOf") != NULL)
        build_any_of(s, schema, "anyOf", form, where);
    else if (json_object_get(schema, "oneOf") != NULL)
        build_any_of(s, schema, "oneOf", form, where);
    else if (json_object_get(schema, "const") != NULL)
        build_const(s, schema, form, where);
    else if (json_object_get(schema, "enum") != NULL)
        build_enum(s, schema, form, where);
    else {
        if (stated == 0 && meant != 0) form.types &= meant;
        build_types(s, schema, form, where);
    }
}

const json_t *eb_schema_arguments(struct eb_schema *s, const json_t *schema,
                                  const struct eb_where *where) {
    static const char *const shapes[] = {"allOf", "anyOf", "oneOf", "const", "enum"};
    for (int hops = 0; hops < EB_MAX_NESTING && s->b->st == EBRO_OK; hops++) {
        unsigned type = 0;
        if (json_is_object(schema)) {
            read_keywords(s, schema, where);
            type = read_type(s, schema, where);
        }
        if (!json_is_object(schema) || (type != 0 && (type & EB_TYPE_OBJECT) == 0))
            eb_schema_refuse(s, EBRO_INVALID, where, "a tool's parameters must be an object");
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
            if (json_object_get(schema, shapes[i]) != NULL)
                eb_schema_refuse(s, EBRO_UNSUPPORTED, where,
                                 "\"%s\" is not supported for all of a tool's parameters",
                                 shapes[i]);
        const json_t *ref = json_object_get(schema, "$ref");
        if (ref == NULL) return s->b->st == EBRO_OK ? schema : NULL;
        refuse_beside(s, schema, "$ref", where);
        schema = eb_schema_find(s, ref, where);
    }
    eb_schema_refuse(s, EBRO_INVALID, where, "\"$ref\" of a tool's parameters leads on and on");
    return NULL;
}

/* Any value, in the form. */
static void build_anything(struct eb_schema *s, struct eb_form form, const struct eb_where *where) {
    json_t *empty = NULL;
    if (form.types == EB_TYPE_ANY && !form.raw) {
        eb_build_call(s->b, eb_rules_get(s->b, s->rules, EB_RULE_VALUE), EB_RECURSION_COST);
        return;
    }
    empty = json_object();
    if (empty == NULL)
        eb_build_fail(s->b, EBRO_NOMEM_HOST, "no memory for a schema");
    else
        build_types(s, empty, form, where);
    json_decref(empty);
}

void eb_schema_value(struct eb_schema *s, const json_t *schema, struct eb_form form,
                     const struct eb_where *where) {
    struct eb_where here = *where;
    if (s->b->st != EBRO_OK) return;
    here.depth++;
    if (here.depth > EB_MAX_NESTING)
        eb_schema_refuse(s, EBRO_INVALID, where, "the schema is nested more than %d deep",
                         EB_MAX_NESTING);
    else if (json_is_false(schema))
        eb_build_fail_here(s->b);
    else if (json_is_true(schema) || (json_is_object(schema) && json_object_size(schema) == 0))
        build_anything(s, form, &here);
    else if (json_is_object(schema))
        build_schema(s, schema, form, &here);
    else
        eb_schema_refuse(s, EBRO_INVALID, where, "a schema must be an object, true or false");
}

void eb_schema_begin(struct eb_schema *s, struct eb_builder *b, struct eb_rules *rules,
                     const json_t *root) {
    *s = (struct eb_schema){.b = b, .rules = rules, .root = root, .known = json_object()};
    if (s->known == NULL) eb_build_fail(b, EBRO_NOMEM_HOST, "no memory for a schema");
}

void eb_schema_end(struct eb_schema *s) {
    /* Writing one may put others behind it. */
    for (size_t i = 0; i < s->n_pending; i++) {
        struct eb_pending p = s->pending[i];
        struct eb_where where = {.name = p.name};
        uint32_t begun = eb_rule_begin(s->b, p.rule);
        eb_schema_value(s, p.schema, p.form, &where);
        eb_rule_end(s->b, begun);
        free(p.name);
    }
    free(s->pending);
    json_decref(s->known);
    *s = (struct eb_schema){0};
}
