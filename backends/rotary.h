/* rotary.h: the angles of rotary positions as the kernels of mla_rotate take them, the same in
 * every backend: as exact fractions of a turn. */
#ifndef EB_BACKENDS_ROTARY_H
#define EB_BACKENDS_ROTARY_H

#include <math.h>

#include "shaders/common/args_mla.h"

/* What a position adds to the angle of pair `pair` of rotary_dim channels, in turns. Positions are
 * whole numbers, so whole turns may be dropped before the product. */
static inline struct eb_mla_turn eb_rotary_turn(float theta, uint32_t rotary_dim, uint32_t pair) {
    static const double two_pi = 6.283185307179586476925;
    double rate = pow((double)theta, -2.0 * pair / rotary_dim) / two_pi;
    double whole, high = ldexp(modf(rate, &whole), 32);
    uint32_t word = (uint32_t)high;
    return (struct eb_mla_turn){.high = word, .low = (uint32_t)ldexp(high - word, 32)};
}

#endif
