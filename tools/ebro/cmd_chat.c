/* cmd_chat.c: `ebro chat`: a conversation of many turns. Keeps it as messages, renders all of it
 * for each turn, and evaluates what the sequence has not read yet. */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "conversation.h"
#include "generate.h"
#include "interrupt.h"
#include "line.h"
#include "saved.h"
#include "settle.h"

static const char usage[] =
    "usage: ebro chat [-m MODEL] [--system TEXT] [--think] [options]\n"
    "\n"
    "A conversation: every line of stdin is a message, and the model's replies go to\n"
    "stdout as they are made. A line that ends with a backslash goes on in the next\n"
    "one. On a terminal lines can be edited, and the arrow keys bring back earlier\n"
    "ones. Ctrl-C stops a reply and keeps what was said; at the prompt it drops the\n"
    "line. Ctrl-D ends the conversation.\n"
    "\n"
    "Lines that start with / are commands; // starts a message with one /.\n"
    "  /help          this list\n"
    "  /clear         forget the conversation, but for the system message\n"
    "  /system TEXT   set the system message; without a text remove it\n"
    "  /undo          take back the last message and the reply to it\n"
    "  /regen         reply to the last message again, with another draw (see --temp)\n"
    "  /save FILE     write the conversation as JSON: an array of messages with role,\n"
    "                 content and, where the model thought, reasoning_content\n"
    "  /load FILE     go on with a conversation that was saved\n"
    "  /stats         tokens, memory and speed\n"
    "  /quit          the same as ctrl-D\n"
    "\n"
    "The model reads a conversation from left to right and cannot take anything back.\n"
    "After /undo, /regen and whenever the text so far reads as other tokens than\n"
    "before, it goes on from the last place that was kept, and a line says how many\n"
    "tokens are read again, and why.\n";

static const struct eb_arg chat_args[] = {
    {.name = "--system",
     .env = "EBRO_SYSTEM",
     .meta = "TEXT",
     .kind = EB_ARG_TEXT,
     .offset = offsetof(struct eb_options, system),
     .help = "a system message before the conversation"},
    {.name = "--think",
     .env = "EBRO_THINK",
     .kind = EB_ARG_FLAG,
     .offset = offsetof(struct eb_options, think),
     .help = "let the model think before it replies (Kimi K3):\nshown dim on a terminal, unless "
             "NO_COLOR is set, else\non stderr"},
    EB_SESSION_ARG("go on from this file, if it is there, and write the\nconversation to it after "
                   "each reply and command that\nchanges it, with all that the model has read; "
                   "only the\nsame model can read it"),
};

struct chat {
    struct eb_session s;
    struct eb_saved file; /* of --session */
    const struct eb_options *o;
    struct eb_generator g;
    struct eb_conversation talk;
    const char *rewound;         /* why the sequence will not go on; NULL: it should */
    bool changed;                /* since the session's file was written last */
    int saved;                   /* exit code of the last time it was written */
    bool dim;                    /* stdout is a terminal that may show it */
    struct eb_tally last;        /* of the last turn; its `made` is not kept */
    size_t n_last, n_last_known; /* tokens of the last prompt; of them, already read before it */
    size_t n_reread, n_read, n_generated;
};

/* A remark of the program, on stderr. */
static void note(const struct chat *c, const char *fmt, ...) EB_CLI_PRINTF(2, 3);
static void note(const struct chat *c, const char *fmt, ...) {
    va_list ap;
    bool dim = c->dim && isatty(STDERR_FILENO);
    if (dim) fputs("\033[2m", stderr);
    fputc('(', stderr);
    va_start(ap, fmt);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
    fputs(dim ? ")\033[0m\n" : ")\n", stderr);
}

static const char *plural(uint64_t n) {
    return n == 1 ? "" : "s";
}

static bool has_system(const struct chat *c) {
    return c->talk.n > 0 && strcmp(c->talk.v[0].role, "system") == 0;
}

/* How advice begins that ends with an option: what else makes room, where of the first n messages
 * there is something to take back. */
static const char *room(const struct chat *c, size_t n) {
    return n > (has_system(c) ? 1u : 0u) ? "/undo or /clear makes room, and so does"
                                         : "what makes room is";
}

/* ---- a turn ----------------------------------------------------------------------------- */

/* An empty sequence in place of the one that has read something. */
static int forget(struct chat *c) {
    c->rewound = NULL;
    return eb_session_restart(&c->s);
}

