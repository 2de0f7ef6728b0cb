/* schema.c: what grammars of JSON schemas let pass: written out by hand, and at random against a
 * validator that shares nothing with them; what they refuse to keep; and hostile schemas. */
#include <math.h>

#include "tests/server/walker.h"

static struct eb_grammar *of_schema(const struct world *w, const json_t *schema) {
    const struct eb_grammar_spec spec = {
        .model = w->model, .content = EB_CONTENT_JSON_SCHEMA, .schema = schema};
    return make_grammar(&spec);
}

/* ---- by hand ------------------------------------------------------------------------------ */

static const struct by_hand {
    const char *schema;
    const char *good[12], *bad[16];
} by_hand[] = {
    {"{\"type\":\"boolean\"}", {"true", "false"}, {"", "null", "tru", "truee", "True", " true"}},
    {"{\"type\":\"null\"}", {"null"}, {"true", "nul", "0"}},
    {"{\"type\":\"integer\"}",
     {"0", "-1", "7", "123456789012345678", "-900"},
     {"", "-", "-0", "01", "1.0", "1e3", "+1", "1234567890123456789", "0x1", "1 "}},
    {"{\"type\":\"number\"}",
     {"0", "-0", "1.5", "-0.001", "1e3", "1E-07", "12.5e+10"},
     {"", ".5", "1.", "01", "1e", "1e400", "--1", "NaN", "Infinity", "\"1\""}},
    {"{\"type\":\"string\"}",
     {"\"\"", "\"a\"", "\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"", "\"\\u00e9\\uD83D\\uDE00\\ud7ff\\ue000\"",
      "\"\xc3\xa9\xe4\xb8\xad\xf0\x9f\x98\x80 x\"", "\"\xed\x9f\xbf\xee\x80\x80\xf4\x8f\xbf\xbf\"",
      "\"<|close|\"", "\"\x7f\""},
     {"\"", "\"a", "a\"", "\"\n\"", "\"\x01\"", "\"\\x\"", "\"\\u12g4\"", "\"\\u0000\"",
      "\"\\ud800\"", "\"\\udc00x\"", "\"\\ud800\\u0041\"", "\"\xc0\x80\"", "\"\xed\xa0\x80\"",
      "\"\xf4\x90\x80\x80\"", "\"\xe4\xb8\"", "\"\\u123\""}},
    {"{\"type\":\"string\",\"minLength\":2,\"maxLength\":3}",
     {"\"ab\"", "\"abc\"", "\"\xc3\xa9\xc3\xa9\xc3\xa9\"", "\"\\n\\n\"", "\"\\uD83D\\uDE00a\""},
     {"\"\"", "\"a\"", "\"abcd\"", "\"\xc3\xa9\"", "\"\\n\"", "\"\\uD83D\\uDE00\""}},
    {"{\"type\":\"integer\",\"minimum\":-3,\"maximum\":120}",
     {"-3", "-1", "0", "5", "10", "99", "100", "119", "120"},
     {"-4", "-10", "-0", "121", "130", "200", "1000", "00", "05"}},
    {"{\"type\":\"integer\",\"exclusiveMinimum\":8,\"exclusiveMaximum\":11}",
     {"9", "10"},
     {"8", "11", "1", "90", "-9"}},
    {"{\"type\":\"integer\",\"minimum\":0.5}", {"1", "2", "1000"}, {"0", "-1", "0.5"}},
    {"{\"type\":\"integer\",\"maximum\":-10}", {"-10", "-11", "-99", "-100"}, {"-9", "0", "10"}},
    {"{\"type\":\"number\",\"minimum\":0,\"maximum\":1}",
     {"0", "1", "0.5", "0.000", "0.999"},
     {"-0", "-0.1", "1.5", "1e0", "2", "10", "0.", "00", ".5"}},
    {"{\"type\":\"number\",\"exclusiveMinimum\":0,\"exclusiveMaximum\":12}",
     {"0.5", "0.001", "1", "1.0", "9", "10", "11.99", "0.0090"},
     {"0", "0.0", "0.000", "12", "12.0", "12.5", "20", "-1"}},
    {"{\"type\":\"number\",\"exclusiveMinimum\":-12,\"exclusiveMaximum\":-2}",
     {"-11.5", "-2.5", "-3", "-10", "-2.01"},
     {"-12", "-12.0", "-2", "-2.0", "-1", "0", "3", "-12.5", "2.5"}},
    {"{\"type\":\"number\",\"minimum\":-1}",
     {"-1", "-0.5", "-0.01", "0", "5", "123456.75", "0.0"},
     {"-1.5", "-2", "-0", "-0.0", "-10", "-1.01"}},
    {"{\"type\":\"number\",\"maximum\":3,\"exclusiveMaximum\":3}",
     {"2.5", "-7", "-7.5", "-0.5", "0"},
     {"3", "3.0", "3.1", "4", "30"}},
    {"{\"type\":\"number\",\"minimum\":7,\"maximum\":7}", {"7"}, {"7.1", "6.9", "70"}},
    {"{\"enum\":[\"a\",\"ab\",\"abc\",\"b\\n\",1,12,null,{\"k\":[1,2.5]}]}",
     {"\"a\"", "\"ab\"", "\"abc\"", "\"b\\n\"", "1", "12", "null", "{\"k\":[1,2.5]}"},
     {"\"\"", "\"abcd\"", "\"b\"", "2", "123", "nul", "{\"k\": [1,2.5]}", "a"}},
    {"{\"type\":\"integer\",\"enum\":[1,\"x\",2.5,7]}", {"1", "7"}, {"\"x\"", "2.5", "17"}},
    {"{\"const\":\"only\"}", {"\"only\""}, {"\"onl\"", "\"\"", "only"}},
    {"{\"const\":0.1}", {"0.1"}, {"0", "0.10"}},
    {"{\"type\":[\"string\",\"null\"]}", {"null", "\"\""}, {"1", "true"}},
    {"{\"anyOf\":[{\"type\":\"integer\"},{\"type\":\"string\",\"maxLength\":1}]}",
     {"1", "\"x\"", "\"\""},
     {"\"xy\"", "1.5", "null"}},
    {"{\"oneOf\":[{\"type\":\"integer\"},{\"type\":\"boolean\"}],\"type\":\"integer\"}",
     {"1"},
     {"true"}},
    {"{\"allOf\":[{\"type\":\"integer\"}],\"description\":\"d\"}", {"4"}, {"true"}},
    {"{\"type\":\"array\",\"items\":{\"type\":\"integer\"}}",
     {"[]", "[1]", "[1,2]", "[1, 2, 3]"},
     {"[1 ,2]", "[1,]", "[,1]", "[1,  2]", "[ 1]", "[1 ]", "[", "1", "[\"\"]", "[1,\n2]"}},
    {"{\"type\":\"array\",\"items\":{\"type\":\"integer\"},\"minItems\":2,\"maxItems\":4}",
     {"[1,2]", "[1,2,3]", "[1,2,3,4]"},
     {"[]", "[1]", "[1,2,3,4,5]"}},
    {"{\"type\":\"array\",\"prefixItems\":[{\"type\":\"integer\"},{\"type\":\"null\"}]}",
     {"[]", "[1]", "[1,null]", "[1,null,true,{}]"},
     {"[null]", "[1,1]"}},
    {"{\"type\":\"array\",\"prefixItems\":[{\"type\":\"integer\"},{\"type\":\"null\"}],"
     "\"items\":false,\"minItems\":1}",
     {"[1]", "[1,null]"},
     {"[]", "[1,null,1]"}},
    {"{\"type\":\"array\",\"maxItems\":0}", {"[]"}, {"[1]"}},
    {"{\"type\":\"array\",\"prefixItems\":[{\"const\":1}],\"items\":{\"const\":2},\"minItems\":3,"
     "\"maxItems\":4}",
     {"[1,2,2]", "[1,2,2,2]"},
     {"[1,2]", "[1,2,2,2,2]", "[2,2,2]"}},
    {"{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"},\"b\":{\"type\":\"null\"},"
     "\"c\":true},\"required\":[\"b\"],\"additionalProperties\":false}",
     {"{\"b\":null}", "{\"a\":1,\"b\":null}", "{\"a\": 1, \"b\": null, \"c\": [1]}",
      "{\"b\":null,\"c\":\"x\"}"},
     {"{}", "{\"a\":1}", "{\"b\":null,\"a\":1}", "{\"b\":null,\"d\":1}", "{\"b\":null,}",
      "{\"b\":1}", "{,\"b\":null}", "{\"b\":null\"c\":1}", "{\"b\" :null}", "{\"b\":null ,\"c\":1}",
      "{ }"}},
    {"{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"}},"
     "\"additionalProperties\":{\"type\":\"boolean\"}}",
     {"{}", "{\"a\":1}", "{\"a\":1,\"b\":true}", "{\"b\":true}", "{\"\":true,\"aa\":false}",
      "{\"\xc3\xa9\":true}", "{\"b\":true, \"c\":true}"},
     {"{\"a\":true}", "{\"b\":1}", "{\"b\":true,\"a\":1}", "{\"a\":1,\"a\":true}",
      "{\"\\u0061\":true}", "{\"b\":true,}", "{\"\xc3\":true}"}},
    {"{\"type\":\"object\",\"properties\":{\"\xc3\xa9\":{\"const\":1},\"\xc3\xaa\xc3\xa9\":"
     "{\"const\":2},\"q\\\"\":{\"const\":3}}}",
     {"{\"\xc3\xa9\":1}", "{\"\xc3\xaa\":0}", "{\"\xc3\xab\":0}", "{\"\xc3\xa9\xc3\xa9\":0}",
      "{\"q\\\"\":3}", "{\"\xe4\xb8\xad\":0}"},
     {"{\"\xc3\xa9\":2}", "{\"\xc3\":2}", "{\"\xc3\xaa\xc3\xa9\":1}", "{\"q\\\"\":4}"}},
    {"{\"type\":\"object\",\"required\":[\"x\"],\"additionalProperties\":{\"type\":\"integer\"}}",
     {"{\"x\":1}", "{\"x\":1,\"y\":2}"},
     {"{}", "{\"y\":2}"}},
    {"{\"type\":\"object\"}",
     {"{}", "{\"a\":{\"b\":[{},[],\"\",0,null]}}", "{\"\\n\":1}"},
     {"[]", "{\"a\"}", "{\"a\":}", "{1:1}"}},
    {"{\"properties\":{\"a\":{\"type\":\"null\"}},\"required\":[\"a\"]}",
     {"{\"a\":null}"},
     {"{}", "1"}},
    {"true", {"1", "{}", "[[[]]]", "\"x\"", "null", "-1.5e3"}, {"", "x", "[", "{\"a\":1"}},
    {"{}", {"1", "[{\"a\":[]}]"}, {"x"}},
    {"{\"$ref\":\"#/$defs/node\",\"$defs\":{\"node\":{\"type\":\"object\",\"properties\":{\"v\":"
     "{\"type\":\"integer\"},\"next\":{\"anyOf\":[{\"$ref\":\"#/$defs/node\"},{\"type\":\"null\"}]"
     "}},\"required\":[\"v\",\"next\"],\"additionalProperties\":false}}}",
     {"{\"v\":1,\"next\":null}", "{\"v\":1,\"next\":{\"v\":2,\"next\":{\"v\":3,\"next\":null}}}"},
     {"{\"v\":1}", "{\"v\":1,\"next\":{\"v\":2}}", "{\"v\":1,\"next\":1}"}},
    {"{\"type\":\"array\",\"items\":{\"$ref\":\"#\"}}", {"[]", "[[],[[]]]"}, {"[1]", "{}"}},
    {"{\"definitions\":{\"a/b~\":{\"const\":1}},\"$ref\":\"#/definitions/a~1b~0\"}", {"1"}, {"2"}},
    {"{\"type\":\"object\",\"properties\":{\"a\":{\"anyOf\":[{\"const\":5},{\"type\":\"null\"}],"
     "\"default\":null,\"title\":\"A\"}},\"additionalProperties\":false}",
     {"{}", "{\"a\":5}", "{\"a\":null}"},
     {"{\"a\":6}", "{\"b\":1}"}},
    {"{\"type\":\"array\",\"items\":false}", {"[]"}, {"[1]"}},
    {"{\"type\":\"object\",\"properties\":{\"a\":false,\"b\":{\"const\":1}},"
     "\"additionalProperties\":false}",
     {"{}", "{\"b\":1}"},
     {"{\"a\":1}", "{\"a\":"}},
};

