/* plant.glsl: known faults, for the tests of `ebro check` and of the self-test alone. A kernel that is
 * compiled with -DEB_PLANT=PLANT_NAME has that one fault, which they must find and name
 * (tests/CMakeLists.txt says which kernels). Everywhere else PLANTED is false and nothing of it is
 * left. What is not planted here: kernels for matrix units, which are kept compiled. */
#define PLANT_NONE 0
#define PLANT_WRONG_WAVE_WIDTH 1 /* linear: half of the lanes of a sum are joined */
#define PLANT_F16_ACCUMULATION 2 /* linear: sums in half precision */
#define PLANT_OFF_BY_ONE_MASK 3  /* mla_prefill: a row does not see itself */
#define PLANT_EARLY_MASK 4       /* mla_decode: the same */
#define PLANT_STALE_WINDOW 5     /* kda_conv: the window lacks the last row */
#define PLANT_UNNORMALISED_Q 6   /* kda_prep */
#define PLANT_DROPPED_CARRY 7    /* kda_recur: the start state is taken for zeros */
#define PLANT_SWAPPED_LAYOUT 8   /* kda_recur: states are [value][key] */

#ifndef EB_PLANT
#define EB_PLANT PLANT_NONE
#endif
#define PLANTED(fault) (EB_PLANT == PLANT_##fault)
