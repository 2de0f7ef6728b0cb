/* rules.h: pieces of grammar that schemas and chat formats share: UTF-8 text, and JSON values of no
 * particular schema. */
#ifndef EB_RULES_H
#define EB_RULES_H

#include "program.h"

enum eb_rule_id {
    EB_RULE_VALUE,     /* any JSON value */
    EB_RULE_OBJECT,    /* any object */
    EB_RULE_ARRAY,     /* any array */
    EB_RULE_STRING,    /* any string */
    EB_RULE_CHARACTER, /* one character in a string, escaped or not */
    EB_RULE_NUMBER,
    EB_RULE_INTEGER,
    EB_RULE_TEXT_CHARACTER, /* one of UTF-8 text, unescaped */
    EB_RULE_DIGIT,
    EB_N_RULES
};

/* Rules that are written where they are first used. Zero it first. */
struct eb_rules {
    uint32_t number[EB_N_RULES]; /* + 1; 0: not written */
};

uint32_t eb_rules_get(struct eb_builder *b, struct eb_rules *r, enum eb_rule_id id);
/* Calls it. */
void eb_rules_call(struct eb_builder *b, struct eb_rules *r, enum eb_rule_id id);

/* Where bytes stand between characters: EB_UTF8_START, or inside one; what a byte leads to,
 * EB_UTF8_BAD for one that may not come. Well-formed as in the Unicode standard, table 3-7. */
enum eb_utf8 {
    EB_UTF8_START,
    EB_UTF8_ONE,
    EB_UTF8_TWO,
    EB_UTF8_THREE, /* continuation bytes that are missing */
    EB_UTF8_E0,
    EB_UTF8_ED,
    EB_UTF8_F0,
    EB_UTF8_F4,
    EB_N_UTF8,
    EB_UTF8_BAD = EB_N_UTF8
};
enum eb_utf8 eb_utf8_next(enum eb_utf8 at, int byte);

/* One character, of those of ASCII that `ascii` holds and all others. */
void eb_build_character(struct eb_builder *b, const struct eb_set *ascii);
/* What is missing of one, whose first bytes have come. */
void eb_build_character_rest(struct eb_builder *b, enum eb_utf8 at);
/* Any text, of no character or more. */
void eb_build_any_text(struct eb_builder *b);
/* ASCII that stands in a JSON string as it is. */
struct eb_set eb_json_plain(void);
/* After ':' and ',': one blank, or none. */
void eb_build_blank(struct eb_builder *b);
/* What stands between this and eb_alt_end, or nothing. */
void eb_optional_begin(struct eb_builder *b, struct eb_alt *alt);

/* Digits of a whole number, of its fraction and of its exponent, at most. */
enum { EB_INTEGER_DIGITS = 18, EB_FRACTION_DIGITS = 18, EB_EXPONENT_DIGITS = 2 };
#define EB_MAX_INTEGER INT64_C(999999999999999999)

/* open: what is equal to it is beyond it. Up to EB_MAX_INTEGER, of either sign. */
struct eb_bound {
    int64_t value;
    bool open;
};
/* A whole number from low to high. */
void eb_build_integer_range(struct eb_builder *b, struct eb_rules *r, int64_t low, int64_t high);
/* Any number between them, without an exponent. */
void eb_build_number_range(struct eb_builder *b, struct eb_rules *r, struct eb_bound low,
                           struct eb_bound high);

#endif
