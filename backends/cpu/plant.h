/* plant.h: known faults, for the tests of `ebro check` alone. A build with CPU_PLANT=NAME has that
 * one fault, which the check must find and name; those modules lie in a folder of their own
 * (tests/CMakeLists.txt). Everywhere else PLANTED is the constant 0 and nothing of it is left. */
#ifndef EB_CPU_PLANT_H
#define EB_CPU_PLANT_H

#include "rung.h"

enum {
    PLANT_none,
    PLANT_wrong_wave_width, /* linear: half of the lanes of a sum are joined */
    PLANT_f16_accumulation, /* linear: sums in half precision */
    PLANT_off_by_one_mask,  /* mla_prefill: a row does not see itself */
    PLANT_late_mask,        /* mla_decode: a row sees one token too many */
    PLANT_stale_window,     /* kda_conv: the window lacks the last row */
    PLANT_unnormalised_q,   /* kda_prep */
    PLANT_dropped_carry,    /* kda_recur: the start state is taken for zeros */
    PLANT_swapped_layout,   /* kda_recur: states are [value][key] */
    PLANT_stray_write       /* rms_norm: one element behind a row */
};

#ifndef CPU_PLANT
#define CPU_PLANT none
#endif
#define PLANTED(fault) (CPU_PASTE(PLANT, CPU_PLANT) == PLANT_##fault)

#endif