/* The last token is read again wherever a reply is made anew: that is not worth a word. */
static void tell_again(struct chat *c, const struct eb_settled *s) {
    const char *why = c->rewound         ? c->rewound
                      : c->o->stop.n > 0 ? "a stop text was taken back, or the last reply reads as "
                                           "other tokens than were generated"
                                         : "the last reply reads as other tokens than were "
                                           "generated";
    c->rewound = NULL;
    c->n_reread += s->n_again;
    if (s->n_again == 0 || (s->n_again == 1 && !s->reason)) return;
    note(c, "%zu of %u tokens %s read again: %s%s%s", s->n_again,
         ebro_seq_length(c->s.seq) + ebro_seq_pending(c->s.seq), s->n_again == 1 ? "is" : "are",
         why, s->reason ? "; " : "", s->reason ? s->reason : "");
}

/* Queues what the sequence has not taken of `want`, in a new sequence where it took something
 * else. *before: tokens of it that were there. */
static int catch_up(struct chat *c, const struct eb_tokens *want, size_t *before) {
    struct eb_settled settled;
    int code = eb_settle_on(&c->s, want, &settled);
    *before = settled.n_before;
    if (code == EB_EXIT_OK) tell_again(c, &settled);
    return code;
}

/* Generates the reply and keeps it as a message. */
static int speak(struct chat *c, struct eb_tally *t) {
    struct eb_reply r;
    ebro_error err = {0};
    enum eb_reply_form form = eb_reply_form_of(&c->s.model_info, true, c->o->think);
    if (eb_reply_start(&r, c->s.runtime, form, c->o->stop.items, c->o->stop.n, &err) != EBRO_OK) {
        eb_reply_free(&r);
        return eb_complain_error(&err);
    }
    r.text.keep = r.thought.keep = true;
    if (c->dim) {
        r.thought.f = stdout;
        r.thought.before = "\033[2m";
        r.thought.after = "\033[0m";
    }
    int code = eb_generate(&c->s, &c->g, &r, t);
    eb_reply_finish(&r);
    if (!eb_flush_stdout() && code == EB_EXIT_OK) code = EB_EXIT_USAGE;
    if (!eb_conversation_add(&c->talk, "assistant", r.text.kept ? r.text.kept : "", r.text.n_kept,
                             r.thought.kept, r.thought.n_kept)) {
        eb_complain("out of memory for the reply");
        if (code == EB_EXIT_OK) code = EB_EXIT_MEMORY;
    }
    eb_reply_free(&r);
    return code;
}

/* Takes back what was queued behind the first n tokens. */
static int take_back(struct chat *c, size_t n) {
    ebro_error err = {0};
    if (n == 0 || ebro_seq_rewind(c->s.seq, (uint32_t)n, &err) != EBRO_OK) return forget(c);
    return EB_EXIT_OK;
}

/* Evaluates what is queued behind the first `before` tokens. *whole: all of it; else it is taken
 * back, and a word was said. */
static int read_message(struct chat *c, size_t before, bool *whole) {
    uint32_t n = ebro_seq_pending(c->s.seq);
    int code = eb_session_evaluate(&c->s, &eb_interrupted);
    c->n_read += n - ebro_seq_pending(c->s.seq);
    *whole = code == EB_EXIT_OK && ebro_seq_pending(c->s.seq) == 0;
    if (*whole) return EB_EXIT_OK;
    if (code == EB_EXIT_NUMERIC) return forget(c);
    if (code == EB_EXIT_OK) note(c, "interrupted before the reply: the message is dropped");
    int back = take_back(c, before);
    return code == EB_EXIT_OK ? back : code;
}

/* Not enough memory was complained about, with the needed and the allowed bytes, and is no reason
 * to end: as long as there is a sequence. */
static int survive(const struct chat *c, int code, const char *what) {
    if (code != EB_EXIT_MEMORY || !c->s.seq) return code;
    note(c, "%s; %s a larger --memory", what, room(c, c->talk.n));
    return EB_EXIT_OK;
}

/* Reads the conversation, which ends with a user's message, and replies to it. What cannot be
 * answered, because it does not fit or was interrupted, is dropped and the program goes on. */
