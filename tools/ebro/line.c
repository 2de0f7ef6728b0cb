/* line.c: see line.h. */
#define _XOPEN_SOURCE 700 /* getline */

#include "line.h"

#include <errno.h>
#include <locale.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

#include "interrupt.h"

#ifdef EBRO_HAVE_LIBEDIT
#include <histedit.h>
#endif

static const char first_prompt[] = "> ", more_prompt[] = "... ";

struct eb_lines {
    bool terminal;
    FILE *screen;       /* prompts go here */
    const char *prompt; /* of the line that is read now */
    char *plain;        /* getline's */
    size_t plain_bytes;
    bool interrupted;
#ifdef EBRO_HAVE_LIBEDIT
    EditLine *editor;
    History *history;
#endif
};

#ifdef EBRO_HAVE_LIBEDIT

static char *editor_prompt(EditLine *editor) {
    struct eb_lines *l = NULL;
    static char text[16];
    el_get(editor, EL_CLIENTDATA, &l);
    snprintf(text, sizeof text, "%s", l->prompt);
    return text;
}

/* Ctrl-C is a key here: a signal would leave libedit waiting for the next one. */
static unsigned char on_ctrl_c(EditLine *editor, int key) {
    struct eb_lines *l = NULL;
    (void)key;
    el_get(editor, EL_CLIENTDATA, &l);
    l->interrupted = true;
    return CC_EOF;
}

static bool open_editor(struct eb_lines *l) {
    HistEvent event;
    /* the editor works on characters: it must know what a character is */
    setlocale(LC_CTYPE, "");
    if (MB_CUR_MAX == 1) setlocale(LC_CTYPE, "C.UTF-8");
    l->history = history_init();
    l->editor = el_init("ebro", stdin, l->screen, stderr);
    if (!l->history || !l->editor) return false;
    history(l->history, &event, H_SETSIZE, 1000);
    history(l->history, &event, H_SETUNIQUE, 1);
    el_set(l->editor, EL_CLIENTDATA, l);
    el_set(l->editor, EL_PROMPT, editor_prompt);
    el_set(l->editor, EL_EDITOR, "emacs");
    el_set(l->editor, EL_HIST, history, l->history);
    el_set(l->editor, EL_ADDFN, "ebro-ctrl-c", "drop the line", on_ctrl_c);
    el_set(l->editor, EL_SETTY, "-d", "-isig", NULL);
    el_set(l->editor, EL_BIND, "^C", "ebro-ctrl-c", NULL);
    return true;
}

static void close_editor(struct eb_lines *l) {
    if (l->editor) el_end(l->editor);
    if (l->history) history_end(l->history);
}

/* libedit shows the prompt before it takes the terminal over. In between a ctrl-C would be a signal
 * and a ctrl-D the end of a line that libedit never sees: both would be lost. So all keys are plain
 * bytes before the prompt is there. False: this is no terminal after all. */
static bool take_terminal(struct termios *was) {
    if (tcgetattr(STDIN_FILENO, was) != 0) return false;
    struct termios t = *was;
    t.c_lflag &= ~(tcflag_t)(ISIG | ICANON | ECHO);
    t.c_cc[VMIN] = 1;
    t.c_cc[VTIME] = 0;
    return tcsetattr(STDIN_FILENO, TCSANOW, &t) == 0;
}

static enum eb_line_result read_edited(struct eb_lines *l, const char **line, size_t *n) {
    int count = 0;
    l->interrupted = false;
    errno = 0;
    struct termios was;
    bool taken = take_terminal(&was);
    *line = el_gets(l->editor, &count);
    if (taken) tcsetattr(STDIN_FILENO, TCSANOW, &was);
    if (l->interrupted) {
        fputs("^C\n", l->screen);
        fflush(l->screen);
        return EB_LINE_INTERRUPTED;
    }
    if (!*line || count <= 0) {
        if (count < 0) return EB_LINE_FAILED;
        fputc('\n', l->screen);
        fflush(l->screen);
        return EB_LINE_END;
    }
    *n = (size_t)count;
    return EB_LINE_OK;
}

static void remember(struct eb_lines *l, const char *line) {
    HistEvent event;
    if (l->editor && line[strspn(line, " \t\n")]) history(l->history, &event, H_ENTER, line);
}

#endif

static enum eb_line_result read_plain(struct eb_lines *l, const char **line, size_t *n) {
    if (l->terminal) {
        fputs(l->prompt, l->screen);
        fflush(l->screen);
    }
    errno = 0;
    ssize_t got = getline(&l->plain, &l->plain_bytes, stdin);
    if (got < 0 && eb_interrupted) {
        eb_interrupted = 0;
        clearerr(stdin);
        if (l->terminal) fputc('\n', l->screen);
        return EB_LINE_INTERRUPTED;
    }
    if (got < 0) {
        if (!feof(stdin)) return EB_LINE_FAILED;
        if (l->terminal) fputc('\n', l->screen);
        return EB_LINE_END;
    }
    *line = l->plain;
    *n = (size_t)got;
    return EB_LINE_OK;
}

static enum eb_line_result read_one(struct eb_lines *l, const char **line, size_t *n) {
#ifdef EBRO_HAVE_LIBEDIT
    if (l->editor) {
        enum eb_line_result result = read_edited(l, line, n);
        if (result == EB_LINE_OK) remember(l, *line);
        return result;
    }
#endif
    return read_plain(l, line, n);
}

struct eb_lines *eb_lines_open(void) {
    struct eb_lines *l = calloc(1, sizeof *l);
    if (!l) return NULL;
    l->terminal = isatty(STDIN_FILENO) != 0;
    l->screen = isatty(STDOUT_FILENO) ? stdout : stderr;
#ifdef EBRO_HAVE_LIBEDIT
    if (l->terminal && !open_editor(l)) eb_lines_close(&l);
#endif
    return l;
}

void eb_lines_close(struct eb_lines **lines) {
    struct eb_lines *l = *lines;
    *lines = NULL;
    if (!l) return;
#ifdef EBRO_HAVE_LIBEDIT
    close_editor(l);
#endif
    free(l->plain);
    free(l);
}

enum eb_line_result eb_lines_read(struct eb_lines *l, char **out, size_t *n) {
    char *text = NULL;
    *n = 0;
    l->prompt = first_prompt;
    for (;;) {
        const char *line = NULL;
        size_t bytes = 0;
        enum eb_line_result result = read_one(l, &line, &bytes);
        /* the input may end behind a backslash: what is there counts */
        if (result == EB_LINE_END && text) break;
        if (result != EB_LINE_OK) {
            free(text);
            return result;
        }
        if (bytes > 0 && line[bytes - 1] == '\n') bytes--;
        char *grown = realloc(text, *n + bytes + 2);
        if (!grown) {
            free(text);
            return EB_LINE_FAILED;
        }
        text = grown;
        memcpy(text + *n, line, bytes);
        *n += bytes;
        if (bytes == 0 || line[bytes - 1] != '\\') break;
        text[*n - 1] = '\n';
        l->prompt = more_prompt;
    }
    text[*n] = '\0';
    *out = text;
    return EB_LINE_OK;
}
