/* conversation.h: the messages of a chat, in memory and as a JSON file. Knows nothing of tokens. */
#ifndef EB_CONVERSATION_H
#define EB_CONVERSATION_H

#include <stdbool.h>
#include <stddef.h>

#include "ebro/ebro.h"

/* Messages own their texts, which are UTF-8 without NUL bytes. A system message, if any, is the
 * first. Zero it before first use. */
struct eb_conversation {
    ebro_chat_message *v;
    size_t n, capacity;
};

void eb_conversation_free(struct eb_conversation *c); /* fine on a zeroed one; zeroes it */

/* `role` is constant. Bytes that are no UTF-8 become U+FFFD; reasoning may be NULL. False: out of
 * memory, and nothing has changed. */
bool eb_conversation_add(struct eb_conversation *c, const char *role, const char *content,
                         size_t content_bytes, const char *reasoning, size_t reasoning_bytes);
/* Drops messages until n are left. */
void eb_conversation_cut(struct eb_conversation *c, size_t n);
/* The system message: replaced, or with an empty text removed. False: out of memory. */
bool eb_conversation_set_system(struct eb_conversation *c, const char *text);
/* Role of the last message; "" when there is none. */
const char *eb_conversation_last(const struct eb_conversation *c);

/* A JSON array of objects: role ("system", "user", "assistant"), content, and for assistants
 * reasoning_content where there is some. Saving writes the file whole or not at all; loading
 * replaces *c, or leaves it as it is. False: `text` says what went wrong. */
bool eb_conversation_save(const struct eb_conversation *c, const char *path, char *text,
                          size_t text_bytes);
bool eb_conversation_load(struct eb_conversation *c, const char *path, char *text,
                          size_t text_bytes);
/* The same array as bytes (free them): NULL when out of memory. And back; `what` names them. */
char *eb_conversation_dump(const struct eb_conversation *c);
bool eb_conversation_parse(struct eb_conversation *c, const char *what, const void *bytes, size_t n,
                           char *text, size_t text_bytes);

#endif
