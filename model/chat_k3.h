/* chat_k3.h: tags of Kimi K3's format, between chat_k3.c and chat_k3_args.c. */
#ifndef EB_CHAT_K3_H
#define EB_CHAT_K3_H

#include <string.h>

#include "model/chat_form.h"

struct eb_k3 {
    struct eb_chat_writer *w;
    const int32_t *control;
};

/* <|open|>TAG, then attributes, then eb_k3_end: <|sep|>. */
void eb_k3_begin(struct eb_k3 *k, const char *tag);
void eb_k3_attribute(struct eb_k3 *k, const char *key, struct eb_span value);
void eb_k3_end(struct eb_k3 *k);
void eb_k3_close(struct eb_k3 *k, const char *tag);

/* The arguments of a call: one typed block each where they are a JSON object, one block of raw text
 * where they are no JSON. INVALID for other JSON, naming messages[message].tool_calls[call]. */
void eb_k3_arguments(struct eb_k3 *k, struct eb_span arguments, size_t message, size_t call);

#endif