static int reply(struct chat *c) {
    struct eb_tokens want = {0};
    struct eb_tally t = {0};
    bool answered = false;
    size_t before = 0;
    int code = eb_tokens_of_chat(c->s.model, c->talk.v, c->talk.n, c->o->think, true, &want);
    if (code != EB_EXIT_OK) goto out;
    if (want.n >= c->s.n_ctx) {
        note(c,
             "context full: with this message the conversation has %zu tokens, and %u are all: "
             "%s a larger -c",
             want.n, c->s.n_ctx, room(c, c->talk.n - 1));
        goto out;
    }
    eb_interrupted = 0;
    double begin = eb_seconds();
    code = catch_up(c, &want, &before);
    t.n_prompt = ebro_seq_pending(c->s.seq);
    if (code == EB_EXIT_OK) code = read_message(c, before, &answered);
    if (!answered) goto out;
    t.prompt_seconds = eb_seconds() - begin;
    c->n_last = want.n;
    c->n_last_known = want.n - t.n_prompt;
    code = speak(c, &t);
    if (t.remark) note(c, "%s", t.remark);
    if (code == EB_EXIT_NUMERIC) code = forget(c); /* said already; the conversation is whole */
    code = survive(c, code, "the reply ends here");
    c->n_generated += t.n_generated;
    c->changed = true;
    c->last = t;
out:
    if (!answered) {
        eb_conversation_cut(&c->talk, c->talk.n - 1);
        c->rewound = "a message was dropped";
        code = survive(c, code, "the message is dropped");
    }
    eb_interrupted = 0;
    free(t.made.ids);
    c->last.made = (struct eb_tokens){0};
    free(want.ids);
    return code;
}

static int say(struct chat *c, const char *text, size_t n) {
    if (!eb_conversation_add(&c->talk, "user", text, n, NULL, 0)) {
        eb_complain("out of memory for a message of %zu bytes", n);
        return EB_EXIT_MEMORY;
    }
    return reply(c);
}

/* ---- commands --------------------------------------------------------------------------- */

enum { QUIT = -1 };

/* Messages before the last one of the user; SIZE_MAX: there is none. */
static size_t last_question(const struct eb_conversation *t) {
    for (size_t i = t->n; i > 0; i--)
        if (strcmp(t->v[i - 1].role, "user") == 0) return i - 1;
    return SIZE_MAX;
}

static int do_help(struct chat *c, const char *rest) {
    (void)c, (void)rest;
    const char *list = strstr(usage, "  /help");
    fwrite(list, 1, (size_t)(strstr(list, "\n\n") - list) + 1, stderr);
    return EB_EXIT_OK;
}

static int do_clear(struct chat *c, const char *rest) {
    (void)rest;
    bool system = has_system(c);
    eb_conversation_cut(&c->talk, system ? 1 : 0);
    note(c, "the conversation is forgotten%s", system ? ", the system message remains" : "");
    c->changed = true;
    return forget(c);
}

static int do_system(struct chat *c, const char *rest) {
    if (!*rest && !has_system(c)) {
        note(c, "there is no system message to remove");
        return EB_EXIT_OK;
    }
    if (!eb_conversation_set_system(&c->talk, rest)) {
        eb_complain("out of memory for the system message");
        return EB_EXIT_MEMORY;
    }
    note(c, "the system message is %s", *rest ? "set" : "removed");
    c->rewound = "the system message changed";
    c->changed = true;
    return EB_EXIT_OK;
}

static int do_undo(struct chat *c, const char *rest) {
    (void)rest;
    size_t at = last_question(&c->talk);
    if (at == SIZE_MAX) {
        note(c, "there is nothing to undo");
        return EB_EXIT_OK;
    }
    bool answered = c->talk.n > at + 1;
    eb_conversation_cut(&c->talk, at);
    note(c, "the last message%s taken back, %zu message%s remain%s",
         answered ? " and the reply to it are" : " is", at, plural(at), at == 1 ? "s" : "");
    c->rewound = "a turn was taken back";
    c->changed = true;
    return EB_EXIT_OK;
}

static int do_regen(struct chat *c, const char *rest) {
    (void)rest;
    size_t at = last_question(&c->talk);
    if (at == SIZE_MAX) {
        note(c, "there is nothing to reply to");
        return EB_EXIT_OK;
    }
    eb_conversation_cut(&c->talk, at + 1);
    c->rewound = "the last reply was taken back";
    c->changed = true;
    c->g.sampling.seed++; /* the draws depend on it and on the position alone */
    return reply(c);
}

static int do_save(struct chat *c, const char *rest) {
    char text[1024];
    if (!*rest)
        note(c, "/save needs the name of a file");
    else if (eb_conversation_save(&c->talk, rest, text, sizeof text))
        note(c, "%zu message%s written to %s", c->talk.n, plural(c->talk.n), rest);
    else
        eb_complain("%s", text);
    return EB_EXIT_OK;
}