static void check_by_hand(const struct world *w, const struct by_hand *c) {
    json_t *schema = parse(c->schema);
    struct eb_grammar *g = of_schema(w, schema);
    for (int bytewise = 0; bytewise < 2; bytewise++) {
        for (size_t i = 0; i < 12 && c->good[i] != NULL; i++)
            if (!accepts(w, g, c->good[i], bytewise != 0))
                fail_msg("%s: %s does not pass", c->schema, c->good[i]);
        for (size_t i = 0; i < 16 && c->bad[i] != NULL; i++)
            if (accepts(w, g, c->bad[i], bytewise != 0))
                fail_msg("%s: %s passes", c->schema, c->bad[i]);
    }
    eb_grammar_destroy(&g);
    assert_null(g);
    json_decref(schema);
}

static void documents(void **state) {
    (void)state;
    for (size_t k = 0; k < n_worlds; k++)
        for (size_t i = 0; i < sizeof by_hand / sizeof *by_hand; i++)
            check_by_hand(&worlds[k], &by_hand[i]);
}

/* ---- an independent validator ------------------------------------------------------------- */

static bool valid(const json_t *schema, const json_t *v, const json_t *root);

static bool is_type(const char *type, const json_t *v) {
    if (strcmp(type, "null") == 0) return json_is_null(v);
    if (strcmp(type, "boolean") == 0) return json_is_boolean(v);
    if (strcmp(type, "string") == 0) return json_is_string(v);
    if (strcmp(type, "array") == 0) return json_is_array(v);
    if (strcmp(type, "object") == 0) return json_is_object(v);
    if (strcmp(type, "number") == 0) return json_is_number(v);
    return json_is_integer(v) || (json_is_real(v) && fmod(json_real_value(v), 1) == 0);
}

