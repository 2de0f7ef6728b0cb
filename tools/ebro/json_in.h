/* json_in.h: JSON files, and their values in complaints. What they mean is the caller's business.
 */
#ifndef EB_JSON_IN_H
#define EB_JSON_IN_H

#include <jansson.h>

/* json_load_file, but where the file cannot be opened or read (why->line is -1 then) why->text is
 * the system's reason alone. "-": stdin. */
json_t *eb_json_read_file(const char *path, size_t flags, json_error_t *why);

/* A value as JSON in ASCII, for a complaint: what does not fit into `bytes` ends with "...". */
void eb_json_shorten(const json_t *value, char *out, size_t bytes);

#endif
