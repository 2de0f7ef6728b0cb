/* ranges.c: numbers between bounds, as decimal digits. */
#include "rules.h"

/* 0 is written as nothing: it is what stands before the first digit. */
static void build_decimal(struct eb_builder *b, int64_t value) {
    char digits[24];
    int n = 0;
    for (; value > 0; value /= 10) digits[n++] = (char)('0' + value % 10);
    while (n > 0) eb_build_byte(b, digits[--n]);
}

static void build_whole(struct eb_builder *b, int64_t value) {
    if (value == 0) eb_build_byte(b, '0');
    build_decimal(b, value);
}

/* From low up in blocks of numbers that differ in their last digits alone, as large as they come:
 * at most 36 of them. Neither is negative. */
static void build_blocks(struct eb_builder *b, struct eb_rules *r, struct eb_alt *alt, int64_t low,
                         int64_t high, bool minus) {
    while (low <= high) {
        int64_t block = 1;
        uint32_t free_digits = 0;
        while (low > 0 && low % (block * 10) == 0 && high - low >= block * 10 - 1) {
            block *= 10;
            free_digits++;
        }
        int first = (int)(low / block % 10), last = first;
        while (last < 9 && high - low >= (last - first + 2) * block - 1) last++;
        eb_alt_option(b, alt);
        if (minus) eb_build_byte(b, '-');
        build_decimal(b, low / block / 10);
        eb_build_range(b, '0' + first, '0' + last);
        eb_build_repeat(b, eb_rules_get(b, r, EB_RULE_DIGIT), free_digits, free_digits);
        low += (last - first + 1) * block;
    }
}

void eb_build_integer_range(struct eb_builder *b, struct eb_rules *r, int64_t low, int64_t high) {
    struct eb_alt alt;
    eb_rules_get(b, r, EB_RULE_DIGIT);
    eb_alt_begin(b, &alt);
    if (low < 0) build_blocks(b, r, &alt, high < 0 ? -high : 1, -low, true);
    if (high >= 0) build_blocks(b, r, &alt, low > 0 ? low : 0, high, false);
    eb_alt_end(b, &alt);
}

/* ---- with fractions ----------------------------------------------------------------------- */

static void build_zeros(struct eb_builder *b) {
    uint32_t zero = eb_rule_declare(b), begun = eb_rule_begin(b, zero);
    eb_build_byte(b, '0');
    eb_rule_end(b, begun);
    eb_build_repeat(b, zero, 0, EB_FRACTION_DIGITS / 2);
}

/* More than nothing. */
static void build_fraction(struct eb_builder *b, struct eb_rules *r) {
    uint32_t digit = eb_rules_get(b, r, EB_RULE_DIGIT);
    eb_build_byte(b, '.');
    build_zeros(b);
    eb_build_range(b, '1', '9');
    eb_build_repeat(b, digit, 0, EB_FRACTION_DIGITS / 2 - 1);
}

static void build_any_fraction(struct eb_builder *b, struct eb_rules *r) {
    struct eb_alt alt;
    uint32_t digit = eb_rules_get(b, r, EB_RULE_DIGIT);
    eb_optional_begin(b, &alt);
    eb_build_byte(b, '.');
    eb_build_repeat(b, digit, 1, EB_FRACTION_DIGITS);
    eb_alt_end(b, &alt);
}

static void build_sign(struct eb_builder *b, bool minus) {
    if (minus) eb_build_byte(b, '-');
}

/* Options of what lies between low and high, which are not negative: whole numbers below high with
 * any fraction, low itself with more than none where it is open, and high itself. */
static void build_between(struct eb_builder *b, struct eb_rules *r, struct eb_alt *alt,
                          struct eb_bound low, struct eb_bound high, bool minus) {
    int64_t first = low.value + low.open;
    if (first < high.value) {
        struct eb_alt whole;
        eb_alt_option(b, alt);
        build_sign(b, minus);
        eb_alt_begin(b, &whole);
        build_blocks(b, r, &whole, first, high.value - 1, false);
        eb_alt_end(b, &whole);
        build_any_fraction(b, r);
    }
    if (low.open && low.value < high.value) {
        eb_alt_option(b, alt);
        build_sign(b, minus);
        build_whole(b, low.value);
        build_fraction(b, r);
    }
    if (!high.open && (low.value < high.value || (low.value == high.value && !low.open))) {
        eb_alt_option(b, alt);
        build_sign(b, minus);
        build_whole(b, high.value);
    }
}

void eb_build_number_range(struct eb_builder *b, struct eb_rules *r, struct eb_bound low,
                           struct eb_bound high) {
    static const struct eb_bound zero = {0, false}, above_zero = {0, true};
    struct eb_bound deepest = {-low.value, low.open}, least = {-high.value, high.open};
    struct eb_alt alt;
    eb_rules_get(b, r, EB_RULE_DIGIT);
    eb_alt_begin(b, &alt);
    if (low.value < 0) /* without -0 */
        build_between(b, r, &alt, high.value < 0 ? least : above_zero, deepest, true);
    if (high.value >= 0) build_between(b, r, &alt, low.value < 0 ? zero : low, high, false);
    eb_alt_end(b, &alt);
}
