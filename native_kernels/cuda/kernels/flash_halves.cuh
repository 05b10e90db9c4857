// Shared by the kernels of attention on tensor cores (flash_half.cu, flash_wide.cu): keys and values as halves, and what a
// warp does with some of them.
#pragma once
#include "tensor_cores.cuh"

#define NO_SCORE -3.0e38f

struct Kept {
    const u8* numbers;
    const u8* scales;
};

// Eight numbers of a position from dimension d on, as they are stored: halves, or bytes and their scale.
__device__ __forceinline__ uint4 eight_stored(const Kept& k, int codec, u64 place, int dim, int d) {
    if (codec == 1) return __ldg((const uint4*)(k.numbers + 2 * (place * dim + d)));
    const uint2 bytes = __ldg((const uint2*)(k.numbers + place * dim + d));
    return make_uint4(bytes.x, bytes.y, __ldg((const u16*)k.scales + place * ((dim + 31) / 32) + d / 32), 0);
}

// Two signed bytes times a scale, as halves. select: which bytes, for __byte_perm. scale: the same in both halves.
__device__ __forceinline__ u32 two_scaled(u32 bytes, u32 select, u32 scale) {
    u32 two = __byte_perm(bytes ^ 0x80808080u, 0x64646464u, select);  // 1024 + 128 + the number, as halves
    asm("sub.f16x2 %0,%0,%1;" : "+r"(two) : "r"(0x64806480u));
    asm("mul.f16x2 %0,%0,%1;" : "+r"(two) : "r"(scale));
    return two;
}

// The numbers of eight_stored as halves.
__device__ __forceinline__ uint4 as_halves(const uint4& stored, int codec) {
    if (codec == 1) return stored;
    const u32 scale = stored.z | stored.z << 16;
    return make_uint4(two_scaled(stored.x, 0x4140, scale), two_scaled(stored.x, 0x4342, scale),
                      two_scaled(stored.y, 0x4140, scale), two_scaled(stored.y, 0x4342, scale));
}

// Over the four lanes that hold a row.
__device__ __forceinline__ float row_largest(float v) {
    v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, 1));
    return fmaxf(v, __shfl_xor_sync(0xffffffffu, v, 2));
}

__device__ __forceinline__ float row_sum(float v) {
    v += __shfl_xor_sync(0xffffffffu, v, 1);
    return v + __shfl_xor_sync(0xffffffffu, v, 2);
}

// Scores of a warp's 16 queries and N keys in shared memory, over 16 DEPTHS of their numbers. place(row, chunk): where
// eight numbers of a key are, from chunk 0 of these numbers on.
template <int N, int DEPTHS, class Place>
__device__ __forceinline__ void score(float (&scores)[N / 8][4], const u32 (&queries)[DEPTHS][4], int lane, Place place) {
#pragma unroll
    for (int i = 0; i < N / 2; i++) scores[i / 4][i % 4] = 0.f;
#pragma unroll
    for (int k = 0; k < DEPTHS; k++)
#pragma unroll
        for (int j = 0; j < N / 16; j++) {
            u32 b[4];
            load_matrices(b, place(16 * j + (lane & 7) + (lane >> 4) * 8, 2 * k + (lane >> 3 & 1)));
            multiply_tile(scores[2 * j], queries[k], b[0], b[1]);
            multiply_tile(scores[2 * j + 1], queries[k], b[2], b[3]);
        }
}

#define LOG2_E 1.44269504f

__device__ __forceinline__ float power_of_two(float exponent) {
    float power;
    asm("ex2.approx.ftz.f32 %0,%1;" : "=f"(power) : "f"(exponent));
    return power;
}

// For 9.0 without a branch, to 3e-7; for 10.0 that spills a register of flash_wide.cu.
__device__ __forceinline__ float tanh_of(float x) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    return 1.f - __fdividef(2.f, 1.f + power_of_two(2.f * LOG2_E * x));
#else
    return tanhf(x);
