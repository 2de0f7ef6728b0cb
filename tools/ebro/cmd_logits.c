/* cmd_logits.c: `ebro logits`: evaluates a prompt and writes what comes next, in numbers. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "choices.h"
#include "common.h"
#include "file_out.h"
#include "ids_in.h"
#include "safetensors_out.h"

static const char usage[] =
    "usage: ebro logits [-m MODEL] (-p TEXT | --ids FILE) --out FILE [options]\n"
    "\n"
    "Evaluates a prompt and writes a safetensors file with\n"
    "  ids     I32 [T]         the tokens of the prompt\n"
    "  logits  F32 [N, vocab]  the logits at its last N positions, in order\n"
    "The file appears when it is complete; one of the same name is replaced.\n";

static const struct eb_arg prompt_args[] = {
    {.name = "-p",
     .alias = "--prompt",
     .env = "EBRO_PROMPT",
     .meta = "TEXT",
     .kind = EB_ARG_TEXT,
     .offset = offsetof(struct eb_options, prompt),
     .from = offsetof(struct eb_options, prompt_from),
     .help = "the prompt: [BOS], then this as ordinary text"},
    {.name = "--ids",
     .env = "EBRO_IDS",
     .meta = "FILE",
     .kind = EB_ARG_TEXT,
     .offset = offsetof(struct eb_options, ids),
     .from = offsetof(struct eb_options, ids_from),
     .help = "the prompt as token ids: a file with a JSON array of\n"
             "whole numbers (- is stdin); nothing is added to it"},
};
static const struct eb_arg output_args[] = {
    {.name = "--last",
     .env = "EBRO_LAST",
     .meta = "N",
     .kind = EB_ARG_UINT,
     .min = 1,
     .max = 1u << 30,
     .offset = offsetof(struct eb_options, n_last),
     .help = "how many positions; more than there are means all;\ndefault: 1"},
    {.name = "--out",
     .env = "EBRO_OUT",
     .meta = "FILE",
     .kind = EB_ARG_TEXT,
     .offset = offsetof(struct eb_options, out),
     .help = "the file to write"},
    {.name = "--save-experts",
     .env = "EBRO_SAVE_EXPERTS",
     .meta = "FILE",
     .kind = EB_ARG_TEXT,
     .offset = offsetof(struct eb_options, save_experts),
     .help = "also write which experts each token used: a\n"
             "safetensors file of layers I32 [L], ids I32 [T],\n"
             "experts I32 [L, T, K] and weights F32 [L, T, K] over\n"
             "the L MoE layers (numbers from 0 over all layers)"},
    {.name = "--experts",
     .env = "EBRO_EXPERTS",
     .meta = "FILE",
     .kind = EB_ARG_TEXT,
     .offset = offsetof(struct eb_options, experts),
     .help = "use the experts of such a file, made for the same\n"
             "prompt, instead of the router's; weights are still\n"
             "computed. So that runs of other precision differ by\n"
             "that alone"},
};

/* Nothing that is written may replace what is read, or what else is written. */
static int check_files(const struct eb_options *o) {
    const char *ids = o->ids && strcmp(o->ids, "-") != 0 ? o->ids : NULL;
    const struct {
        const char *names, *path, *other;
    } pairs[] = {{"--out and --save-experts", o->out, o->save_experts},
                 {"--out and --ids", o->out, ids},
                 {"--out and --experts", o->out, o->experts},
                 {"--save-experts and --ids", o->save_experts, ids},
                 {"--save-experts and --experts", o->save_experts, o->experts}};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        if (!eb_file_same(pairs[i].path, pairs[i].other)) continue;
        eb_complain("%s name the same file: %s", pairs[i].names, pairs[i].path);
        return EB_EXIT_USAGE;
    }
    return EB_EXIT_OK;
}

static int check_options(struct eb_options *o) {
    /* of an option and an environment variable the option wins */
    if (o->prompt_from > o->ids_from)
        o->ids = NULL;
    else if (o->ids_from > o->prompt_from)
        o->prompt = NULL;
    const char *wrong = NULL;
    if (o->prompt && o->ids)
        wrong = "-p and --ids exclude each other";
    else if (!o->prompt && !o->ids)
        wrong = "no prompt: give -p TEXT or --ids FILE";
    else if (o->prompt && !*o->prompt)
        wrong = "the prompt is empty";
    else if (!o->out || !*o->out)
        wrong = "no output file: give --out FILE.safetensors";
    if (!wrong) return check_files(o);
    eb_complain("%s (`ebro logits --help` says more)", wrong);
    return EB_EXIT_USAGE;
}

static int write_logits(struct eb_session *s, const struct eb_tokens *tokens, const char *path) {
    ebro_error err = {0};
    const float *logits = NULL;
    uint32_t rows = 0;
    if (ebro_seq_logits(s->seq, &logits, &rows, &err) != EBRO_OK)
        return eb_session_complain(s, &err);
    /* logits first: they get the alignment */
    const struct eb_out_tensor tensors[] = {
        {"logits", "F32", {rows, s->model_info.vocab}, 2, logits},
        {"ids", "I32", {tokens->n}, 1, tokens->ids},
    };
    char text[1024];
    if (eb_safetensors_write(path, tensors, sizeof tensors / sizeof *tensors, text, sizeof text))
        return EB_EXIT_OK;
    eb_complain("%s", text);
    return EB_EXIT_USAGE;
}

int eb_cmd_logits(int argc, char **argv) {
    const struct eb_arg_group groups[] = {
        {"Prompt", prompt_args, sizeof prompt_args / sizeof *prompt_args},
        {"Output", output_args, sizeof output_args / sizeof *output_args},
        eb_model_args,
        eb_trust_args,
        eb_log_args};
    struct eb_options o;
    int code =
        eb_command_options("logits", usage, groups, sizeof groups / sizeof *groups, argc, argv, &o);
    if (code >= 0) return code;
    if ((code = check_options(&o)) != EB_EXIT_OK) return code;

    struct eb_session s = {0};
    struct eb_tokens tokens = {0};
    if ((code = eb_session_open_model(&s, &o)) != EB_EXIT_OK) goto out;
    code = o.ids ? eb_ids_read_file(o.ids, s.model_info.vocab, &tokens)
                 : eb_tokens_of_text(s.model, o.prompt, strlen(o.prompt), &tokens);
    if (code != EB_EXIT_OK) goto out;
    if ((code = eb_session_open_engine(&s, &o)) != EB_EXIT_OK) goto out;
    uint32_t n_last = o.n_last < tokens.n ? (uint32_t)o.n_last : (uint32_t)tokens.n;
    if (o.experts && (code = eb_choices_force(&s, &tokens, o.experts)) != EB_EXIT_OK) goto out;
    if ((code = eb_session_append(&s, tokens.ids, tokens.n, n_last)) != EB_EXIT_OK) goto out;
    double begin = eb_seconds();
    if ((code = eb_session_evaluate(&s, NULL)) != EB_EXIT_OK) goto out;
    double seconds = eb_seconds() - begin;
    if (o.save_experts && (code = eb_choices_save(&s, &tokens, o.save_experts)) != EB_EXIT_OK)
        goto out;
    if ((code = write_logits(&s, &tokens, o.out)) != EB_EXIT_OK) goto out;
    fprintf(stderr, "prompt %zu %s at %.1f tok/s, logits of the last %u, %s, cache %s\n", tokens.n,
            eb_tokens_word(tokens.n), (double)tokens.n / seconds, n_last, s.device_info.name,
            eb_cache_dtype_name(s.cache_dtype));
out:
    free(tokens.ids);
    eb_session_close(&s);
    return code;
}
