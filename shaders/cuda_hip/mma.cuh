/* mma.cuh: NVIDIA's matrix units for bf16, generation 8.0 and later: the fragments of m16n8k16 as
 * the PTX manual gives them, and ldmatrix, which loads them from shared memory. The one file with
 * PTX. The operations are of 32 threads, "warps" here, whatever a wave is; in the emulation a wave
 * of 64 is two of them. EB_HAS_MMA: whether this compilation has them; without it a kernel that
 * needs them is empty, and none is chosen (kernels.def).
 *
 * Lane l of a warp holds, two bf16 a word, the lower k below:
 *   a (16 x 16)   r[i]: row l / 4 + 8 (i % 2), k = 2 (l % 4) + 8 (i / 2) and the one after
 *   b (16 x 8)    r[i]: column l / 4,          k = 2 (l % 4) + 8 i       and the one after
 *   sum (16 x 8)  v[i]: row l / 4 + 8 (i / 2), column 2 (l % 4) + i % 2 */
#ifndef EB_MMA_CUH
#define EB_MMA_CUH

#include "memory.cuh"

constexpr unsigned EB_WARP = 32;

struct mma_a {
    unsigned r[4];
};
struct mma_b {
    unsigned r[2];
};
struct mma_sum {
    float v[4];
};

#ifdef EB_SIMT

#define EB_HAS_MMA 1

/* The slots of this thread's warp. */
EB_DEVICE const simt::slot *warp_show(const char *kind, const void *value, size_t bytes) {
    return simt::wave_show(kind, value, bytes) + lane_id() / EB_WARP * EB_WARP;
}

EB_DEVICE eb_words4 load_matrices(const void *row) {
    unsigned lane = thread_id() % EB_WARP;
    const simt::slot *rows = warp_show("load_matrices", row, 16);
    eb_words4 m;
    for (unsigned i = 0; i < 4; i++) memcpy(&m.w[i], rows[i * 8 + lane / 4] + lane % 4 * 4, 4);
    return m;
}

EB_DEVICE eb_words4 load_matrices_turned(const void *row) {
    unsigned lane = thread_id() % EB_WARP;
    const simt::slot *rows = warp_show("load_matrices_turned", row, 16);
    eb_words4 m;
    for (unsigned i = 0; i < 4; i++) {
        unsigned short pair[2];
        for (unsigned j = 0; j < 2; j++)
            memcpy(&pair[j], rows[i * 8 + lane % 4 * 2 + j] + lane / 4 * 2, 2);
        m.w[i] = pair[0] | (unsigned)pair[1] << 16;
    }
    return m;
}

EB_DEVICE float simt_bf16(const unsigned char *words, unsigned i) {
    unsigned short h;
    memcpy(&h, words + i * 2, sizeof h);
    return from_bf16(h);
}

EB_DEVICE void multiply_add(mma_sum &sum, const mma_a &a, const mma_b &b) {
    struct {
        mma_a a;
        mma_b b;
    } own = {a, b};
    unsigned lane = thread_id() % EB_WARP;
    const simt::slot *all = warp_show("multiply_add", &own, sizeof own);
    for (unsigned i = 0; i < 4; i++) {
        unsigned row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
        for (unsigned k = 0; k < 16; k++) {
            unsigned word_a = row / 8 + k / 8 * 2, word_b = 4 + k / 8, lane_k = k % 8 / 2;
            sum.v[i] += simt_bf16(all[row % 8 * 4 + lane_k], word_a * 2 + k % 2) *
                        simt_bf16(all[column * 4 + lane_k], word_b * 2 + k % 2);
        }
    }
}

#else

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
#define EB_HAS_MMA 1

/* Four matrices of 8 rows of 16 bytes. Lane l says where row l % 8 of matrix l / 8 lies in shared
 * memory, and gets of each matrix i word l % 4 of row l / 4, as w[i]. */
EB_DEVICE eb_words4 load_matrices(const void *row) {
    eb_words4 m;
    unsigned from = (unsigned)__cvta_generic_to_shared(row);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(m.w[0]), "=r"(m.w[1]), "=r"(m.w[2]), "=r"(m.w[3])
                 : "r"(from)
                 : "memory");
    return m;
}

/* The same of the matrices turned: of each one column l / 4, elements 2 (l % 4) and the next. */
EB_DEVICE eb_words4 load_matrices_turned(const void *row) {
    eb_words4 m;
    unsigned from = (unsigned)__cvta_generic_to_shared(row);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(m.w[0]), "=r"(m.w[1]), "=r"(m.w[2]), "=r"(m.w[3])
                 : "r"(from)
                 : "memory");
    return m;
}

/* sum += a b */
EB_DEVICE void multiply_add(mma_sum &sum, const mma_a &a, const mma_b &b) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sum.v[0]), "+f"(sum.v[1]), "+f"(sum.v[2]), "+f"(sum.v[3])
        : "r"(a.r[0]), "r"(a.r[1]), "r"(a.r[2]), "r"(a.r[3]), "r"(b.r[0]), "r"(b.r[1]));
}
#else
#define EB_HAS_MMA 0
#endif

#endif

#if EB_HAS_MMA
/* `unit(row, u)` says where the 16 bytes of row `row` lie that hold k = 8 u and on: the rows of a,
 * 16 from `row` on, or of two b side by side, whose rows are their columns. */
template <class UNIT>
EB_DEVICE mma_a load_a(UNIT unit, unsigned row, unsigned u) {
    unsigned lane = thread_id() % EB_WARP;
    eb_words4 m = load_matrices(unit(row + lane % 16, u + lane / 16));
    return {{m.w[0], m.w[1], m.w[2], m.w[3]}};
}

template <class UNIT>
EB_DEVICE void load_b(mma_b *b, UNIT unit, unsigned row, unsigned u) {
    unsigned lane = thread_id() % EB_WARP;
    eb_words4 m = load_matrices(unit(row + lane % 8 + lane / 16 * 8, u + lane / 8 % 2));
    b[0] = {{m.w[0], m.w[1]}};
    b[1] = {{m.w[2], m.w[3]}};
}

/* The same where rows are k: 16 of them from `row` on, each with 16 columns of the two b from the
 * `u`-th eight on. */
template <class UNIT>
EB_DEVICE void load_b_turned(mma_b *b, UNIT unit, unsigned row, unsigned u) {
    unsigned lane = thread_id() % EB_WARP;
    eb_words4 m = load_matrices_turned(unit(row + lane % 16, u + lane / 16));
    b[0] = {{m.w[0], m.w[1]}};
    b[1] = {{m.w[2], m.w[3]}};
}
#endif

/* ---- f32 as a sum of two bf16 ------------------------------------------------------------- */

/* A product is off by 2^-17 at most, hundreds of times less than with one bf16, for twice the work.
 * The bf16 next to f; the largest one for what rounds beyond it, so that no finite number becomes
 * infinite. */
EB_DEVICE unsigned short near_bf16(float f) {
    unsigned u = bits_of(f), size = u & 0x7fffffffu;
    if (size > 0x7f800000u) return (unsigned short)(u >> 16 | 0x40u);
    if (size < 0x7f800000u) {
        size += 0x8000u;
        if (size > 0x7f7fffffu) size = 0x7f7fffffu;
    }
    return (unsigned short)(((u & 0x80000000u) | size) >> 16);
}

/* What it leaves: of an infinite value nothing. */
EB_DEVICE unsigned short rest_bf16(float f) {
    bool infinite = (bits_of(f) & 0x7fffffffu) == 0x7f800000u;
    return infinite ? (unsigned short)0 : to_bf16(f - from_bf16(near_bf16(f)));
}

#endif
