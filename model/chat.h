/* chat.h: renders conversations into token ids. Control tokens come from the format alone; message
 * text is always ordinary text, whatever it looks like. */
#ifndef EB_CHAT_H
#define EB_CHAT_H

#include "model/tokenizer.h"

enum eb_chat_family {
    EB_CHAT_KIMI_LINEAR, /* <|im_user|>user<|im_middle|>TEXT<|im_end|> */
    EB_CHAT_KIMI_K3      /* <|open|>message role="user"<|sep|>TEXT<|close|>message<|sep|>... */
};

/* `options` may be NULL. Unknown role, NULL content: INVALID with the message's index. A control
 * token that the vocabulary lacks: FORMAT, named. */
int32_t eb_chat_render(const struct eb_tokenizer *t, enum eb_chat_family family,
                       const ebro_chat_message *messages, size_t n_messages,
                       const ebro_chat_options *options, struct eb_ids *out, ebro_error *err);
/* The same for a conversation as JSON (ebro_chat_tokenize_json). What is wrong with it is INVALID
 * or UNSUPPORTED with its place. A control token of tools is wanted only where there are tools. */
int32_t eb_chat_render_json(const struct eb_tokenizer *t, enum eb_chat_family family,
                            const char *json, size_t bytes, const ebro_chat_options *options,
                            struct eb_ids *out, ebro_error *err);

#endif
