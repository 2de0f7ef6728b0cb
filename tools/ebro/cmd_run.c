/* cmd_run.c: `ebro run`: continues a text or answers one chat message. How a reply is made and what
 * of it a reader sees stand in generate.h and reply.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "generate.h"
#include "input.h"
#include "interrupt.h"

static const char usage[] =
    "usage: ebro run [-m MODEL] [-p PROMPT] [--chat] [options]\n"
    "\n"
    "Continues a text, or with --chat answers one message, and writes what the model\n"
    "says to stdout as it is made, with a newline at its end. One line on stderr sums\n"
    "up: tokens and tokens per second of prompt and answer, device, cache type.\n"
    "\n"
    "Generation ends at the model's stop tokens (without --chat at [EOS] too), before\n"
    "a --stop text, after -n tokens, when the context is full (-c), or at ctrl-C (it\n"
    "still sums up then).\n"
    "Control tokens are never shown. Of a Kimi K3 chat, the response goes to stdout\n"
    "and the thinking (--think) to stderr; names of channels are not shown.\n";

static const struct eb_arg prompt_args[] = {
    {.name = "-p",
     .alias = "--prompt",
     .env = "EBRO_PROMPT",
     .meta = "PROMPT",
     .kind = EB_ARG_TEXT,
     .offset = offsetof(struct eb_options, prompt),
     .from = offsetof(struct eb_options, prompt_from),
     .help = "the text to continue, after [BOS], or the message to\n"
             "answer; names of control tokens in it are ordinary\n"
             "text. Without it the prompt is read from stdin, less\n"
             "one newline at its end, unless that is a terminal"},
    {.name = "--chat",
     .env = "EBRO_CHAT",
     .kind = EB_ARG_FLAG,
     .offset = offsetof(struct eb_options, chat),
     .help = "the prompt is a user's message: use the model's chat\nformat"},
    {.name = "--system",
     .env = "EBRO_SYSTEM",
     .meta = "TEXT",
     .kind = EB_ARG_TEXT,
     .offset = offsetof(struct eb_options, system),
     .from = offsetof(struct eb_options, system_from),
     .help = "a system message before it (with --chat)"},
    {.name = "--think",
     .env = "EBRO_THINK",
     .kind = EB_ARG_FLAG,
     .offset = offsetof(struct eb_options, think),
     .from = offsetof(struct eb_options, think_from),
     .help = "let the model think first (with --chat, Kimi K3)"},
};
/* ---- prompt ----------------------------------------------------------------------------- */

static int find_prompt(const struct eb_options *o, struct eb_text *out) {
    const char *wrong = NULL;
    if (!o->chat && o->system_from == EB_FROM_COMMAND_LINE)
        wrong = "--system needs --chat";
    else if (!o->chat && o->think && o->think_from == EB_FROM_COMMAND_LINE)
        wrong = "--think needs --chat";
    else if (!o->prompt && isatty(STDIN_FILENO))
        wrong = "no prompt: give -p PROMPT or pipe one to stdin";
    if (wrong) goto wrong;
    if (o->prompt) {
        out->n = strlen(o->prompt);
        if (!(out->s = malloc(out->n + 1))) {
            eb_complain("out of memory for the prompt");
            return EB_EXIT_MEMORY;
        }
        memcpy(out->s, o->prompt, out->n + 1);
    } else {
        int code = eb_input_read("the prompt", out);
        if (code != EB_EXIT_OK) return code;
        if (out->n > 0 && out->s[out->n - 1] == '\n') out->s[--out->n] = '\0';
    }
    if (out->n == 0)
        wrong = "the prompt is empty";
    else if (o->chat && strlen(out->s) != out->n)
        wrong = "the message on stdin holds a NUL byte";
    if (!wrong) return EB_EXIT_OK;
wrong:
    eb_complain("%s (`ebro run --help` says more)", wrong);
    return EB_EXIT_USAGE;
}

/* ---- answer ----------------------------------------------------------------------------- */

static int find_tokens(const struct eb_session *s, const struct eb_options *o,
                       const struct eb_text *prompt, struct eb_tokens *out) {
    if (!o->chat) return eb_tokens_of_text(s->model, prompt->s, prompt->n, out);
    ebro_chat_message messages[2];
    size_t n = 0;
    if (o->system) messages[n++] = (ebro_chat_message){.role = "system", .content = o->system};
    messages[n++] = (ebro_chat_message){.role = "user", .content = prompt->s};
    return eb_tokens_of_chat(s->model, messages, n, o->think, out);
}

static int reply_to(struct eb_session *s, const struct eb_options *o, const struct eb_generator *g,
                    struct eb_tally *t) {
    struct eb_reply reply;
    ebro_error err = {0};
    enum eb_reply_form form = eb_reply_form_of(&s->model_info, o->chat, o->think);
    if (eb_reply_start(&reply, s->runtime, form, o->stop.items, o->stop.n, &err) != EBRO_OK) {
        eb_reply_free(&reply);
        return eb_complain_error(&err);
    }
    int code = eb_generate(s, g, &reply, t);
    /* a wish that is refused before the first token leaves no output */
    if (code == EB_EXIT_OK || t->n_generated > 0) eb_reply_finish(&reply);
    if (code == EB_EXIT_OK && !eb_flush_stdout()) code = EB_EXIT_USAGE;
    eb_reply_free(&reply);
    return code;
}

static int answer(struct eb_session *s, const struct eb_options *o, const struct eb_text *prompt) {
    struct eb_tokens tokens = {0};
    struct eb_tally t = {0};
    struct eb_generator g;
    int code = eb_generator_init(&g, o);
    if (code != EB_EXIT_OK) goto out;
    if ((code = find_tokens(s, o, prompt, &tokens)) != EB_EXIT_OK) goto out;
    if ((code = eb_session_open_engine(s, o)) != EB_EXIT_OK) goto out;
    if ((code = eb_session_append(s, tokens.ids, tokens.n, 0)) != EB_EXIT_OK) goto out;
    eb_interrupt_catch(true);
    double begin = eb_seconds();
    if ((code = eb_session_evaluate(s, &eb_interrupted)) != EB_EXIT_OK) goto out;
    t.prompt_seconds = eb_seconds() - begin;
    t.n_prompt = ebro_seq_length(s->seq);
    if (!eb_interrupted) code = reply_to(s, o, &g, &t);
    if (eb_interrupted) {
        t.remark = "interrupted";
        if (code == EB_EXIT_OK) code = EB_EXIT_INTERRUPTED;
    }
    if (code == EB_EXIT_OK || code == EB_EXIT_INTERRUPTED) eb_summary_print(s, &t);
out:
    eb_generator_free(&g);
    free(t.made.ids);
    free(tokens.ids);
    return code;
}

int eb_cmd_run(int argc, char **argv) {
    const struct eb_arg_group groups[] = {
        {"Prompt", prompt_args, sizeof prompt_args / sizeof *prompt_args},
        eb_generation_args,
        eb_model_args,
        eb_log_args};
    struct eb_options o;
    int code =
        eb_command_options("run", usage, groups, sizeof groups / sizeof *groups, argc, argv, &o);
    if (code >= 0) return code;

    struct eb_text prompt = {0};
    struct eb_session s = {0};
    if ((code = find_prompt(&o, &prompt)) != EB_EXIT_OK) goto out;
    if ((code = eb_session_open_model(&s, &o)) != EB_EXIT_OK) goto out;
    if (o.chat && (code = eb_session_check_think(&s, &o)) != EB_EXIT_OK) goto out;
    code = answer(&s, &o, &prompt);
out:
    free(prompt.s);
    eb_session_close(&s);
    return code;
}
