/* fields.h: JSON that a client wrote: parsed within bounds, and read field by field, with the place
 * named in every complaint. What the fields mean is the caller's business. */
#ifndef EB_FIELDS_H
#define EB_FIELDS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fault.h"

/* What a body may hold. A parser calls itself for every level, and takes some hundred bytes for
 * every array or object and some dozen for every other value, however short they are in the text.
 */
enum { EB_JSON_DEPTH = 64, EB_JSON_CONTAINERS = 1 << 16, EB_JSON_VALUES = 1 << 20 };

/* A new object (json_decref it). 400 for all that is no JSON object, or beyond the bounds. */
bool eb_json_read(const char *text, size_t bytes, json_t **out, struct eb_fault *fault);

/* The fields of an object. `place` is the path of the field as complaints name it; its last part,
 * behind the last dot, is the field's name. A field that is missing or null leaves *out as it is.
 */
bool eb_field_bool(const json_t *object, const char *place, bool *out, struct eb_fault *fault);
/* Whole numbers, "5.0" among them. */
bool eb_field_int(const json_t *object, const char *place, int64_t min, int64_t max, int64_t *out,
                  struct eb_fault *fault);
bool eb_field_real(const json_t *object, const char *place, double min, double max, double *out,
                   struct eb_fault *fault);
/* What they give belongs to the object. */
bool eb_field_text(const json_t *object, const char *place, const char **out,
                   struct eb_fault *fault);
bool eb_field_object(const json_t *object, const char *place, json_t **out, struct eb_fault *fault);
bool eb_field_array(const json_t *object, const char *place, json_t **out, struct eb_fault *fault);
/* The value, whatever it is; NULL where it is missing or null. */
json_t *eb_field(const json_t *object, const char *place);

/* Says that what is there is not `wanted` ("a string"). */
bool eb_field_wrong(const json_t *value, const char *place, const char *wanted,
                    struct eb_fault *fault);

#endif