static int do_load(struct chat *c, const char *rest) {
    char text[1024];
    if (!*rest) {
        note(c, "/load needs the name of a file");
    } else if (eb_conversation_load(&c->talk, rest, text, sizeof text)) {
        note(c, "%zu message%s read from %s", c->talk.n, plural(c->talk.n), rest);
        c->changed = true;
        return forget(c);
    } else {
        eb_complain("%s", text);
    }
    return EB_EXIT_OK;
}

static double mib(uint64_t bytes) {
    return (double)bytes / (1 << 20);
}

static int do_stats(struct chat *c, const char *rest) {
    (void)rest;
    uint32_t held = ebro_seq_length(c->s.seq) + ebro_seq_pending(c->s.seq);
    note(c, "%zu message%s, %u of %u tokens of context", c->talk.n, plural(c->talk.n), held,
         c->s.n_ctx);
    note(c, "since the start: %zu token%s read, %zu of them again; %zu generated", c->n_read,
         plural(c->n_read), c->n_reread, c->n_generated);
    if (c->n_last > 0)
        note(c, "of the last prompt's %zu tokens %zu were already read", c->n_last,
             c->n_last_known);
    ebro_memory m = {.size = sizeof m};
    ebro_engine_get_memory(c->s.engine, &m);
    note(
        c,
        "memory: %.1f MiB for this conversation, %.1f MiB more for %u snapshot%s; %.1f MiB allowed",
        mib(m.live_page_bytes + m.live_state_bytes), mib(m.kept_page_bytes + m.kept_state_bytes),
        m.n_snapshots, plural(m.n_snapshots), mib(m.budget_bytes));
    if (m.host_budget_bytes > 0)
        note(c,
             "memory of the host: %.1f MiB for copies of snapshots; %.1f MiB allowed; %" PRIu64
             " went there, %" PRIu64 " came back",
             mib(m.host_bytes), mib(m.host_budget_bytes), m.host_saves, m.host_loads);
    note(c,
         "snapshots since the start: %" PRIu64 " taken, %" PRIu64 " given up, %" PRIu64
         " token%s not read again thanks to them",
         m.snapshots_kept, m.evictions, m.reused_tokens, plural(m.reused_tokens));
    if (c->last.n_generated > 0) {
        fputs("last reply: ", stderr);
        eb_summary_print(&c->s, &c->last);
    }
    return EB_EXIT_OK;
}

static int do_quit(struct chat *c, const char *rest) {
    (void)c, (void)rest;
    return QUIT;
}

static int command(struct chat *c, const char *line) {
    static const struct {
        const char *name;
        int (*run)(struct chat *c, const char *rest);
        bool takes_text;
    } all[] = {{"help", do_help, false}, {"clear", do_clear, false}, {"system", do_system, true},
               {"undo", do_undo, false}, {"regen", do_regen, false}, {"save", do_save, true},
               {"load", do_load, true},  {"stats", do_stats, false}, {"quit", do_quit, false}};
    size_t n = strcspn(line, " \t\n");
    const char *rest = line + n + strspn(line + n, " \t\n");
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (strlen(all[i].name) != n || strncmp(all[i].name, line, n) != 0) continue;
        if (all[i].takes_text || !*rest) return all[i].run(c, rest);
        note(c, "/%s takes no argument", all[i].name);
        return EB_EXIT_OK;
    }
    note(c, "no command /%.*s: /help lists them, and // starts a message with one /", (int)n, line);
    return EB_EXIT_OK;
}

/* ---- the conversation ------------------------------------------------------------------- */

static int take_line(struct chat *c, const char *line, size_t n) {
    if (line[strspn(line, " \t\n")] == '\0' && strlen(line) == n) return EB_EXIT_OK;
    if (line[0] == '/' && line[1] != '/') return command(c, line + 1);
    return line[0] == '/' ? say(c, line + 1, n - 1) : say(c, line, n);
}

/* What was taken back must not be in the session's file, and what is in it must be read: a state
 * cannot go back later either. Ctrl-C leaves the rest unread. */
static int settle(struct chat *c) {
    struct eb_settled settled;
    int code = eb_settle_chat(&c->s, c->talk.v, c->talk.n, c->o->think, &settled);
    if (settled.n_too_long > 0)
        note(c,
             "the conversation has %zu tokens, and %u are all: its messages are stored, but not "
             "what was read; %s a larger -c",
             settled.n_too_long, c->s.n_ctx, room(c, c->talk.n));
    if (code != EB_EXIT_OK || !settled.anew) return code;
    tell_again(c, &settled);
    eb_interrupted = 0;
    uint32_t n = ebro_seq_pending(c->s.seq);
    code = eb_session_evaluate(&c->s, &eb_interrupted);
    c->n_read += n - ebro_seq_pending(c->s.seq);
    eb_interrupted = 0;
    return code == EB_EXIT_NUMERIC ? forget(c) : code;
}

