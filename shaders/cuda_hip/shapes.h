/* shapes.h: the sizes of blocks that a kernel is written for and that the host launches it with.
 * Included by C and by the kernels, so that they are written once. */
#ifndef EB_CUDA_HIP_SHAPES_H
#define EB_CUDA_HIP_SHAPES_H

/* norm: threads; columns up to which a wave takes a row by itself. */
#define EB_NORM_THREADS 256
#define EB_NORM_WAVE_COLS 512

#endif
