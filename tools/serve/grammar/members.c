/* members.c: objects of a schema. Members stand in the order of "properties", then those that are
 * required but not listed there, then any others that may be: their names have no escapes and are
 * none of the listed ones. That two of the others have the same name is not seen. */
#include <stdlib.h>
#include <string.h>

#include "literals.h"
#include "schema.h"

/* ---- reading ------------------------------------------------------------------------------ */

/* Names that are required, each once, to be looked up in; the strings are the schema's own. NULL
 * after failing. */
static json_t *required_names(struct eb_schema *s, const json_t *required,
                              const struct eb_where *where) {
    struct eb_where at = eb_where_below(where, "required");
    json_t *names = json_object();
    for (size_t i = 0; names != NULL && i < json_array_size(required); i++) {
        json_t *item = json_array_get(required, i);
        if (!json_is_string(item))
            eb_schema_refuse(s, EBRO_INVALID, &at, "\"required\" must be a list of names");
        else if (json_object_set(names, json_string_value(item), item) != 0)
            eb_build_fail(s->b, EBRO_NOMEM_HOST, "no memory for the properties of a schema");
    }
    if (names != NULL && s->b->st == EBRO_OK) return names;
    eb_build_fail(s->b, EBRO_NOMEM_HOST, "no memory for the properties of a schema");
    json_decref(names);
    return NULL;
}

static void read_unlisted(const json_t *properties, json_t *names, struct eb_members *m) {
    const char *key;
    json_t *name;
    json_object_foreach(names, key, name) {
        if (json_object_get(properties, key) != NULL) continue;
        m->list[m->n++] = (struct eb_member){json_string_value(name), json_string_length(name),
                                             m->others != NULL ? m->others : json_false(), true};
    }
}

static void read_properties(const json_t *properties, const json_t *names, struct eb_members *m) {
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)properties, name, value) {
        bool required = json_object_get(names, name) != NULL;
        m->list[m->n++] = (struct eb_member){name, strlen(name), value, required};
    }
}

bool eb_schema_members(struct eb_schema *s, const json_t *schema, struct eb_members *out,
                       const struct eb_where *where) {
    const json_t *properties = json_object_get(schema, "properties");
    const json_t *required = json_object_get(schema, "required");
    const json_t *others = json_object_get(schema, "additionalProperties");
    *out = (struct eb_members){.others = json_is_false(others) ? NULL
                                         : others != NULL      ? others
                                                               : json_true()};
    struct eb_where at = eb_where_below(where, "properties");
    if (properties != NULL && !json_is_object(properties))
        eb_schema_refuse(s, EBRO_INVALID, &at, "\"properties\" must be an object of schemas");
    at = eb_where_below(where, "required");
    if (required != NULL && !json_is_array(required))
        eb_schema_refuse(s, EBRO_INVALID, &at, "\"required\" must be a list of names");
    json_t *names = s->b->st == EBRO_OK ? required_names(s, required, where) : NULL;
    if (names == NULL) return false;
    out->list =
        calloc(json_object_size(properties) + json_object_size(names) + 1, sizeof *out->list);
    if (out->list == NULL) {
        eb_build_fail(s->b, EBRO_NOMEM_HOST, "no memory for the properties of a schema");
    } else {
        read_properties(properties, names, out);
        read_unlisted(properties, names, out);
    }
    json_decref(names);
    return s->b->st == EBRO_OK;
}

/* ---- writing ------------------------------------------------------------------------------ */

static void build_name(struct eb_schema *s, const struct eb_member *m) {
    json_t *name = json_stringn(m->name, m->n);
    char *text = name != NULL ? json_dumps(name, JSON_ENCODE_ANY) : NULL;
    if (text != NULL)
        eb_build_text(s->b, text);
    else
        eb_build_fail(s->b, EBRO_NOMEM_HOST, "no memory for the properties of a schema");
    free(text);
    json_decref(name);
}

static void build_member(struct eb_schema *s, const struct eb_member *m,
                         const struct eb_where *where) {
    struct eb_where list = eb_where_below(where, "properties"), at = eb_where_below(&list, m->name);
    build_name(s, m);
    eb_build_byte(s->b, ':');
    eb_build_blank(s->b);
    eb_schema_value(s, m->schema, (struct eb_form){.types = EB_TYPE_ANY}, &at);
}

static void build_other_name(struct eb_schema *s, const struct eb_members *m) {
    struct eb_literal *names = calloc(m->n + 1, sizeof *names);
    if (m->n == 0) {
        eb_rules_call(s->b, s->rules, EB_RULE_STRING);
    } else if (names != NULL) {
        for (size_t i = 0; i < m->n; i++)
            names[i] = (struct eb_literal){m->list[i].name, m->list[i].n};
        eb_build_byte(s->b, '"');
        eb_build_none_of(s->b, names, m->n);
        eb_build_byte(s->b, '"');
    } else {
        eb_build_fail(s->b, EBRO_NOMEM_HOST, "no memory for the properties of a schema");
    }
    free(names);
}

static void build_comma(struct eb_schema *s) {
    eb_build_byte(s->b, ',');
    eb_build_blank(s->b);
}

/* Members that are not listed, one or more; a comma, if any, stands before them already. */
static void build_others(struct eb_schema *s, const struct eb_members *m, uint32_t exit,
                         const struct eb_where *where) {
    struct eb_where at = eb_where_below(where, "additionalProperties");
    if (m->others == NULL) {
        eb_build_fail_here(s->b);
        return;
    }
    uint32_t again = eb_build_here(s->b);
    build_other_name(s, m);
    eb_build_byte(s->b, ':');
    eb_build_blank(s->b);
    eb_schema_value(s, m->others, (struct eb_form){.types = EB_TYPE_ANY}, &at);
    eb_fork_to(s->b, eb_build_fork(s->b), exit);
    build_comma(s);
    eb_build_jump(s->b, again);
}

/* Before each member the object may end where none that is left is required; one that is not
 * required may be left out. What begins with a comma and finds nothing to go on with is never
 * begun, for no walk from there ends. */
static void build_members(struct eb_schema *s, const struct eb_members *m, uint32_t exit,
                          const struct eb_where *where) {
    size_t n_required = 0;
    uint32_t skip = 0;
    for (size_t i = 0; i < m->n; i++) n_required += m->list[i].required;
    for (size_t i = 0; i <= m->n && s->b->st == EBRO_OK; i++) {
        if (n_required == 0) eb_fork_to(s->b, eb_build_fork(s->b), exit);
        if (i > 0) build_comma(s);
        if (skip != 0) eb_fork_here(s->b, skip);
        if (i == m->n) break;
        skip = m->list[i].required ? 0 : eb_build_fork(s->b);
        n_required -= m->list[i].required;
        build_member(s, &m->list[i], where);
    }
    build_others(s, m, exit, where);
}

void eb_schema_object(struct eb_schema *s, const json_t *schema, const struct eb_where *where) {
    struct eb_members m;
    struct eb_alt alt;
    if (eb_schema_members(s, schema, &m, where)) {
        eb_build_byte(s->b, '{');
        eb_alt_begin(s->b, &alt);
        eb_alt_option(s->b, &alt);
        build_members(s, &m, alt.exit, where);
        eb_alt_end(s->b, &alt);
        eb_build_byte(s->b, '}');
    }
    free(m.list);
}
