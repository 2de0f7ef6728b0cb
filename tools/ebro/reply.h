/* reply.h: from generated tokens to what a person reads. Hides control tokens, takes the channels
 * of a K3 message apart, and never writes part of a UTF-8 character before the rest is there.
 *
 * A K3 assistant message is made of channels, "<|open|>NAME<|sep|>TEXT<|close|>NAME<|sep|>", where
 * the marks are control tokens but NAME is ordinary text. The prompt has opened the first channel
 * already. Text of "response" goes to stdout, text of "think" to stderr; names and the text of any
 * other channel are dropped; the closing mark of "response" ends the reply. */
#ifndef EB_REPLY_H
#define EB_REPLY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

enum eb_reply_form {
    EB_REPLY_PLAIN,      /* all ordinary text goes to stdout */
    EB_REPLY_K3,         /* inside "response" */
    EB_REPLY_K3_THINKING /* inside "think" */
};

/* Bytes on their way to a file: holds back the start of a character. */
struct eb_utf8_out {
    FILE *f;
    unsigned char held[4];
    unsigned n_held, n_whole; /* n_whole: bytes that the held character will have */
    bool any;                 /* something was written */
};

enum eb_reply_channel { EB_CHANNEL_RESPONSE, EB_CHANNEL_THINK, EB_CHANNEL_OTHER };

struct eb_reply {
    bool channels; /* K3 */
    enum eb_reply_channel channel;
    bool in_name, opening; /* between a mark and <|sep|>; the mark was <|open|> */
    char name[32];
    size_t n_name;
    struct eb_utf8_out text, thought;
};

void eb_reply_start(struct eb_reply *r, enum eb_reply_form form);
/* One token: its bytes, or its name when it is special. Returns true when the reply is over. */
bool eb_reply_token(struct eb_reply *r, const char *bytes, size_t n, bool is_special);
/* Writes what is still held back, and ends each output with a newline: stdout always, stderr if
 * anything was written there. */
void eb_reply_finish(struct eb_reply *r);

#endif
