/* cmd_run.c: `ebro run`: continues a text or answers one chat message. How a reply is made and what
 * of it a reader sees stand in generate.h and reply.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "generate.h"
#include "input.h"
#include "interrupt.h"
#include "saved.h"
#include "settle.h"

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
    "and the thinking (--think) to stderr; names of channels are not shown.\n"
    "\n"
    "With --session the text, or the chat, goes on from a file and is kept in it: what\n"
    "was read before is not read again. One line on stderr says how much that was.\n"
    "Without a prompt a text goes on where it ended.\n";

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
    EB_SESSION_ARG("go on from this file, if it is there, and write text or\nchat to it "
                   "afterwards; only the same model can read it"),
};
/* ---- prompt ----------------------------------------------------------------------------- */

/* A stored text can go on by itself; a chat waits for a message. */
static bool needs_prompt(const struct eb_options *o) {
    return !o->session || o->chat || !eb_saved_is_there(o->session);
}

static int find_prompt(const struct eb_options *o, struct eb_text *out) {
    const char *wrong = NULL;
    bool from_terminal = !o->prompt && isatty(STDIN_FILENO);
    if (!o->chat && o->system_from == EB_FROM_COMMAND_LINE)
        wrong = "--system needs --chat";
    else if (!o->chat && o->think && o->think_from == EB_FROM_COMMAND_LINE)
        wrong = "--think needs --chat";
    else if (from_terminal && needs_prompt(o))
        wrong = "no prompt: give -p PROMPT or pipe one to stdin";
    if (wrong) goto wrong;
    if (from_terminal) return EB_EXIT_OK;
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
    if (out->n == 0 && needs_prompt(o))
        wrong = "the prompt is empty";
    else if (o->chat && strlen(out->s) != out->n)
        wrong = "the message on stdin holds a NUL byte";
    if (!wrong) return EB_EXIT_OK;
wrong:
    eb_complain("%s (`ebro run --help` says more)", wrong);
    return EB_EXIT_USAGE;
}

/* ---- answer ----------------------------------------------------------------------------- */

/* An answer in the making. `talk` is a session's chat; without a session, messages are not kept. */
struct answer {
    struct eb_session *s;
    struct eb_saved *file; /* of --session */
    const struct eb_options *o;
    const struct eb_text *prompt;
    struct eb_conversation talk;
    struct eb_tokens tokens; /* all of the chat, or the text to go on with */
    struct eb_tally t;
};

static struct eb_conversation *kept_talk(struct answer *a) {
    return a->o->chat ? &a->talk : NULL;
}

static int find_chat(struct answer *a) {
    const struct eb_options *o = a->o;
    if (!o->session) {
        ebro_chat_message messages[2];
        size_t n = 0;
        if (o->system) messages[n++] = (ebro_chat_message){.role = "system", .content = o->system};
        messages[n++] = (ebro_chat_message){.role = "user", .content = a->prompt->s};
        return eb_tokens_of_chat(a->s->model, messages, n, o->think, true, &a->tokens);
    }
    if ((o->system && !eb_conversation_set_system(&a->talk, o->system)) ||
        !eb_conversation_add(&a->talk, "user", a->prompt->s, a->prompt->n, NULL, 0)) {
        eb_complain("out of memory for a message of %zu bytes", a->prompt->n);
        return EB_EXIT_MEMORY;
    }
    return eb_tokens_of_chat(a->s->model, a->talk.v, a->talk.n, o->think, true, &a->tokens);
}

/* Without a prompt the stored text goes on. Logits come from evaluating its last token. Where that
 * is done, in a file that `ebro run` has not written, it is taken back, and all of it is read
 * again.
 */
static int queue_last(struct answer *a) {
    struct eb_session *s = a->s;
    ebro_error err = {0};
    uint32_t held = 0;
    const int32_t *ids = ebro_seq_tokens(s->seq, &held);
    if (ebro_seq_pending(s->seq) > 0) return EB_EXIT_OK;
    if (held == 0) {
        eb_complain("the prompt is empty, and so is the text in %s", a->o->session);
        return EB_EXIT_USAGE;
    }
    int32_t last = ids[held - 1];
    if (ebro_seq_rewind(s->seq, held - 1, &err) != EBRO_OK) return eb_session_complain(s, &err);
    return eb_session_append(s, &last, 1, 0);
}

/* A text goes on where the sequence is. */
static int queue_text(struct answer *a) {
    struct eb_session *s = a->s;
    struct eb_tokens *want = &a->tokens;
    uint32_t held = 0;
    ebro_seq_tokens(s->seq, &held);
    if (a->prompt->n == 0) return queue_last(a);
    /* NOLINTNEXTLINE(clang-analyzer-unix.Malloc): the caller of answer() frees a->tokens */
    int code = eb_tokens_of_text(s->model, a->prompt->s, a->prompt->n, want);
    if (code != EB_EXIT_OK) return code;
    /* one that has begun already has its [BOS] */
    size_t skip = held > 0 && ebro_token_bos(s->model) >= 0;
    return eb_session_append(s, want->ids + skip, want->n - skip, 0);
}

static int queue_chat(struct answer *a) {
    struct eb_settled settled;
    int code = find_chat(a);
    return code == EB_EXIT_OK ? eb_settle_on(a->s, &a->tokens, &settled) : code;
}

/* What of the stored tokens, `held`, is not read again. One that was stored unread does not count.
 */
