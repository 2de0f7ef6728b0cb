/* rules.c: UTF-8, and JSON (RFC 8259) as a model should write it: no blanks but one after ':' and
 * ',', for models lose themselves in blanks; no "\u0000" and no half of a surrogate pair; whole
 * numbers of at most 18 digits, and exponents of two, so that every reader can hold them. */
#include "rules.h"

/* ---- UTF-8 -------------------------------------------------------------------------------- */

static enum eb_utf8 lead(int byte) {
    if (byte < 0x80) return EB_UTF8_START;
    if (byte < 0xc2 || byte > 0xf4) return EB_UTF8_BAD;
    if (byte < 0xe0) return EB_UTF8_ONE;
    if (byte == 0xe0) return EB_UTF8_E0;
    if (byte == 0xed) return EB_UTF8_ED;
    if (byte < 0xf0) return EB_UTF8_TWO;
    if (byte == 0xf0) return EB_UTF8_F0;
    return byte == 0xf4 ? EB_UTF8_F4 : EB_UTF8_THREE;
}

enum eb_utf8 eb_utf8_next(enum eb_utf8 at, int byte) {
    int first = at == EB_UTF8_E0 ? 0xa0 : at == EB_UTF8_F0 ? 0x90 : 0x80;
    int last = at == EB_UTF8_ED ? 0x9f : at == EB_UTF8_F4 ? 0x8f : 0xbf;
    if (at == EB_UTF8_START) return lead(byte);
    if (byte < first || byte > last) return EB_UTF8_BAD;
    if (at == EB_UTF8_ONE) return EB_UTF8_START;
    if (at == EB_UTF8_THREE || at == EB_UTF8_F0 || at == EB_UTF8_F4) return EB_UTF8_TWO;
    return EB_UTF8_ONE;
}

void eb_build_character_rest(struct eb_builder *b, enum eb_utf8 at) {
    while (at != EB_UTF8_START) {
        struct eb_set set = {0};
        enum eb_utf8 next = EB_UTF8_BAD;
        for (int c = 0x80; c < 0xc0; c++) {
            if (eb_utf8_next(at, c) == EB_UTF8_BAD) continue;
            next = eb_utf8_next(at, c);
            eb_set_add(&set, c, c);
        }
        eb_build_set(b, &set);
        at = next;
    }
}

void eb_build_character(struct eb_builder *b, const struct eb_set *ascii) {
    struct eb_alt alt;
    eb_alt_begin(b, &alt);
    eb_alt_option(b, &alt);
    eb_build_set(b, ascii);
    for (int to = EB_UTF8_ONE; to < EB_N_UTF8; to++) {
        struct eb_set leads = {0};
        for (int c = 0x80; c < 256; c++)
            if (eb_utf8_next(EB_UTF8_START, c) == (enum eb_utf8)to) eb_set_add(&leads, c, c);
        eb_alt_option(b, &alt);
        eb_build_set(b, &leads);
        eb_build_character_rest(b, (enum eb_utf8)to);
    }
    eb_alt_end(b, &alt);
}

static struct eb_set all_ascii(void) {
    struct eb_set set = {0};
    eb_set_add(&set, 0, 0x7f);
    return set;
}

void eb_build_any_text(struct eb_builder *b) {
    struct eb_set ascii = all_ascii();
    uint32_t loop = eb_loop_begin(b);
    eb_build_character(b, &ascii);
    eb_loop_end(b, loop);
}

/* ---- strings ------------------------------------------------------------------------------ */

struct eb_set eb_json_plain(void) {
    struct eb_set set = {0};
    eb_set_add(&set, 0x20, '"' - 1);
    eb_set_add(&set, '"' + 1, '\\' - 1);
    eb_set_add(&set, '\\' + 1, 0x7f);
    return set;
}

static void build_among(struct eb_builder *b, const char *members) {
    struct eb_set set = {0};
    for (const char *c = members; *c != '\0'; c++) eb_set_add(&set, *c, *c);
    eb_build_set(b, &set);
}

