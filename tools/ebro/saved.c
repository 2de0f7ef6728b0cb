/* saved.c: see saved.h. Not its job: when a session is loaded and saved (cmd_run.c, cmd_chat.c).
 *
 * A save puts another file under the name. So the lock is taken anew after each one, and before
 * each one the file there must still be the one that is held open: whoever slips in between goes on
 * from what was saved last, and the one who was there before is told. */
#include "saved.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

bool eb_saved_is_there(const char *path) {
    struct stat st;
    /* a link that leads nowhere is there: loading it tells */
    return lstat(path, &st) == 0;
}

/* Complains where the file could not be written in the end. */
static int check(const char *path) {
    struct stat st;
    char folder[4096] = ".";
    const char *slash = strrchr(path, '/');
    size_t n = slash ? (size_t)(slash - path) : 0;
    if (slash && n < sizeof folder - 1) snprintf(folder, sizeof folder, "%.*s", (int)n + !n, path);
    if (!*path) {
        eb_complain("--session needs the name of a file");
    } else if (slash && n >= sizeof folder - 1) {
        eb_complain("--session: a path of %zu bytes is too long", strlen(path));
    } else if (stat(path, &st) == 0 && S_ISDIR(st.st_mode)) {
        eb_complain("--session: %s is a folder, it must be a file", path);
    } else if (stat(path, &st) == 0 && !S_ISREG(st.st_mode)) {
        eb_complain("--session: %s is a device, a pipe or a socket, it must be a file", path);
    } else if (lstat(path, &st) != 0 && errno == ENAMETOOLONG) {
        eb_complain("--session: cannot write %s: %s", path, strerror(errno));
    } else if (stat(folder, &st) != 0) {
        eb_complain("--session: cannot write %s: %s: %s", path, folder, strerror(errno));
    } else if (!S_ISDIR(st.st_mode)) {
        eb_complain("--session: cannot write %s: %s is no folder", path, folder);
    } else if (access(folder, W_OK | X_OK) != 0) {
        eb_complain("--session: cannot write %s: folder %s: %s", path, folder, strerror(errno));
    } else {
        return EB_EXIT_OK;
    }
    return EB_EXIT_USAGE;
}

static int take_messages(const struct eb_session *s, const char *path,
                         struct eb_conversation *talk) {
    char text[1024], what[512];
    size_t n = 0;
    const void *bytes = ebro_seq_application(s->seq, &n);
    if (!talk && n == 0) return EB_EXIT_OK;
    if (!talk || n == 0) {
        eb_complain("%s holds %s", path,
                    n == 0 ? "plain text: `ebro run` without --chat goes on with it"
                           : "a chat: `ebro chat` and `ebro run --chat` go on with it");
        return EB_EXIT_USAGE;
    }
    snprintf(what, sizeof what, "the messages in %s", path);
    if (eb_conversation_parse(talk, what, bytes, n, text, sizeof text)) return EB_EXIT_OK;
    eb_complain("%s", text);
    return EB_EXIT_USAGE;
}

/* In words of the option. The cause alone: what was being done is plain. */
static int complain(const struct eb_session *s, const char *path, const ebro_error *err) {
    const char *more = strstr(err->text, "; while ");
    int n = more ? (int)(more - err->text) : (int)strlen(err->text);
    switch (err->status) {
        case EBRO_FORMAT:
            eb_complain("--session: %s is no session, or a damaged one (%.*s)", path, n, err->text);
            return EB_EXIT_USAGE; /* it says nothing about the model */
        case EBRO_UNSUPPORTED:
            eb_complain("--session: %s cannot be gone on from: %.*s", path, n, err->text);
            return EB_EXIT_MODEL;
        case EBRO_INVALID:
            eb_complain(
                "--session: %s cannot be gone on from: %.*s (-c sets the context, -ctk the "
                "cache type)",
                path, n, err->text);
            return EB_EXIT_USAGE;
        case EBRO_IO:
            eb_complain("--session: %.*s", n, err->text);
            return EB_EXIT_USAGE;
        default:
            return eb_session_complain(s, err);
    }
}

/* Holds the file that is there now. False: another one has its lock. */
static bool hold(struct eb_saved *f) {
    eb_saved_close(f);
    f->fd = open(f->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    return f->fd < 0 || flock(f->fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK;
}

int eb_saved_open(struct eb_saved *f, const char *path) {
    *f = (struct eb_saved){.path = path, .fd = -1};
    if (!path) return EB_EXIT_OK;
    int code = check(path);
    if (code != EB_EXIT_OK || hold(f)) return code;
    eb_saved_close(f);
    eb_complain("--session: another ebro is using %s: wait for its end, or take another file",
                path);
    return EB_EXIT_USAGE;
}

void eb_saved_close(struct eb_saved *f) {
    if (f->fd >= 0) close(f->fd);
    f->fd = -1;
}

int eb_saved_load(const struct eb_saved *f, struct eb_session *s, struct eb_conversation *talk) {
    ebro_error err = {0};
    if (!eb_saved_is_there(f->path)) return EB_EXIT_OK;
    ebro_seq_destroy(&s->seq);
    if (ebro_seq_load(s->engine, f->path, &s->seq, NULL, &err) != EBRO_OK)
        return complain(s, f->path, &err);
    return take_messages(s, f->path, talk);
}

/* Is what the name stands for what this program has read or written last? One that was deleted is
 * no loss. */
static bool is_ours(const struct eb_saved *f) {
    struct stat ours, there;
    if (stat(f->path, &there) != 0) return true;
    return f->fd >= 0 && fstat(f->fd, &ours) == 0 && ours.st_dev == there.st_dev &&
           ours.st_ino == there.st_ino;
}

int eb_saved_save(struct eb_saved *f, const struct eb_session *s,
                  const struct eb_conversation *talk) {
    ebro_error err = {0};
    if (!is_ours(f)) {
        eb_complain(
            "--session: another program has written %s meanwhile: it is left as it is, and "
            "nothing is stored here",
            f->path);
        return EB_EXIT_USAGE;
    }
    ebro_export_options options = {.size = sizeof options};
    char *messages = talk ? eb_conversation_dump(talk) : NULL;
    if (talk && !messages) {
        eb_complain("out of memory for %zu messages", talk->n);
        return EB_EXIT_MEMORY;
    }
    options.application = messages;
    options.application_bytes = messages ? strlen(messages) : 0;
    int32_t st = ebro_seq_save(s->seq, f->path, &options, NULL, &err);
    free(messages);
    if (st == EBRO_INVALID) {
        eb_complain("--session: %s", err.text);
        return EB_EXIT_USAGE;
    }
    if (st != EBRO_OK) return complain(s, f->path, &err);
    hold(f);
    return EB_EXIT_OK;
}
