/* json.h: small JSON documents (configurations) with typed getters. Every error names the file, the
 * full key, what was wanted and what was found. Text is bounded in size, depth and number of values
 * before it is parsed; a key that stands twice in one object is refused. The parser allocates from
 * the C library, not through the runtime's hook: its tree lives only while a model is opened.
 * Large tables (tensor headers, shard indices) are read by scan.h instead. */
#ifndef EB_JSON_H
#define EB_JSON_H

#include <stdbool.h>

#include "base/file.h"

/* ---- files ------------------------------------------------------------------------------ */

enum {
    EB_JSON_MAX_BYTES = 8 << 20,
    EB_JSON_MAX_DEPTH = 32,
    EB_JSON_MAX_VALUES = 100000 /* also bounds the memory of the tree: about 16 MiB */
};

struct eb_json {
    const char *file; /* borrowed; must outlive the document and every node */
    void *root;
};

/* One object of a document; valid while the document is. */
struct eb_json_node {
    const char *file;
    char path[96];     /* "text_config.linear_attn_config."; empty at the root */
    const void *value; /* NULL: absent */
};

/* The root must be an object. `out` needs no initial value; on error it is closed. */
int32_t eb_json_open(const char *file, const struct eb_bytes *text, struct eb_json *out,
                     ebro_error *err);
void eb_json_close(struct eb_json *doc); /* fine on a zeroed or closed one */
struct eb_json_node eb_json_root(const struct eb_json *doc);

/* True where the key is there and is not null. */
bool eb_json_has(const struct eb_json_node *n, const char *key);
/* The plain getters want the key; the `_or` ones take `absent` where it is missing or null. A value
 * of another type, or outside [lo, hi], is FORMAT. `*out` is written on success alone. */
int32_t eb_json_object(const struct eb_json_node *n, const char *key, struct eb_json_node *out,
                       ebro_error *err);
/* Missing or null: OK with out->value NULL. */
int32_t eb_json_object_opt(const struct eb_json_node *n, const char *key, struct eb_json_node *out,
                           ebro_error *err);
int32_t eb_json_u32(const struct eb_json_node *n, const char *key, uint32_t lo, uint32_t hi,
                    uint32_t *out, ebro_error *err);
int32_t eb_json_u32_or(const struct eb_json_node *n, const char *key, uint32_t lo, uint32_t hi,
                       uint32_t absent, uint32_t *out, ebro_error *err);
int32_t eb_json_f32(const struct eb_json_node *n, const char *key, float lo, float hi, float *out,
                    ebro_error *err);
int32_t eb_json_f32_or(const struct eb_json_node *n, const char *key, float lo, float hi,
                       float absent, float *out, ebro_error *err);
int32_t eb_json_bool(const struct eb_json_node *n, const char *key, bool *out, ebro_error *err);
int32_t eb_json_bool_or(const struct eb_json_node *n, const char *key, bool absent, bool *out,
                        ebro_error *err);
/* The string belongs to the document. */
int32_t eb_json_string(const struct eb_json_node *n, const char *key, const char **out,
                       ebro_error *err);
int32_t eb_json_string_or(const struct eb_json_node *n, const char *key, const char *absent,
                          const char **out, ebro_error *err);
/* Arrays: the length, then elements by number (below the length). */
int32_t eb_json_array(const struct eb_json_node *n, const char *key, size_t *length,
                      ebro_error *err);
int32_t eb_json_u32_at(const struct eb_json_node *n, const char *key, size_t i, uint32_t lo,
                       uint32_t hi, uint32_t *out, ebro_error *err);
int32_t eb_json_string_at(const struct eb_json_node *n, const char *key, size_t i, const char **out,
                          ebro_error *err);
/* True where the key holds an array. */
bool eb_json_is_array(const struct eb_json_node *n, const char *key);
/* Calls `each` for the members of an object in file order, for tables whose keys are data; the
 * first status but OK ends the walk and is returned. The value of `member` is NULL where it is no
 * object. */
int32_t eb_json_each(const struct eb_json_node *n,
                     int32_t (*each)(void *user, const struct eb_json_node *member,
                                     ebro_error *err),
                     void *user, ebro_error *err);

/* ---- any JSON --------------------------------------------------------------------------- */

struct eb_json_limits {
    size_t bytes, depth, values; /* at most */
};
/* What a parser would build of the text stays within the limits; else `status`, with what is too
 * much. Says nothing of whether it is JSON. */
int32_t eb_json_bound(const char *label, const struct eb_bytes *text,
                      const struct eb_json_limits *limits, int32_t status, ebro_error *err);
/* "an object" ...; of a json_t, NULL: "nothing". */
const char *eb_json_type_name(const void *value);

/* Growing text, not NUL-terminated; zero it before first use, free v. */
struct eb_chars {
    char *v;
    size_t n, capacity;
};
int32_t eb_chars_add(const struct eb_alloc *a, struct eb_chars *c, const char *p, size_t n,
                     ebro_error *err);

enum eb_json_style {
    EB_JSON_COMPACT_SORTED, /* {"a":1,"b":[]}: keys in order of their bytes */
    EB_JSON_SPACED          /* {"b": [], "a": 1}: keys as they come */
};
/* Appends a json_t as Python's json.dumps writes it with ensure_ascii=False, which is what models
 * are trained on: reals in their shortest form, control characters as \u001f. The depth must have
 * been bounded. */
int32_t eb_json_write(const struct eb_alloc *a, const void *value, enum eb_json_style style,
                      struct eb_chars *out, ebro_error *err);

#endif
