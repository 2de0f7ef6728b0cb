#version 450
/* kda_windows: the windows that a call of kda_conv leaves, emitted ones included. A workgroup takes
 * 4 * THREADS channels of q, k or v of one sequence; a thread reads all of its window before it
 * writes, so that a window may be replaced in place. */
#extension GL_GOOGLE_include_directive : require
#define EB_ARGS eb_kda_windows_args
#include "common/args_kda.h"
#include "common.glsl"
#include "kda.glsl"
#include "plant.glsl"

layout(constant_id = 2) const bool ALIGNED = false; /* as in kda_conv */

void main() {
    if (GROUP >= push.n_groups) return;
    uint s = GROUP / (3u * A.channel_groups), rest = GROUP % (3u * A.channel_groups);
    uint unit = rest / A.channel_groups;
    uint c = (rest % A.channel_groups * THREADS + THREAD) * 4u;
    if (c >= A.n_channels) return;
    uint begin = seq_begin(A.rows, s), end = seq_begin(A.rows, s + 1u);
    if (PLANTED(STALE_WINDOW) && end > begin) end--;
    windows_write(A.state, A.x[unit], s, begin, end, unit, c, A.n_channels, ALIGNED);
}