static void build_hex(struct eb_builder *b, int n) {
    for (int i = 0; i < n; i++) build_among(b, "0123456789abcdefABCDEF");
}

/* \u and four digits that stand for a character: not 0, and a high surrogate with a low one. */
static void build_unicode_escape(struct eb_builder *b) {
    static const char not_zero[] = "123456789abcdefABCDEF";
    struct eb_alt alt;
    eb_build_byte(b, 'u');
    eb_alt_begin(b, &alt);
    eb_alt_option(b, &alt);
    build_among(b, "123456789abcefABCEF");
    build_hex(b, 3);
    for (int zeros = 1; zeros <= 3; zeros++) {
        eb_alt_option(b, &alt);
        for (int i = 0; i < zeros; i++) eb_build_byte(b, '0');
        build_among(b, not_zero);
        build_hex(b, 3 - zeros);
    }
    eb_alt_option(b, &alt);
    build_among(b, "dD");
    build_among(b, "01234567");
    build_hex(b, 2);
    eb_alt_option(b, &alt);
    build_among(b, "dD");
    build_among(b, "89abAB");
    build_hex(b, 2);
    eb_build_text(b, "\\u");
    build_among(b, "dD");
    build_among(b, "cdefCDEF");
    build_hex(b, 2);
    eb_alt_end(b, &alt);
}

static void write_character(struct eb_builder *b) {
    struct eb_set plain = eb_json_plain();
    struct eb_alt alt, escape;
    eb_alt_begin(b, &alt);
    eb_alt_option(b, &alt);
    eb_build_character(b, &plain);
    eb_alt_option(b, &alt);
    eb_build_byte(b, '\\');
    eb_alt_begin(b, &escape);
    eb_alt_option(b, &escape);
    build_among(b, "\"\\/bfnrt");
    eb_alt_option(b, &escape);
    build_unicode_escape(b);
    eb_alt_end(b, &escape);
    eb_alt_end(b, &alt);
}

static void write_string(struct eb_builder *b) {
    eb_build_byte(b, '"');
    uint32_t loop = eb_loop_begin(b);
    write_character(b);
    eb_loop_end(b, loop);
    eb_build_byte(b, '"');
}

/* ---- numbers ------------------------------------------------------------------------------ */

static void write_digit(struct eb_builder *b) {
    eb_build_range(b, '0', '9');
}

void eb_optional_begin(struct eb_builder *b, struct eb_alt *alt) {
    eb_alt_begin(b, alt);
    eb_alt_option(b, alt); /* nothing */
    eb_alt_option(b, alt);
}

static void build_minus(struct eb_builder *b) {
    struct eb_alt alt;
    eb_optional_begin(b, &alt);
    eb_build_byte(b, '-');
    eb_alt_end(b, &alt);
}

static void build_nonzero(struct eb_builder *b, struct eb_rules *r) {
    eb_build_range(b, '1', '9');
    eb_build_repeat(b, eb_rules_get(b, r, EB_RULE_DIGIT), 0, EB_INTEGER_DIGITS - 1);
}

static void write_integer(struct eb_builder *b, struct eb_rules *r) {
    struct eb_alt alt;
    eb_alt_begin(b, &alt);
    eb_alt_option(b, &alt);
    eb_build_byte(b, '0');
    eb_alt_option(b, &alt);
    build_minus(b);
    build_nonzero(b, r);
    eb_alt_end(b, &alt);
}

static void write_number(struct eb_builder *b, struct eb_rules *r) {
    struct eb_alt alt;
    uint32_t digit = eb_rules_get(b, r, EB_RULE_DIGIT);
    build_minus(b);
    eb_alt_begin(b, &alt);
    eb_alt_option(b, &alt);
    eb_build_byte(b, '0');
    eb_alt_option(b, &alt);
    build_nonzero(b, r);
    eb_alt_end(b, &alt);
    eb_optional_begin(b, &alt);
    eb_build_byte(b, '.');
    eb_build_repeat(b, digit, 1, EB_FRACTION_DIGITS);
    eb_alt_end(b, &alt);
    eb_optional_begin(b, &alt);
    build_among(b, "eE");
    struct eb_alt sign;
    eb_optional_begin(b, &sign);
    build_among(b, "+-");
    eb_alt_end(b, &sign);
    eb_build_repeat(b, digit, 1, EB_EXPONENT_DIGITS);
    eb_alt_end(b, &alt);
}

