/* saved.h: the file of --session: a stored sequence and, of a chat, its messages beside it. */
#ifndef EB_SAVED_H
#define EB_SAVED_H

#include "common.h"
#include "conversation.h"

#define EB_SESSION_ARG(text)                                                             \
    {                                                                                    \
        .name = "--session", .env = "EBRO_SESSION", .meta = "FILE", .kind = EB_ARG_TEXT, \
        .offset = offsetof(struct eb_options, session), .help = text                     \
    }

/* The file while a command goes on from it. */
struct eb_saved {
    const char *path; /* borrowed; NULL: none */
    int fd;           /* the file as it was read or written last; -1: it was not there */
};

bool eb_saved_is_there(const char *path);
/* Complains where the file could not be written in the end, or where another ebro has it: before
 * anything long begins. Returns an exit code. No other one gets it until eb_saved_close, as far as
 * its file system knows locks (flock). path NULL: there is none, and nothing is done. */
int eb_saved_open(struct eb_saved *f, const char *path);
void eb_saved_close(struct eb_saved *f); /* fine after a failed open */
/* Where the file exists: its sequence in place of s->seq, and its messages into *talk (NULL: it
 * must have none; else it must have some). Where not: nothing. The engine is open. Returns an exit
 * code and has complained unless it is EB_EXIT_OK. */
int eb_saved_load(const struct eb_saved *f, struct eb_session *s, struct eb_conversation *talk);
/* Writes s->seq and the messages (NULL: none). A failure leaves the old file, and so does a file
 * that another program has put there meanwhile, which is one. */
int eb_saved_save(struct eb_saved *f, const struct eb_session *s,
                  const struct eb_conversation *talk);

#endif
