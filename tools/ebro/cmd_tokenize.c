/* cmd_tokenize.c: `ebro tokenize`: text to tokens and back. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common.h"
#include "ids_in.h"
#include "input.h"
#include "quote.h"

static const char usage[] =
    "usage: ebro tokenize [-m MODEL] [-p TEXT] [--special] [--ids | --json]\n"
    "       ebro tokenize [-m MODEL] --decode IDS [--json]\n"
    "\n"
    "Shows the tokens of a text, or with --decode the text of tokens. One token a\n"
    "line: its id, a tab, its bytes in quotes (\\\" \\\\ \\n \\r \\t, and \\xNN for bytes that\n"
    "are no printable UTF-8 character), and for a control token a tab and \"control\".\n"
    "Nothing is added to the text: no [BOS].\n";

static const struct eb_arg text_args[] = {
    {.name = "-p",
     .alias = "--prompt",
     .env = "EBRO_PROMPT",
     .meta = "TEXT",
     .kind = EB_ARG_TEXT,
     .offset = offsetof(struct eb_options, prompt),
     .from = offsetof(struct eb_options, prompt_from),
     .help = "the text; without it all of stdin, as it is, unless\nthat is a terminal"},
    {.name = "--special",
     .env = "EBRO_SPECIAL",
     .kind = EB_ARG_FLAG,
     .offset = offsetof(struct eb_options, special),
     .help =
         "names of control tokens in the text become those\ntokens; without it they are ordinary "
         "text"},
    {.name = "--decode",
     .env = "EBRO_DECODE",
     .meta = "IDS",
     .kind = EB_ARG_TEXT,
     .offset = offsetof(struct eb_options, decode),
     .from = offsetof(struct eb_options, decode_from),
     .help =
         "write the bytes of these tokens to stdout, with\nnothing added: numbers between blanks "
         "or commas, or a\nJSON array; \"-\" reads them from stdin"},
};
static const struct eb_arg output_args[] = {
    {.name = "--ids",
     .env = "EBRO_IDS_ONLY",
     .kind = EB_ARG_FLAG,
     .offset = offsetof(struct eb_options, ids_only),
     .from = offsetof(struct eb_options, ids_only_from),
     .help = "the ids alone, as a JSON array on one line: what\n`ebro logits --ids -` reads"},
    {.name = "--json",
     .env = "EBRO_JSON",
     .kind = EB_ARG_FLAG,
     .offset = offsetof(struct eb_options, json),
     .from = offsetof(struct eb_options, json_from),
     .help = "a JSON array of objects: id, text (null where the\nbytes are no UTF-8), bytes (in "
             "hexadecimal), control"},
};

struct token {
    const char *bytes; /* "" for a hole of the vocabulary */
    size_t n;
    int32_t special;
};

static struct token look_up(const ebro_model *model, int32_t id) {
    struct token t = {0};
    t.bytes = ebro_token_bytes(model, id, &t.n, &t.special);
    if (!t.bytes) t.bytes = "";
    return t;
}

static void print_lines(const ebro_model *model, const struct eb_tokens *tokens) {
    for (size_t i = 0; i < tokens->n; i++) {
        struct token t = look_up(model, tokens->ids[i]);
        printf("%d\t", tokens->ids[i]);
        eb_quote(stdout, t.bytes, t.n);
        puts(t.special ? "\tcontrol" : "");
    }
}

static void print_ids(const struct eb_tokens *tokens) {
    putchar('[');
    for (size_t i = 0; i < tokens->n; i++) printf("%s%d", i ? ", " : "", tokens->ids[i]);
    puts("]");
}

/* One object; NULL when out of memory. */
static json_t *object_of(const ebro_model *model, int32_t id) {
    struct token t = look_up(model, id);
    char *hex = malloc(2 * t.n + 1);
    if (!hex) return NULL;
    for (size_t i = 0; i < t.n; i++)
        snprintf(hex + 2 * i, 3, "%02x", (unsigned)(unsigned char)t.bytes[i]);
    hex[2 * t.n] = '\0';
    json_t *text = eb_utf8_is(t.bytes, t.n) ? json_stringn(t.bytes, t.n) : json_null();
    json_t *one = json_pack("{s:i, s:o, s:s, s:b}", "id", (int)id, "text", text, "bytes", hex,
                            "control", (int)t.special);
    free(hex);
    return one;
}

static bool print_json(const ebro_model *model, const struct eb_tokens *tokens) {
    bool ok = false;
    json_t *all = json_array();
    for (size_t i = 0; all && i < tokens->n; i++) {
        json_t *one = object_of(model, tokens->ids[i]);
        if (!one || json_array_append_new(all, one) != 0) goto out;
    }
    ok = all && json_dumpf(all, stdout, JSON_INDENT(2)) == 0;
    putchar('\n');
out:
    json_decref(all);
    return ok;
}