static void tell_reused(const struct answer *a, uint32_t held, uint32_t evaluated) {
    const struct eb_session *s = a->s;
    uint32_t reused = ebro_seq_length(s->seq);
    uint32_t all = reused + ebro_seq_pending(s->seq);
    if (reused > evaluated) reused = evaluated;
    fprintf(stderr, "session %s: %u of %u tokens reused", a->o->session, reused, all);
    if (reused == 0)
        fputs(a->o->chat ? ": the conversation begins otherwise than the stored one (--system or "
                           "--think changed?)"
                         : ": no state was stored before the last token",
              stderr);
    else if (held > reused + 1)
        fprintf(stderr, ", %u of the stored ones are read again", held - reused);
    fputc('\n', stderr);
}

static int queue(struct answer *a) {
    uint32_t held = 0, evaluated = ebro_seq_length(a->s->seq);
    ebro_seq_tokens(a->s->seq, &held);
    int code = a->o->chat ? queue_chat(a) : queue_text(a);
    if (code == EB_EXIT_OK && held > 0) tell_reused(a, held, evaluated);
    return code;
}

/* The file holds what was shown, and the state to go on from right behind it. */
static int keep_session(struct answer *a, const struct eb_reply *r) {
    struct eb_session *s = a->s;
    struct eb_settled settled;
    int code;
    if (a->o->chat) {
        if (!eb_conversation_add(&a->talk, "assistant", r->text.kept ? r->text.kept : "",
                                 r->text.n_kept, r->thought.kept, r->thought.n_kept)) {
            eb_complain("out of memory for the reply");
            return EB_EXIT_MEMORY;
        }
        code = eb_settle_chat(s, a->talk.v, a->talk.n, a->o->think, &settled);
        if (settled.n_too_long > 0)
            fprintf(stderr,
                    "session %s: the conversation has %zu tokens, and -c has room for %u: its "
                    "messages are stored, but not what was read\n",
                    a->o->session, settled.n_too_long, s->n_ctx);
    } else {
        code = eb_settle_text(s, &a->t, r->text.n_written);
    }
    return code == EB_EXIT_OK ? eb_saved_save(a->file, s, kept_talk(a)) : code;
}

static int reply_to(struct answer *a, const struct eb_generator *g) {
    struct eb_reply reply;
    ebro_error err = {0};
    const struct eb_options *o = a->o;
    enum eb_reply_form form = eb_reply_form_of(&a->s->model_info, o->chat, o->think);
    if (eb_reply_start(&reply, a->s->runtime, form, o->stop.items, o->stop.n, &err) != EBRO_OK) {
        eb_reply_free(&reply);
        return eb_complain_error(&err);
    }
    reply.text.keep = reply.thought.keep = o->session && o->chat;
    int code = eb_generate(a->s, g, &reply, &a->t);
    /* a wish that is refused before the first token leaves no output */
    if (code == EB_EXIT_OK || a->t.n_generated > 0) eb_reply_finish(&reply);
    if (code == EB_EXIT_OK && !eb_flush_stdout()) code = EB_EXIT_USAGE;
    if (code == EB_EXIT_OK && o->session) code = keep_session(a, &reply);
    eb_reply_free(&reply);
    return code;
}

static int answer(struct eb_session *s, struct eb_saved *file, const struct eb_options *o,
                  const struct eb_text *prompt) {
    struct answer a = {.s = s, .file = file, .o = o, .prompt = prompt};
    struct eb_generator g;
    int code = eb_generator_init(&g, o);
    if (code != EB_EXIT_OK) goto out;
    g.marks = o->session != NULL;
    if ((code = eb_session_open_engine(s, o)) != EB_EXIT_OK) goto out;
    if (o->session && (code = eb_saved_load(file, s, kept_talk(&a))) != EB_EXIT_OK) goto out;
    if ((code = queue(&a)) != EB_EXIT_OK) goto out;
    eb_interrupt_catch(true);
    uint32_t before = ebro_seq_length(s->seq);
    double begin = eb_seconds();
    if ((code = eb_session_evaluate(s, &eb_interrupted)) != EB_EXIT_OK) goto out;
    a.t.prompt_seconds = eb_seconds() - begin;
    a.t.n_prompt = ebro_seq_length(s->seq) - before;
    if (!eb_interrupted) code = reply_to(&a, &g);
    if (eb_interrupted) {
        a.t.remark = "interrupted";
        if (code == EB_EXIT_OK) code = EB_EXIT_INTERRUPTED;
    }
    if (code == EB_EXIT_OK || code == EB_EXIT_INTERRUPTED) eb_summary_print(s, &a.t);
out:
    eb_generator_free(&g);
    eb_conversation_free(&a.talk);
    free(a.t.made.ids);
    free(a.tokens.ids);
    return code;
}

int eb_cmd_run(int argc, char **argv) {
    const struct eb_arg_group groups[] = {
        {"Prompt", prompt_args, sizeof prompt_args / sizeof *prompt_args},
        eb_generation_args,
        eb_model_args,
        eb_trust_args,
        eb_log_args};
    struct eb_options o;
    int code =
        eb_command_options("run", usage, groups, sizeof groups / sizeof *groups, argc, argv, &o);
    if (code >= 0) return code;

    struct eb_saved file;
    struct eb_text prompt = {0};
    struct eb_session s = {0};
    /* all: a changed chat goes on from what it shares with the old one */
    if (o.session && o.keep_from == EB_FROM_DEFAULT) o.keep = 0;
    if ((code = eb_saved_open(&file, o.session)) != EB_EXIT_OK) goto out;
    if ((code = find_prompt(&o, &prompt)) != EB_EXIT_OK) goto out;
    if ((code = eb_session_open_model(&s, &o)) != EB_EXIT_OK) goto out;
    if (o.chat && (code = eb_session_check_think(&s, &o)) != EB_EXIT_OK) goto out;
    code = answer(&s, &file, &o, &prompt);
out:
    free(prompt.s);
    eb_session_close(&s);
    eb_saved_close(&file);
    return code;
}