/* Writes what changed to the session's file. A full disk is complained about and ends no
 * conversation. */
static int keep(struct chat *c) {
    if (!c->o->session || !c->changed) return EB_EXIT_OK;
    int code = survive(c, settle(c), "the conversation is stored, but will be read again");
    if (code != EB_EXIT_OK) return code;
    c->saved = eb_saved_save(&c->file, &c->s, &c->talk);
    c->changed = false;
    return EB_EXIT_OK;
}

static int converse(struct chat *c) {
    struct eb_lines *lines = eb_lines_open();
    if (!lines) {
        eb_complain("out of memory for reading lines");
        return EB_EXIT_MEMORY;
    }
    int code = EB_EXIT_OK;
    while (code == EB_EXIT_OK) {
        char *line = NULL;
        size_t n = 0;
        enum eb_line_result result = eb_lines_read(lines, &line, &n);
        if (result == EB_LINE_END) break;
        if (result == EB_LINE_INTERRUPTED) continue;
        if (result == EB_LINE_FAILED) {
            code = EB_EXIT_USAGE;
            eb_complain("cannot read standard input: %s", strerror(errno));
            break;
        }
        code = take_line(c, line, n);
        free(line);
        if (code == EB_EXIT_OK) code = keep(c);
    }
    eb_lines_close(&lines);
    return code == QUIT || code == EB_EXIT_OK ? c->saved : code;
}

/* Goes on from the session's file, where there is one. */
static int resume(struct chat *c) {
    uint32_t n = 0;
    int code = eb_saved_load(&c->file, &c->s, &c->talk);
    ebro_seq_tokens(c->s.seq, &n);
    if (code != EB_EXIT_OK || n == 0) return code;
    note(c, "session %s: %zu message%s, %u of %u tokens reused", c->o->session, c->talk.n,
         plural(c->talk.n), ebro_seq_length(c->s.seq), n);
    c->rewound = c->o->system
                     ? "the conversation begins otherwise than the stored one (--system or --think "
                       "changed?)"
                     : "the conversation is not the stored one (a turn taken back, or --think "
                       "changed?)";
    return code;
}

static bool may_be_dim(void) {
    const char *no_color = getenv("NO_COLOR"), *term = getenv("TERM");
    return isatty(STDOUT_FILENO) && !(no_color && *no_color) &&
           !(term && strcmp(term, "dumb") == 0);
}

int eb_cmd_chat(int argc, char **argv) {
    const struct eb_arg_group groups[] = {
        {"Conversation", chat_args, sizeof chat_args / sizeof *chat_args},
        eb_generation_args,
        eb_model_args,
        eb_reuse_args,
        eb_trust_args,
        eb_log_args};
    struct eb_options o;
    int code =
        eb_command_options("chat", usage, groups, sizeof groups / sizeof *groups, argc, argv, &o);
    if (code >= 0) return code;
    o.chat = true;
    if (o.n_predict_from == EB_FROM_DEFAULT) o.n_predict = UINT64_MAX;

    struct chat c = {.o = &o, .dim = may_be_dim()};
    if ((code = eb_saved_open(&c.file, o.session)) != EB_EXIT_OK) goto out;
    if ((code = eb_generator_init(&c.g, &o)) != EB_EXIT_OK) goto out;
    if ((code = eb_session_open_model(&c.s, &o)) != EB_EXIT_OK) goto out;
    if ((code = eb_session_check_think(&c.s, &o)) != EB_EXIT_OK) goto out;
    /* all: a changed conversation goes on from what it shares with the old one */
    if (o.keep_from == EB_FROM_DEFAULT) o.keep = 0;
    if ((code = eb_session_open_engine(&c.s, &o)) != EB_EXIT_OK) goto out;
    if (o.session && (code = resume(&c)) != EB_EXIT_OK) goto out;
    if (o.system && !eb_conversation_set_system(&c.talk, o.system)) {
        eb_complain("out of memory for the system message");
        code = EB_EXIT_MEMORY;
        goto out;
    }
    if (isatty(STDIN_FILENO)) note(&c, "/help lists the commands, ctrl-D ends the conversation");
    eb_interrupt_catch(false);
    code = converse(&c);
out:
    eb_generator_free(&c.g);
    eb_conversation_free(&c.talk);
    eb_session_close(&c.s);
    eb_saved_close(&c.file);
    return code;
}