static int find_text(const struct eb_options *o, struct eb_text *out) {
    if (!o->prompt) {
        if (!isatty(STDIN_FILENO)) return eb_input_read("the text", out);
        eb_complain(
            "no text: give -p TEXT or pipe one to stdin (`ebro tokenize --help` says more)");
        return EB_EXIT_USAGE;
    }
    out->n = strlen(o->prompt);
    if ((out->s = malloc(out->n + 1))) {
        memcpy(out->s, o->prompt, out->n + 1);
        return EB_EXIT_OK;
    }
    eb_complain("out of memory for the text");
    return EB_EXIT_MEMORY;
}

static int encode(const ebro_model *model, const struct eb_text *text, bool special,
                  struct eb_tokens *out) {
    ebro_error err = {0};
    /* a token holds one byte at least */
    if (!(out->ids = calloc(text->n + 1, sizeof *out->ids))) {
        eb_complain("out of memory for the tokens of %zu bytes", text->n);
        return EB_EXIT_MEMORY;
    }
    if (ebro_tokenize(model, text->s, text->n, special, out->ids, text->n + 1, &out->n, &err) !=
        EBRO_OK)
        return eb_complain_error(&err);
    return EB_EXIT_OK;
}

static int decode(const struct eb_options *o, const ebro_model_info *info, struct eb_tokens *out) {
    struct eb_text text = {0};
    bool from_stdin = strcmp(o->decode, "-") == 0;
    int code = from_stdin ? eb_input_read("the ids", &text) : EB_EXIT_OK;
    if (code == EB_EXIT_OK)
        code = eb_ids_read_text("--decode", from_stdin ? text.s : o->decode, info->vocab, out);
    free(text.s);
    return code;
}

static void print_bytes(const ebro_model *model, const struct eb_tokens *tokens) {
    for (size_t i = 0; i < tokens->n; i++) {
        struct token t = look_up(model, tokens->ids[i]);
        fwrite(t.bytes, 1, t.n, stdout);
    }
}

static bool was_given(bool set, enum eb_arg_from from) {
    return set && from == EB_FROM_COMMAND_LINE;
}

/* Of two options that exclude each other, the one on the command line wins over the environment. */
static void settle_options(struct eb_options *o) {
    bool ids = was_given(o->ids_only, o->ids_only_from), json = was_given(o->json, o->json_from);
    bool decode = was_given(o->decode, o->decode_from);
    if (o->decode_from == EB_FROM_ENVIRONMENT && (ids || was_given(o->prompt, o->prompt_from)))
        o->decode = NULL;
    if (o->ids_only_from == EB_FROM_ENVIRONMENT && (json || decode)) o->ids_only = false;
    if (o->json_from == EB_FROM_ENVIRONMENT && ids) o->json = false;
}

static int check_options(const struct eb_options *o) {
    const char *wrong = NULL;
    if (o->ids_only && o->json)
        wrong = "--ids and --json exclude each other";
    else if (o->decode && o->prompt && o->prompt_from == EB_FROM_COMMAND_LINE)
        wrong = "-p and --decode exclude each other";
    else if (o->decode && o->ids_only)
        wrong = "--ids and --decode exclude each other";
    if (!wrong) return EB_EXIT_OK;
    eb_complain("%s (`ebro tokenize --help` says more)", wrong);
    return EB_EXIT_USAGE;
}

int eb_cmd_tokenize(int argc, char **argv) {
    const struct eb_arg_group groups[] = {
        {"Text", text_args, sizeof text_args / sizeof *text_args},
        {"Output", output_args, sizeof output_args / sizeof *output_args},
        {"Model", eb_model_args.args, 1}, /* -m alone: no device computes */
        eb_log_args};
    struct eb_options o;
    int code = eb_command_options("tokenize", usage, groups, sizeof groups / sizeof *groups, argc,
                                  argv, &o);
    if (code >= 0) return code;
    settle_options(&o);
    if ((code = check_options(&o)) != EB_EXIT_OK) return code;

    struct eb_session s = {0};
    struct eb_text text = {0};
    struct eb_tokens tokens = {0};
    if (!o.decode && (code = find_text(&o, &text)) != EB_EXIT_OK) goto out;
    if ((code = eb_session_open_model_alone(&s, &o)) != EB_EXIT_OK) goto out;
    code =
        o.decode ? decode(&o, &s.model_info, &tokens) : encode(s.model, &text, o.special, &tokens);
    if (code != EB_EXIT_OK) goto out;
    if (o.json && !print_json(s.model, &tokens)) {
        eb_complain("out of memory, or standard output cannot be written");
        code = EB_EXIT_MEMORY;
        goto out;
    }
    if (!o.json) {
        if (o.decode)
            print_bytes(s.model, &tokens);
        else if (o.ids_only)
            print_ids(&tokens);
        else
            print_lines(s.model, &tokens);
    }
    if (!eb_flush_stdout()) code = EB_EXIT_USAGE;
out:
    free(text.s);
    free(tokens.ids);
    eb_session_close(&s);
    return code;
}
