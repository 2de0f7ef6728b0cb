/* schema.h: JSON Schema (2020-12, what structured outputs use of it) as grammar. What it cannot
 * keep it refuses; what it lets pass is always valid, though it may leave out ways to write a value
 * that would be valid too: members stand in the order of "properties", texts of "enum" and "const"
 * are written in one way, numbers have the limits of rules.h.
 *
 * Known: type, enum, const, properties, required, additionalProperties, items, prefixItems,
 * minItems, maxItems, minLength, maxLength (in characters), minimum, maximum and their exclusive
 * forms (for numbers that may have fractions: whole ones), anyOf, oneOf (read as anyOf: of what it
 * lets pass more than one may hold), allOf of one, $ref within the document, schemas that are true
 * or false; uniqueItems that is false. Annotations, "format" among them, say nothing about what may
 * pass. Where "type" is missing, the types that other keywords are about are meant. */
#ifndef EB_SCHEMA_H
#define EB_SCHEMA_H

#include <jansson.h>

#include "rules.h"

enum { EB_MAX_NESTING = 64, EB_MAX_COUNT = 10000, EB_MAX_VALUES = 1 << 15 };

enum eb_type {
    EB_TYPE_NULL = 1 << 0,
    EB_TYPE_BOOLEAN = 1 << 1,
    EB_TYPE_INTEGER = 1 << 2,
    EB_TYPE_FRACTION = 1 << 3, /* numbers that are not whole */
    EB_TYPE_STRING = 1 << 4,
    EB_TYPE_ARRAY = 1 << 5,
    EB_TYPE_OBJECT = 1 << 6,
    EB_TYPE_NUMBER = EB_TYPE_INTEGER | EB_TYPE_FRACTION,
    EB_TYPE_ANY = (1 << 7) - 1
};

/* Place in a schema, for errors: a chain on the stack. name NULL: the index counts. */
struct eb_where {
    const struct eb_where *up; /* NULL: name is where all begins */
    const char *name;
    size_t index;
    int depth; /* schemas that it is in, since the last reference */
};

/* How a value is written. */
struct eb_form {
    unsigned types; /* only values of these may pass */
    bool raw;       /* strings without quotes and escapes, as text */
};

struct eb_pending {
    const json_t *schema;
    char *name; /* owned */
    struct eb_form form;
    uint32_t rule;
};

struct eb_schema {
    struct eb_builder *b;
    struct eb_rules *rules;
    const json_t *root; /* what "#" is */
    json_t *known;      /* rules of referred schemas, by address and form */
    struct eb_pending *pending;
    size_t n_pending, pending_room;
};

/* Between these, any number of values of root and of its parts. */
void eb_schema_begin(struct eb_schema *s, struct eb_builder *b, struct eb_rules *rules,
                     const json_t *root);
void eb_schema_value(struct eb_schema *s, const json_t *schema, struct eb_form form,
                     const struct eb_where *where);
/* Writes the rules that values refer to, and frees what s holds, after failures too. */
void eb_schema_end(struct eb_schema *s);

/* ---- between schema.c, members.c and items.c ---------------------------------------------- */

void eb_schema_object(struct eb_schema *s, const json_t *schema, const struct eb_where *where);
void eb_schema_array(struct eb_schema *s, const json_t *schema, const struct eb_where *where);

struct eb_where eb_where_below(const struct eb_where *up, const char *name);
struct eb_where eb_where_item(const struct eb_where *up, size_t index);
/* Fails and names the place. fmt is followed by "(at #/...)". */
void eb_schema_refuse(struct eb_schema *s, int32_t status, const struct eb_where *where,
                      const char *fmt, ...);
/* A count from 0 up to `most`; what is larger is refused. Missing: `missing`. */
uint32_t eb_schema_count(struct eb_schema *s, const json_t *schema, const char *keyword,
                         uint32_t missing, uint32_t most, const struct eb_where *where);
/* The schema that "$ref" names; NULL after failing. */
const json_t *eb_schema_find(struct eb_schema *s, const json_t *ref, const struct eb_where *where);

/* An object's members, in the order that they are written in. */
struct eb_member {
    const char *name;
    size_t n;
    const json_t *schema; /* never NULL */
    bool required;
};
struct eb_members {
    struct eb_member *list; /* free() it */
    size_t n;
    const json_t *others; /* what other members must be; NULL: there are none */
};
/* What a tool's parameters are where each argument is written by itself: the schema of an object,
 * behind references. NULL after failing. */
const json_t *eb_schema_arguments(struct eb_schema *s, const json_t *schema,
                                  const struct eb_where *where);
/* False after failing. */
bool eb_schema_members(struct eb_schema *s, const json_t *schema, struct eb_members *out,
                       const struct eb_where *where);

#endif