static size_t characters(const char *s) {
    size_t n = 0;
    for (; *s != '\0'; s++) n += ((unsigned char)*s & 0xc0u) != 0x80u;
    return n;
}

static double number_or(const json_t *schema, const char *key, double missing) {
    const json_t *v = json_object_get(schema, key);
    return v != NULL ? json_number_value(v) : missing;
}

static bool valid_members(const json_t *schema, const json_t *v, const json_t *root) {
    const json_t *properties = json_object_get(schema, "properties");
    const json_t *others = json_object_get(schema, "additionalProperties");
    const json_t *required = json_object_get(schema, "required");
    const char *key;
    json_t *member;
    for (size_t i = 0; i < json_array_size(required); i++)
        if (!json_object_get(v, json_string_value(json_array_get(required, i)))) return false;
    json_object_foreach((json_t *)v, key, member) {
        const json_t *one = json_object_get(properties, key);
        if (one == NULL) one = others;
        if (one != NULL && !valid(one, member, root)) return false;
    }
    return true;
}

static bool valid_items(const json_t *schema, const json_t *v, const json_t *root) {
    const json_t *prefix = json_object_get(schema, "prefixItems");
    const json_t *items = json_object_get(schema, "items");
    double n = (double)json_array_size(v);
    if (n < number_or(schema, "minItems", 0) || n > number_or(schema, "maxItems", 1e9))
        return false;
    for (size_t i = 0; i < json_array_size(v); i++) {
        const json_t *one = i < json_array_size(prefix) ? json_array_get(prefix, i) : items;
        if (one != NULL && !valid(one, json_array_get(v, i), root)) return false;
    }
    return true;
}

static bool valid_any(const json_t *list, const json_t *v, const json_t *root) {
    for (size_t i = 0; i < json_array_size(list); i++)
        if (valid(json_array_get(list, i), v, root)) return true;
    return false;
}

