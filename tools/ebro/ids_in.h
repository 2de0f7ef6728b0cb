/* ids_in.h: token ids that a person or a program wrote. */
#ifndef EB_IDS_IN_H
#define EB_IDS_IN_H

#include "common.h"

/* A file with a JSON array of ids of a vocabulary of `vocab`; "-" is stdin. Returns an exit code
 * and has complained unless it is EB_EXIT_OK; free out->ids either way. */
int eb_ids_read_file(const char *path, uint32_t vocab, struct eb_tokens *out);
/* The same from a text: a JSON array, or whole numbers between blanks or commas, maybe none. `what`
 * names it in complaints. */
int eb_ids_read_text(const char *what, const char *text, uint32_t vocab, struct eb_tokens *out);

#endif