#endif
}

// Turn the scores of keys from key0 on into weights. A lane has two queries, at `position` and position + 8. back:
// positive factors of their scores. largest: maxima of their scores so far, in units of ln 2, as is `back` without
// softcap. total: this lane's sums of weights so far. shrink: factors for their sums so far. ALL: every query sees every key.
template <int N, bool ALL>
__device__ __forceinline__ void weigh(float (&scores)[N / 8][4], int key0, int position, int lane, const float (&back)[2],
                                      float softcap, int window, float (&largest)[2], float (&total)[2],
                                      float (&shrink)[2]) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int own = position + 8 * half;
        float most = NO_SCORE, factor = back[half];
        if (softcap > 0.f) {
#pragma unroll
            for (int i = 0; i < N / 4; i++) {
                float& score = scores[i / 2][2 * half + i % 2];
                score = LOG2_E * softcap * tanh_of(score * factor / softcap);
            }
            factor = 1.f;
        }
#pragma unroll
        for (int i = 0; i < N / 4; i++) {
            const int key = key0 + i / 2 * 8 + 2 * (lane & 3) + i % 2;
            float& score = scores[i / 2][2 * half + i % 2];
            if (!ALL && (key > own || (window > 0 && key <= own - window))) score = NO_SCORE;
            most = fmaxf(most, score);
        }
        most = fmaxf(largest[half], row_largest(most) * factor);
        shrink[half] = power_of_two(largest[half] - most);
        largest[half] = most;
        float sum = 0.f;
#pragma unroll
        for (int i = 0; i < N / 4; i++) {
            float& score = scores[i / 2][2 * half + i % 2];
            score = !ALL && score == NO_SCORE ? 0.f : power_of_two(fmaf(score, factor, -most));
            sum += score;
        }
        total[half] = fmaf(total[half], shrink[half], sum);
    }
}

// Sixteen keys' weights as halves, as multiply_tile takes them.
__device__ __forceinline__ void pack(const float (&low)[4], const float (&high)[4], u32 (&halves)[4]) {
    halves[0] = two_halves(low[0], low[1]); halves[1] = two_halves(low[2], low[3]);
    halves[2] = two_halves(high[0], high[1]); halves[3] = two_halves(high[2], high[3]);
}

// sums = shrink sums + weights times N values in shared memory, for 16 TILES of their numbers. place: as in `score`.
template <int N, int TILES, class Place>
__device__ __forceinline__ void mix(float (&sums)[2 * TILES][4], const float (&weights)[N / 8][4], const float (&shrink)[2],
                                    int lane, Place place) {
    if (__any_sync(0xffffffffu, shrink[0] != 1.f || shrink[1] != 1.f))
#pragma unroll
        for (int i = 0; i < 8 * TILES; i++) sums[i / 4][i % 4] *= shrink[i / 2 % 2];
#pragma unroll
    for (int k = 0; k < N / 16; k++) {
        u32 halves[4];
        pack(weights[2 * k], weights[2 * k + 1], halves);
#pragma unroll
        for (int j = 0; j < TILES; j++) {
            u32 b[4];
            load_matrices_transposed(b, place(16 * k + (lane & 15), 2 * j + (lane >> 4)));
            multiply_tile(sums[2 * j], halves, b[0], b[1]);
            multiply_tile(sums[2 * j + 1], halves, b[2], b[3]);
        }
    }
}

#define ARGUMENTS                                                                                                     \
    const float *q, u64 q_step, float *out, u64 out_step, const u8 *keys, const u8 *values, const u8 *key_scales,      \
        const u8 *value_scales, int codec, int dim, int n_tokens, int start, int group, int capacity, float scale,     \
        float softcap, int window, const float *sinks
#define PASSED                                                                                                        \
    q, q_step, out, out_step, Kept{keys, key_scales}, Kept{values, value_scales}, codec, dim, n_tokens, start, group,  \
        capacity, scale, softcap, window, sinks
