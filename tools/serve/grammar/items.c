/* items.c: arrays of a schema. */
#include "schema.h"

struct items {
    const json_t *prefix; /* NULL: none */
    size_t n_prefix;
    const json_t *rest; /* of items behind those; NULL: anything */
    uint32_t least, most;
};

static struct items read_items(struct eb_schema *s, const json_t *schema,
                               const struct eb_where *where) {
    struct items it = {.prefix = json_object_get(schema, "prefixItems"),
                       .rest = json_object_get(schema, "items")};
    struct eb_where at = eb_where_below(where, "prefixItems");
    if (it.prefix != NULL && !json_is_array(it.prefix))
        eb_schema_refuse(s, EBRO_INVALID, &at, "\"prefixItems\" must be a list of schemas");
    it.n_prefix = json_array_size(it.prefix);
    it.least = eb_schema_count(s, schema, "minItems", 0, EB_MAX_COUNT, where);
    it.most = eb_schema_count(s, schema, "maxItems", EB_UNBOUNDED, EB_UNBOUNDED - 1, where);
    if (json_is_false(it.rest) && it.most > it.n_prefix) it.most = (uint32_t)it.n_prefix;
    return it;
}

static void build_item(struct eb_schema *s, const struct items *it, size_t i,
                       const struct eb_where *where) {
    struct eb_form any = {.types = EB_TYPE_ANY};
    struct eb_where list = eb_where_below(where, i < it->n_prefix ? "prefixItems" : "items");
    struct eb_where at = eb_where_item(&list, i);
    json_t *anything = json_true(); /* not counted */
    if (i < it->n_prefix)
        eb_schema_value(s, json_array_get(it->prefix, i), any, &at);
    else
        eb_schema_value(s, it->rest != NULL ? it->rest : anything, any, &list);
}

static void build_comma(struct eb_schema *s) {
    eb_build_byte(s->b, ',');
    eb_build_blank(s->b);
}

/* Items behind the first `n`, which are written already. */
static void build_more(struct eb_schema *s, const struct items *it, uint32_t n,
                       const struct eb_where *where) {
    uint32_t item = eb_rule_declare(s->b), more = eb_rule_declare(s->b);
    uint32_t most = it->most == EB_UNBOUNDED ? EB_UNBOUNDED : it->most - n;
    uint32_t least = it->least > n ? it->least - n : 0;
    if (most == 0) return;
    uint32_t begun = eb_rule_begin(s->b, item);
    build_item(s, it, n, where);
    eb_rule_end(s->b, begun);
    begun = eb_rule_begin(s->b, more);
    build_comma(s);
    eb_build_call(s->b, item, EB_CALL_COST);
    eb_rule_end(s->b, begun);
    if (n > 0) {
        eb_build_repeat(s->b, more, least, most);
        return;
    }
    eb_build_call(s->b, item, EB_CALL_COST);
    eb_build_repeat(s->b, more, least > 0 ? least - 1 : 0,
                    most == EB_UNBOUNDED ? EB_UNBOUNDED : most - 1);
}

static void build_items(struct eb_schema *s, const struct items *it, uint32_t exit,
                        const struct eb_where *where) {
    uint32_t n = 0;
    for (; n < it->n_prefix && n < it->most && s->b->st == EBRO_OK; n++) {
        if (n >= it->least) eb_fork_to(s->b, eb_build_fork(s->b), exit);
        if (n > 0) build_comma(s);
        build_item(s, it, n, where);
    }
    if (n == 0 && it->least == 0) eb_fork_to(s->b, eb_build_fork(s->b), exit);
    if (n == it->n_prefix) build_more(s, it, n, where);
}

void eb_schema_array(struct eb_schema *s, const json_t *schema, const struct eb_where *where) {
    struct items it = read_items(s, schema, where);
    struct eb_alt alt;
    if (it.least > it.most) {
        eb_build_fail_here(s->b);
        return;
    }
    eb_build_byte(s->b, '[');
    eb_alt_begin(s->b, &alt);
    eb_alt_option(s->b, &alt);
    build_items(s, &it, alt.exit, where);
    eb_alt_end(s->b, &alt);
    eb_build_byte(s->b, ']');
}