static bool valid_type(const json_t *type, const json_t *v) {
    if (json_is_string(type)) return is_type(json_string_value(type), v);
    for (size_t i = 0; i < json_array_size(type); i++)
        if (is_type(json_string_value(json_array_get(type, i)), v)) return true;
    return type == NULL;
}

static bool valid(const json_t *schema, const json_t *v, const json_t *root) {
    if (json_is_boolean(schema)) return json_is_true(schema);
    const json_t *ref = json_object_get(schema, "$ref"), *any = json_object_get(schema, "anyOf");
    const json_t *list = json_object_get(schema, "enum"), *one = json_object_get(schema, "const");
    /* The random schemas refer to "#/$defs/a" alone. */
    if (ref != NULL) return valid(json_object_get(json_object_get(root, "$defs"), "a"), v, root);
    if (!valid_type(json_object_get(schema, "type"), v)) return false;
    if (any != NULL && !valid_any(any, v, root)) return false;
    if (one != NULL && !json_equal(one, v)) return false;
    bool listed = list == NULL;
    for (size_t i = 0; i < json_array_size(list); i++)
        listed = listed || json_equal(json_array_get(list, i), v);
    if (!listed) return false;
    if (json_is_string(v)) {
        double n = (double)characters(json_string_value(v));
        return n >= number_or(schema, "minLength", 0) && n <= number_or(schema, "maxLength", 1e9);
    }
    if (json_is_number(v)) {
        double x = json_number_value(v);
        return x >= number_or(schema, "minimum", -HUGE_VAL) &&
               x <= number_or(schema, "maximum", HUGE_VAL);
    }
    if (json_is_object(v)) return valid_members(schema, v, root);
    if (json_is_array(v)) return valid_items(schema, v, root);
    return true;
}

/* ---- random schemas ----------------------------------------------------------------------- */

static uint32_t below(struct test_rng *rng, uint32_t n) {
    return (uint32_t)(test_u64(rng) % n);
}

static const char *random_name(struct test_rng *rng) {
    static const char *const names[] = {
        "a",   "ab",  "abc",         "b", "name", "city", "", "\xc3\xa9", "\xc3\xa9\xc3\xaa",
        "a b", "q\"", "\xe4\xb8\xad"};
    return names[below(rng, sizeof names / sizeof *names)];
}

static json_t *random_schema(struct test_rng *rng, int depth);

static json_t *random_object(struct test_rng *rng, int depth) {
    json_t *properties = json_object(), *required = json_array(), *schema = json_object();
    for (uint32_t i = below(rng, 5); i > 0; i--) {
        const char *name = random_name(rng);
        if (json_object_get(properties, name) != NULL) continue;
        json_object_set_new(properties, name, random_schema(rng, depth - 1));
        if (below(rng, 2) == 0) json_array_append_new(required, json_string(name));
    }
    json_object_set_new(schema, "type", json_string("object"));
    json_object_set_new(schema, "properties", properties);
    json_object_set_new(schema, "required", required);
    switch (below(rng, 4)) {
        case 0:
            json_object_set_new(schema, "additionalProperties", random_schema(rng, depth - 1));
            break;
        case 1:
            break;
        default:
            json_object_set_new(schema, "additionalProperties", json_false());
            break;
    }
    return schema;
}

static json_t *random_array(struct test_rng *rng, int depth) {
    json_t *schema = json_pack("{s:s}", "type", "array");
    uint32_t least = below(rng, 4);
    if (below(rng, 3) != 0) json_object_set_new(schema, "items", random_schema(rng, depth - 1));
    if (below(rng, 3) == 0) {
        json_t *prefix = json_array();
        for (uint32_t i = 1 + below(rng, 3); i > 0; i--)
            json_array_append_new(prefix, random_schema(rng, depth - 1));
        json_object_set_new(schema, "prefixItems", prefix);
    }
    if (below(rng, 2) == 0) json_object_set_new(schema, "minItems", json_integer(least));
    if (below(rng, 2) == 0)
        json_object_set_new(schema, "maxItems", json_integer(least + below(rng, 4)));
    return schema;
}

static json_t *random_enum(struct test_rng *rng) {
    static const char *const values[] = {
        "[\"red\", \"green\", \"red\\n\", \"reddish\", \"\xc3\xa9\", \"\\u001f\"]",
        "[1, 12, 123, -1, 1.25, 0.1, 1e300, null, true]",
        "[{\"a\": [1, {\"b\": \"\xf0\x9f\x98\x80\"}]}, [], \"\", [1, 2]]"};
    json_t *schema = json_object();
    json_object_set_new(schema, "enum", parse(values[below(rng, 3)]));
    return schema;
}

static json_t *random_leaf(struct test_rng *rng) {
    int least = (int)below(rng, 5), low = (int)below(rng, 4000) - 2000;
    switch (below(rng, 9)) {
        case 0:
            return json_pack("{s:s}", "type", "boolean");
        case 1:
            return json_pack("{s:[s,s]}", "type", "null", "integer");
        case 2:
            return json_pack("{s:s}", "type", "number");
        case 3:
            return json_pack("{s:s}", "type", "string");
        case 4:
            return json_pack("{s:s,s:i,s:i}", "type", "string", "minLength", least, "maxLength",
                             least + (int)below(rng, 6));
        case 5:
            return json_pack("{s:s,s:i,s:i}", "type", "integer", "minimum", low, "maximum",
                             low + (int)below(rng, 3000));
        case 6:
            return json_true();
        case 7:
            return json_pack("{s:{s:[s,i]}}", "const", "k", "v", 1);
        default:
            return random_enum(rng);
    }
}

