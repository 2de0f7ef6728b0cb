/* reply.h: from generated tokens to what a person reads. Hides control tokens, takes the channels
 * of a K3 message apart; never writes part of a UTF-8 character before the rest is there, nor
 * anything from a stop string on.
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

#include "ebro/ebro.h"

enum eb_reply_form {
    EB_REPLY_PLAIN,      /* all ordinary text goes to stdout */
    EB_REPLY_K3,         /* inside "response" */
    EB_REPLY_K3_THINKING /* inside "think" */
};

/* Bytes on their way to a file. */
struct eb_text_out {
    FILE *f;
    ebro_text_stream *stream;
    bool any;                  /* something was written */
    size_t n_taken, n_written; /* bytes */
    /* Set after eb_reply_start, where wanted: written around the text (NULL: nothing), and whether
     * what was written is kept. */
    const char *before, *after;
    bool keep;
    char *kept; /* NULL: nothing; freed by eb_reply_free */
    size_t n_kept, capacity;
};

enum eb_reply_channel { EB_CHANNEL_RESPONSE, EB_CHANNEL_THINK, EB_CHANNEL_OTHER };

struct eb_reply {
    bool channels; /* K3 */
    enum eb_reply_channel channel;
    bool in_name, opening; /* between a mark and <|sep|>; the mark was <|open|> */
    char name[32];
    size_t n_name;
    struct eb_text_out text, thought;
};

enum eb_reply_form eb_reply_form_of(const ebro_model_info *model, bool chat, bool think);

/* Stop strings are looked for in what goes to stdout. eb_reply_free may follow any time. */
int32_t eb_reply_start(struct eb_reply *r, ebro_runtime *runtime, enum eb_reply_form form,
                       const char *const *stops, size_t n_stops, ebro_error *err);
/* One token: its bytes, or its name when it is special. *over: the reply ends here. */
int32_t eb_reply_token(struct eb_reply *r, const char *bytes, size_t n, bool is_special, bool *over,
                       ebro_error *err);
/* Writes what is still held back, and ends each output with a newline: stdout always, stderr if
 * anything was written there. */
void eb_reply_finish(struct eb_reply *r);
/* Nothing of the text is held back: all that was taken for stdout was written. */
bool eb_reply_shows_all(const struct eb_reply *r);
void eb_reply_free(struct eb_reply *r); /* fine on a zeroed one */

#endif
