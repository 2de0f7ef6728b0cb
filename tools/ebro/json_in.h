/* json_in.h: JSON files. What is in them is the caller's business. */
#ifndef EB_JSON_IN_H
#define EB_JSON_IN_H

#include <jansson.h>

/* json_load_file, but where the file cannot be opened or read (why->line is -1 then) why->text is
 * the system's reason alone. "-": stdin. */
json_t *eb_json_read_file(const char *path, size_t flags, json_error_t *why);

#endif
