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

/* Complains where the file could not be written in the end: a usage error, before anything long
 * begins. Returns an exit code. */
int eb_saved_check(const char *path);
bool eb_saved_is_there(const char *path);
/* Where the file exists: its sequence in place of s->seq, and its messages into *talk (NULL: it
 * must have none; else it must have some). Where not: nothing. The engine is open. Returns an exit
 * code and has complained unless it is EB_EXIT_OK. */
int eb_saved_load(struct eb_session *s, const char *path, struct eb_conversation *talk);
/* Writes s->seq and the messages (NULL: none). A failure leaves the old file. */
int eb_saved_save(const struct eb_session *s, const char *path, const struct eb_conversation *talk);

#endif