static json_t *random_schema(struct test_rng *rng, int depth) {
    if (depth <= 0) return random_leaf(rng);
    switch (below(rng, 7)) {
        case 0:
        case 1:
            return random_object(rng, depth);
        case 2:
        case 3:
            return random_array(rng, depth);
        case 4: {
            json_t *list = json_array();
            for (uint32_t i = 1 + below(rng, 3); i > 0; i--)
                json_array_append_new(list, random_schema(rng, depth - 1));
            return json_pack("{s:o}", "anyOf", list);
        }
        case 5:
            return json_pack("{s:s}", "$ref", "#/$defs/a");
        default:
            return random_leaf(rng);
    }
}

/* A list that ends, or goes on through itself. */
static json_t *random_root(struct test_rng *rng) {
    json_t *root = random_object(rng, 3);
    json_t *a = random_object(rng, 1), *defs = json_object(), *next = json_array();
    json_array_append_new(next, json_pack("{s:s}", "$ref", "#/$defs/a"));
    json_array_append_new(next, json_pack("{s:s}", "type", "null"));
    json_object_set_new(json_object_get(a, "properties"), "next",
                        json_pack("{s:o}", "anyOf", next));
    json_object_set_new(defs, "a", a);
    json_object_set_new(root, "$defs", defs);
    return root;
}

static void check_random_schema(const struct world *w, struct test_rng *rng) {
    json_t *schema = random_root(rng);
    struct eb_grammar *g = of_schema(w, schema);
    for (int i = 0; i < 6; i++) {
        struct reply r = random_reply(w, g, rng, below(rng, 60), 3000, 16);
        json_t *v = json_loadb(r.text, r.n, JSON_DECODE_ANY, NULL);
        if (v == NULL || !valid(schema, v, schema)) {
            char *text = json_dumps(schema, 0);
            fail_msg("%s passes for %s", r.text, text);
        }
        json_decref(v);
        free(r.text);
    }
    eb_grammar_destroy(&g);
    json_decref(schema);
}

static void random_replies(void **state) {
    (void)state;
    struct test_rng rng = {test_seed()};
    for (size_t k = 0; k < n_worlds; k++)
        for (int i = 0; i < 40; i++) check_random_schema(&worlds[k], &rng);
}

/* ---- random documents --------------------------------------------------------------------- */

/* A value of the schema, written into r as a grammar lets it pass; blanks at random. */
static bool write_value(struct reply *r, const json_t *schema, const json_t *root,
                        struct test_rng *rng, int depth);

static void put(struct reply *r, const char *text) {
    reply_add(r, text, strlen(text));
}

static void put_json(struct reply *r, const json_t *v) {
    char *text = json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(15));
    assert_non_null(text);
    put(r, text);
    free(text);
}

static void put_gap(struct reply *r, const char *mark, struct test_rng *rng) {
    put(r, mark);
    if (below(rng, 2) == 0) put(r, " ");
}

static void write_string(struct reply *r, const json_t *schema, struct test_rng *rng) {
    static const char *const pieces[] = {
        "a", "\xc3\xa9", "\xf0\x9f\x98\x80", "\\n", "\\u00e9", "\\uD83D\\uDE00", " ",
        "<", "\\\"",     "\xe4\xb8\xad"};
    uint32_t least = (uint32_t)number_or(schema, "minLength", 0);
    uint32_t most = (uint32_t)number_or(schema, "maxLength", 9);
    put(r, "\"");
    for (uint32_t i = least + below(rng, most - least + 1); i > 0; i--)
        put(r, pieces[below(rng, sizeof pieces / sizeof *pieces)]);
    put(r, "\"");
}

static bool write_object(struct reply *r, const json_t *schema, const json_t *root,
                         struct test_rng *rng, int depth) {
    const json_t *required = json_object_get(schema, "required");
    const char *key;
    json_t *one;
    bool first = true;
    put(r, "{");
    json_object_foreach(json_object_get(schema, "properties"), key, one) {
        bool must = false;
        for (size_t i = 0; i < json_array_size(required); i++)
            must = must || strcmp(json_string_value(json_array_get(required, i)), key) == 0;
        if (!must && below(rng, 2) == 0) continue;
        json_t *name = json_string(key);
        size_t before = r->n;
        if (!first) put_gap(r, ",", rng);
        put_json(r, name);
        json_decref(name);
        put_gap(r, ":", rng);
        bool wrote = write_value(r, one, root, rng, depth - 1);
        if (!wrote && must) return false;
        if (!wrote) r->n = before;
        first = first && !wrote;
    }
    put(r, "}");
    return true;
}

static bool write_array(struct reply *r, const json_t *schema, const json_t *root,
                        struct test_rng *rng, int depth) {
    const json_t *prefix = json_object_get(schema, "prefixItems");
    const json_t *items = json_object_get(schema, "items");
    uint32_t least = (uint32_t)number_or(schema, "minItems", 0);
    uint32_t most = (uint32_t)number_or(schema, "maxItems", least + 3);
    uint32_t n = least + below(rng, most - least + 1);
    put(r, "[");
    for (uint32_t i = 0; i < n; i++) {
        const json_t *one = i < json_array_size(prefix) ? json_array_get(prefix, i) : items;
        size_t before = r->n;
        if (i > 0) put_gap(r, ",", rng);
        if (write_value(r, one != NULL ? one : json_true(), root, rng, depth - 1)) continue;
        if (i < least) return false;
        r->n = before;
        break;
    }
    put(r, "]");
    return true;
}

