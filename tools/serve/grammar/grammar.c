/* grammar.c: a grammar from what is asked for: the content, in the frame of the model's chat
 * format. calls.c writes tool calls. */
#include <stdlib.h>
#include <string.h>

#include "calls.h"
#include "compiled.h"

/* ---- control tokens ----------------------------------------------------------------------- */

void eb_draft_control(struct eb_draft *r, const char *name) {
    int32_t ids[4], special = 0;
    size_t n = 0, bytes = 0;
    if (r->b.st != EBRO_OK) return;
    int32_t st = ebro_tokenize(r->spec->model, name, strlen(name), 1, ids, 4, &n, NULL);
    if (st == EBRO_OK && n == 1) ebro_token_bytes(r->spec->model, ids[0], &bytes, &special);
    if (special)
        eb_build_control(&r->b, ids[0]);
    else if (st == EBRO_NOMEM_HOST)
        eb_build_fail(&r->b, st, "no memory to find the control token \"%s\"", name);
    else
        eb_build_fail(&r->b, EBRO_FORMAT,
                      "the vocabulary has no special token \"%s\", which the chat format needs",
                      name);
}

void eb_draft_tag(struct eb_draft *r, bool open, const char *name) {
    eb_draft_control(r, open ? "<|open|>" : "<|close|>");
    eb_build_text(&r->b, name);
    eb_draft_control(r, "<|sep|>");
}

/* ---- content ------------------------------------------------------------------------------ */

static void build_schema(struct eb_draft *r) {
    struct eb_schema s;
    struct eb_where where = {.name = "#"};
    eb_schema_begin(&s, &r->b, &r->rules, r->spec->schema);
    eb_schema_value(&s, r->spec->schema, (struct eb_form){.types = EB_TYPE_ANY}, &where);
    eb_schema_end(&s);
}

static void build_content(struct eb_draft *r) {
    switch (r->spec->content) {
        case EB_CONTENT_TEXT:
            eb_build_any_text(&r->b);
            return;
        case EB_CONTENT_JSON_OBJECT:
            eb_rules_call(&r->b, &r->rules, EB_RULE_OBJECT);
            return;
        case EB_CONTENT_JSON_SCHEMA:
            build_schema(r);
            return;
    }
    eb_build_fail(&r->b, EBRO_INVALID, "content %d is not known", (int)r->spec->content);
}

static void build_stop(struct eb_draft *r) {
    eb_build_put(&r->b, (struct eb_instr){.op = EB_OP_STOP});
}

static int32_t id_of(const ebro_model *model, const char *name) {
    int32_t id = -1;
    size_t n = 0;
    int32_t st = ebro_tokenize(model, name, strlen(name), 1, &id, 1, &n, NULL);
    return st == EBRO_OK && n == 1 ? id : -1;
}

/* Where the message's end is no stop token, it stands before one. */
static void build_linear(struct eb_draft *r) {
    static const char end[] = "<|im_end|>";
    if (r->spec->tools != NULL)
        eb_calls_linear(r);
    else
        build_content(r);
    if (!ebro_token_is_stop(r->spec->model, id_of(r->spec->model, end))) eb_draft_control(r, end);
    build_stop(r);
}

/* The prompt has opened the first channel: of thinking, or of the response. */
static void build_k3(struct eb_draft *r) {
    if (r->spec->thinking) {
        eb_build_any_text(&r->b);
        eb_draft_tag(r, false, "think");
        eb_draft_tag(r, true, "response");
    }
    if (r->spec->tools == NULL) build_content(r);
    eb_draft_tag(r, false, "response");
    if (r->spec->tools != NULL) eb_calls_k3(r);
    eb_draft_tag(r, false, "message");
    build_stop(r);
}

static void build_plain(struct eb_draft *r) {
    if (r->spec->tools != NULL)
        eb_build_fail(&r->b, EBRO_INVALID, "tools can be called in a chat only");
    build_content(r);
    build_stop(r);
}

static void build_reply(struct eb_draft *r) {
    ebro_model_info info;
    ebro_model_get_info(r->spec->model, &info);
    if (!r->spec->chat)
        build_plain(r);
    else if (strcmp(info.architecture, "kimi-linear") == 0)
        build_linear(r);
    else if (strcmp(info.architecture, "kimi-k3") == 0)
        build_k3(r);
    else
        eb_build_fail(&r->b, EBRO_UNSUPPORTED, "the chat format of %s is not known to grammars",
                      info.architecture);
}

int32_t eb_grammar_create(const struct eb_grammar_spec *spec, struct eb_grammar **out,
                          ebro_error *err) {
    *out = NULL;
    struct eb_grammar *g = calloc(1, sizeof *g);
    if (g == NULL) return eb_grammar_fail(err, EBRO_NOMEM_HOST, "no memory for a grammar");
    struct eb_draft r = {.spec = spec, .b = {.p = &g->program, .err = err, .st = EBRO_OK}};
    if (spec->content == EB_CONTENT_JSON_SCHEMA && spec->schema == NULL && spec->tools == NULL)
        eb_build_fail(&r.b, EBRO_INVALID, "there is no schema");
    build_reply(&r);
    if (r.b.st == EBRO_OK) r.b.st = eb_program_link(&g->program, err);
    if (r.b.st == EBRO_OK)
        *out = g;
    else
        eb_grammar_destroy(&g);
    return r.b.st;
}

void eb_grammar_destroy(struct eb_grammar **grammar) {
    if (grammar == NULL || *grammar == NULL) return;
    eb_program_clear(&(*grammar)->program);
    free(*grammar);
    *grammar = NULL;
}