/* ---- values ------------------------------------------------------------------------------- */

void eb_build_blank(struct eb_builder *b) {
    struct eb_alt alt;
    eb_optional_begin(b, &alt);
    eb_build_byte(b, ' ');
    eb_alt_end(b, &alt);
}

static void build_nested(struct eb_builder *b, struct eb_rules *r) {
    eb_build_call(b, eb_rules_get(b, r, EB_RULE_VALUE), EB_RECURSION_COST);
}

static void build_member(struct eb_builder *b, struct eb_rules *r) {
    eb_rules_call(b, r, EB_RULE_STRING);
    eb_build_byte(b, ':');
    eb_build_blank(b);
    build_nested(b, r);
}

/* Anything between brackets, with commas. */
static void build_list(struct eb_builder *b, struct eb_rules *r, int open, int close,
                       void (*item)(struct eb_builder *, struct eb_rules *)) {
    struct eb_alt alt;
    eb_build_byte(b, open);
    eb_alt_begin(b, &alt);
    eb_alt_option(b, &alt);
    eb_alt_option(b, &alt);
    item(b, r);
    uint32_t loop = eb_loop_begin(b);
    eb_build_byte(b, ',');
    eb_build_blank(b);
    item(b, r);
    eb_loop_end(b, loop);
    eb_alt_end(b, &alt);
    eb_build_byte(b, close);
}

static void write_value(struct eb_builder *b, struct eb_rules *r) {
    static const enum eb_rule_id kinds[] = {EB_RULE_OBJECT, EB_RULE_ARRAY, EB_RULE_STRING,
                                            EB_RULE_NUMBER};
    static const char *const words[] = {"null", "true", "false"};
    struct eb_alt alt;
    eb_alt_begin(b, &alt);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        eb_alt_option(b, &alt);
        eb_rules_call(b, r, kinds[i]);
    }
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        eb_alt_option(b, &alt);
        eb_build_text(b, words[i]);
    }
    eb_alt_end(b, &alt);
}

static void write_rule(struct eb_builder *b, struct eb_rules *r, enum eb_rule_id id) {
    struct eb_set ascii = all_ascii();
    switch (id) {
        case EB_RULE_VALUE:
            write_value(b, r);
            break;
        case EB_RULE_OBJECT:
            build_list(b, r, '{', '}', build_member);
            break;
        case EB_RULE_ARRAY:
            build_list(b, r, '[', ']', build_nested);
            break;
        case EB_RULE_STRING:
            write_string(b);
            break;
        case EB_RULE_CHARACTER:
            write_character(b);
            break;
        case EB_RULE_NUMBER:
            write_number(b, r);
            break;
        case EB_RULE_INTEGER:
            write_integer(b, r);
            break;
        case EB_RULE_TEXT_CHARACTER:
            eb_build_character(b, &ascii);
            break;
        case EB_RULE_DIGIT:
            write_digit(b);
            break;
        case EB_N_RULES:
            break;
    }
}

/* The number is known before the rule is written, for it may call itself. */
uint32_t eb_rules_get(struct eb_builder *b, struct eb_rules *r, enum eb_rule_id id) {
    if (r->number[id] != 0) return r->number[id] - 1;
    uint32_t rule = eb_rule_declare(b);
    r->number[id] = rule + 1;
    uint32_t begun = eb_rule_begin(b, rule);
    write_rule(b, r, id);
    eb_rule_end(b, begun);
    return rule;
}

void eb_rules_call(struct eb_builder *b, struct eb_rules *r, enum eb_rule_id id) {
    uint32_t rule = eb_rules_get(b, r, id);
    eb_build_call(b, rule, EB_CALL_COST);
}