static bool write_typed(struct reply *r, const json_t *schema, const json_t *root,
                        struct test_rng *rng, int depth) {
    static const char *const numbers[] = {"0", "-0.5", "1e9", "-12", "2.50E-3"};
    const json_t *type = json_object_get(schema, "type");
    const char *name = json_string_value(type);
    if (name == NULL) name = json_string_value(json_array_get(type, below(rng, 2)));
    if (name == NULL)
        put(r, "[1, {\"x\": []}]");
    else if (strcmp(name, "object") == 0)
        return write_object(r, schema, root, rng, depth);
    else if (strcmp(name, "array") == 0)
        return write_array(r, schema, root, rng, depth);
    else if (strcmp(name, "string") == 0)
        write_string(r, schema, rng);
    else if (strcmp(name, "number") == 0 && json_object_get(schema, "minimum") == NULL)
        put(r, numbers[below(rng, 5)]);
    else if (strcmp(name, "number") == 0 || strcmp(name, "integer") == 0) {
        char digits[32];
        int low = (int)number_or(schema, "minimum", -70000);
        int high = (int)number_or(schema, "maximum", 70000);
        int value = low + (int)below(rng, (uint32_t)(high - low + 1));
        bool fraction = name[0] == 'n' && value >= 0 && value < high;
        snprintf(digits, sizeof digits, "%d%s", value, fraction ? ".250" : "");
        put(r, digits);
    } else
        put(r, strcmp(name, "null") == 0 ? "null" : below(rng, 2) == 0 ? "true" : "false");
    return true;
}

static bool write_value(struct reply *r, const json_t *schema, const json_t *root,
                        struct test_rng *rng, int depth) {
    const json_t *any = json_object_get(schema, "anyOf"), *list = json_object_get(schema, "enum");
    const json_t *one = json_object_get(schema, "const");
    if (depth < -12) return false;
    if (json_object_get(schema, "$ref") != NULL)
        return write_value(r, json_object_get(json_object_get(root, "$defs"), "a"), root, rng,
                           depth - 1);
    if (any != NULL)
        return write_value(r, json_array_get(any, below(rng, (uint32_t)json_array_size(any))), root,
                           rng, depth - 1);
    if (list != NULL) one = json_array_get(list, below(rng, (uint32_t)json_array_size(list)));
    if (one == NULL) return write_typed(r, schema, root, rng, depth);
    put_json(r, one);
    return true;
}

/* Without its last byte, or with one too many, no document passes. */
static void check_random_document(const struct world *w, const struct eb_grammar *g,
                                  const json_t *schema, struct test_rng *rng) {
    struct reply r = {0};
    if (write_value(&r, schema, schema, rng, 4)) {
        reply_add(&r, "", 0);
        if (!accepts(w, g, r.text, below(rng, 2) == 0)) {
            char *text = json_dumps(schema, 0);
            fail_msg("%s does not pass for %s", r.text, text);
        }
        reply_add(&r, "}", 1);
        assert_false(accepts(w, g, r.text, false));
        r.text[r.n - 2] = '\0';
        assert_false(accepts(w, g, r.text, false));
    }
    free(r.text);
}

static void random_documents(void **state) {
    (void)state;
    struct test_rng rng = {test_seed()};
    for (size_t k = 0; k < n_worlds; k++)
        for (int i = 0; i < 60; i++) {
            json_t *schema = random_root(&rng);
            struct eb_grammar *g = of_schema(&worlds[k], schema);
            for (int n = 0; n < 6; n++) check_random_document(&worlds[k], g, schema, &rng);
            eb_grammar_destroy(&g);
            json_decref(schema);
        }
}

/* ---- what is refused ---------------------------------------------------------------------- */

static void refuses(const json_t *schema, int32_t status, const char *part) {
    const struct eb_grammar_spec spec = {
        .model = worlds[0].model, .content = EB_CONTENT_JSON_SCHEMA, .schema = schema};
    ebro_error err = {0};
    struct eb_grammar *g = NULL;
    test_fails(eb_grammar_create(&spec, &g, &err), status, &err, part);
    assert_null(g);
}

static void refused(void **state) {
    (void)state;
    static const struct {
        const char *schema;
        int32_t status;
        const char *part;
    } cases[] = {
        {"{\"type\":\"object\",\"properties\":{\"age\":{\"type\":\"integer\",\"multipleOf\":2}}}",
         EBRO_UNSUPPORTED, "\"multipleOf\" is not supported (at #/properties/age/multipleOf)"},
        {"{\"anyOf\":[true,{\"not\":{}}]}", EBRO_UNSUPPORTED, "(at #/anyOf/1/not)"},
        {"{\"type\":\"string\",\"pattern\":\"a*\"}", EBRO_UNSUPPORTED, "pattern"},
        {"{\"type\":\"array\",\"uniqueItems\":true}", EBRO_UNSUPPORTED, "uniqueItems"},
        {"{\"type\":\"number\",\"minimum\":0.5}", EBRO_UNSUPPORTED, "(at #/minimum)"},
        {"{\"type\":\"number\",\"maximum\":1e19}", EBRO_UNSUPPORTED, "(at #/maximum)"},
        {"{\"type\":\"number\",\"minimum\":1,\"exclusiveMaximum\":1}", EBRO_INVALID, "no value"},
        {"{\"type\":\"number\",\"minimum\":1,\"maximum\":0}", EBRO_INVALID, "no value"},
        {"{\"allOf\":[{},{}]}", EBRO_UNSUPPORTED, "more than one"},
        {"{\"anyOf\":[{}],\"minLength\":2}", EBRO_UNSUPPORTED,
         "\"minLength\" is not supported "
         "beside \"anyOf\""},
        {"{\"$ref\":\"#/$defs/a\",\"enum\":[1],\"$defs\":{\"a\":{}}}", EBRO_UNSUPPORTED, "beside"},
        {"{\"$ref\":\"other.json\"}", EBRO_UNSUPPORTED, "$ref"},
        {"{\"$defs\":{\"a\":{\"items\":{\"if\":{}}}},\"$ref\":\"#/$defs/a\"}", EBRO_UNSUPPORTED,
         "(at #/$defs/a/items/if)"},
        {"{\"unheard\":1}", EBRO_UNSUPPORTED, "\"unheard\""},
        {"{\"$ref\":\"#/$defs/a\"}", EBRO_INVALID, "leads nowhere"},
        {"{\"$ref\":\"#\"}", EBRO_INVALID, "back to itself"},
        {"{\"$ref\":\"#/$defs/a\",\"$defs\":{\"a\":{\"anyOf\":[{\"type\":\"null\"},{\"$ref\":"
         "\"#/$defs/b\"}]},\"b\":{\"allOf\":[{\"$ref\":\"#/$defs/a\"}]}}}",
         EBRO_INVALID, "back to itself"},
        {"{\"type\":\"object\",\"properties\":{\"a\":{\"$ref\":\"#\"}},\"required\":[\"a\"]}",
         EBRO_INVALID, "no value"},
        {"false", EBRO_INVALID, "no value"},
        {"{\"type\":\"string\",\"enum\":[1]}", EBRO_INVALID, "no value"},
        {"{\"type\":\"array\",\"minItems\":3,\"maxItems\":2}", EBRO_INVALID, "no value"},
        {"{\"type\":\"string\",\"minLength\":3,\"maxLength\":2}", EBRO_INVALID, "no value"},
        {"{\"type\":\"integer\",\"minimum\":3,\"maximum\":2}", EBRO_INVALID, "no value"},
        {"{\"type\":\"integer\",\"minimum\":1e18}", EBRO_INVALID, "no value"},
        {"{\"required\":[\"a\"],\"additionalProperties\":false}", EBRO_INVALID, "no value"},
        {"{\"type\":\"array\",\"minItems\":1000000000}", EBRO_UNSUPPORTED, "minItems"},
        {"{\"type\":\"string\",\"minLength\":1000000000}", EBRO_UNSUPPORTED, "minLength"},
        {"{\"minLength\":-1}", EBRO_INVALID, "whole number"},
        {"{\"minLength\":\"1\"}", EBRO_INVALID, "whole number"},
        {"{\"minItems\":0.5}", EBRO_INVALID, "whole number"},
        {"{\"type\":\"integer\",\"minimum\":\"1\"}", EBRO_INVALID, "must be a number"},
        {"{\"type\":\"text\"}", EBRO_INVALID, "\"type\" must be"},
        {"{\"type\":[]}", EBRO_INVALID, "\"type\" must be"},
        {"{\"type\":1}", EBRO_INVALID, "\"type\" must be"},
        {"{\"enum\":[]}", EBRO_INVALID, "\"enum\""},
        {"{\"anyOf\":{}}", EBRO_INVALID, "\"anyOf\""},
        {"{\"oneOf\":[]}", EBRO_INVALID, "\"oneOf\""},
        {"{\"allOf\":[]}", EBRO_INVALID, "\"allOf\""},
        {"{\"properties\":[]}", EBRO_INVALID, "\"properties\""},
        {"{\"required\":1}", EBRO_INVALID, "\"required\""},
        {"{\"required\":[1]}", EBRO_INVALID, "\"required\""},
        {"{\"prefixItems\":{}}", EBRO_INVALID, "\"prefixItems\""},
        {"{\"items\":[{}]}", EBRO_INVALID, "must be an object, true or false (at #/items)"},
        {"{\"properties\":{\"a\":1}}", EBRO_INVALID, "(at #/properties/a)"},
        {"{\"$ref\":1}", EBRO_INVALID, "$ref"},
        {"1", EBRO_INVALID, "must be an object, true or false (at #)"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        json_t *schema = parse(cases[i].schema);
        refuses(schema, cases[i].status, cases[i].part);
        json_decref(schema);
    }
    refuses(NULL, EBRO_INVALID, "no schema");
}

/* A name is cut and a control character left out, so that the text can be shown as it is. */
static void readable_errors(void **state) {
    (void)state;
    char name[400] = "x", place[500];
    for (size_t i = 0; i < 90; i++) memcpy(name + 1 + 4 * i, "\xf0\x9f\x98\x80", 4);
    name[1 + 4 * 90] = '\n';
    for (int shift = 0; shift < 5; shift++) {
        json_t *schema = json_object(), *properties = json_object();
        ebro_error err = {0};
        struct eb_grammar *g = NULL;
        snprintf(place, sizeof place, "%.*s\n%s", shift, "abcde", name);
        json_object_set_new(properties, place, json_pack("{s:b}", name, 1));
        json_object_set_new(schema, "properties", properties);
        const struct eb_grammar_spec spec = {
            .model = worlds[0].model, .content = EB_CONTENT_JSON_SCHEMA, .schema = schema};
        test_fails(eb_grammar_create(&spec, &g, &err), EBRO_UNSUPPORTED, &err, "?x\xf0\x9f");
        json_t *text = json_string(err.text); /* NULL for what is no UTF-8 */
        assert_non_null(text);
        assert_null(strchr(err.text, '\n'));
        json_decref(text);
        json_decref(schema);
    }
}

/* ---- hostile schemas ---------------------------------------------------------------------- */

/* The deepest that the parser lets through, and deeper than what is gone through. */
static void deep(void **state) {
    (void)state;
    json_t *schema = json_object();
    for (int i = 0; i < 70; i++) schema = json_pack("{s:o}", "items", schema);
    refuses(schema, EBRO_INVALID, "nested more than");
    json_decref(schema);
    schema = json_object();
    for (int i = 0; i < 2000; i++) schema = json_pack("{s:[o]}", "anyOf", schema);
    refuses(schema, EBRO_INVALID, "nested more than");
    json_decref(schema);
}

static void check_reply(const json_t *schema, struct test_rng *rng, size_t n_most) {
    struct eb_grammar *g = of_schema(&worlds[0], schema);
    struct reply r = random_reply(&worlds[0], g, rng, 4, n_most, 64);
    json_t *v = parse(r.text);
    assert_true(valid(schema, v, schema));
    json_decref(v);
    free(r.text);
    eb_grammar_destroy(&g);
}

/* Each refers twice to the next: written out, there would be 2^30 of them. */
static void exponential(void **state) {
    (void)state;
    json_t *defs = json_object(), *schema;
    for (int i = 0; i < 30; i++) {
        char name[32], next[32];
        snprintf(name, sizeof name, "d%d", i);
        snprintf(next, sizeof next, "#/$defs/d%d", i + 1);
        json_object_set_new(defs, name,
                            json_pack("{s:[{s:s},{s:s}]}", "anyOf", "$ref", next, "$ref", next));
    }
    json_object_set_new(defs, "d30", json_pack("{s:s}", "type", "null"));
    schema = json_pack("{s:s,s:o}", "$ref", "#/$defs/d0", "$defs", defs);
    struct eb_grammar *g = of_schema(&worlds[0], schema);
    assert_true(accepts(&worlds[0], g, "null", false));
    eb_grammar_destroy(&g);
    json_decref(schema);
}

static void many(void **state) {
    (void)state;
    struct test_rng rng = {test_seed()};
    json_t *list = json_array(), *properties = json_object();
    for (int i = 0; i < 10000; i++) {
        char name[32];
        snprintf(name, sizeof name, "value %d", i * 7919);
        json_array_append_new(list, json_string(name));
        if (i < 1000) json_object_set_new(properties, name, json_true());
    }
    json_t *schema = json_pack("{s:o}", "enum", list);
    check_reply(schema, &rng, 100);
    json_decref(schema);
    schema = json_pack("{s:s,s:o,s:b}", "type", "object", "properties", properties,
                       "additionalProperties", 0);
    check_reply(schema, &rng, 3000);
    json_decref(schema);
    schema =
        json_pack("{s:s,s:i,s:{s:s}}", "type", "array", "minItems", 1000, "items", "type", "null");
    check_reply(schema, &rng, 9000);
    json_decref(schema);
}

static void too_large(void **state) {
    (void)state;
    json_t *list = json_array();
    for (int i = 0; i < 200000; i++) json_array_append_new(list, json_integer(i * 10007LL));
    json_t *schema = json_pack("{s:o}", "enum", list);
    refuses(schema, EBRO_INVALID, "too large");
    json_decref(schema);
}

/* Any value, nested as deep as it may: the walk turns back in time. */
static void bounded_depth(void **state) {
    (void)state;
    ebro_error err = {0};
    const struct world *w = &worlds[0];
    json_t *schema = json_true();
    struct eb_grammar *g = of_schema(w, schema);
    struct eb_walk *walk = make_walk(w, g);
    int32_t open, close;
    size_t n = 0, depth = 0;
    test_ok(ebro_tokenize(w->model, "[", 1, 0, &open, 1, &n, &err), &err);
    test_ok(ebro_tokenize(w->model, "]", 1, 0, &close, 1, &n, &err), &err);
    for (; eb_walk_allows(walk, open); depth++) test_ok(eb_walk_accept(walk, open, &err), &err);
    assert_in_range(depth, 60, 70);
    while (depth-- > 0) test_ok(eb_walk_accept(walk, close, &err), &err);
    assert_true(may_stop(w, walk));
    eb_walk_destroy(&walk);
    eb_grammar_destroy(&g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(documents),        cmocka_unit_test(random_replies),
        cmocka_unit_test(random_documents), cmocka_unit_test(refused),
        cmocka_unit_test(readable_errors),  cmocka_unit_test(deep),
        cmocka_unit_test(exponential),      cmocka_unit_test(many),
        cmocka_unit_test(too_large),        cmocka_unit_test(bounded_depth),
    };
    return cmocka_run_group_tests_name("server/schema", tests, open_worlds, close_worlds);
}
