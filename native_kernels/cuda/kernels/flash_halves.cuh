// Shared by the kernels of attention on tensor cores (flash_half.cu, flash_wide.cu): keys and values as halves, and what a
// row of scores is reduced by.
#pragma once
#include "tensor_cores.cuh"

#define NO_SCORE -3.0e38f

struct Kept {
    const u8* numbers;
    const u8* scales;
};

// Eight numbers of a position from dimension d on, as halves.
__device__ __forceinline__ uint4 eight_halves(const Kept& k, int codec, u64 place, int dim, int d) {
    if (codec == 1) return __ldg((const uint4*)(k.numbers + 2 * (place * dim + d)));
    const uint2 bytes = __ldg((const uint2*)(k.numbers + place * dim + d));
    const float scale = from_half(__ldg((const u16*)k.scales + place * ((dim + 31) / 32) + d / 32));
    u32 words[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const u32 two = (i < 2 ? bytes.x : bytes.y) >> (16 * (i & 1));
        words[i] = two_halves(scale * (float)((int)(two << 24) >> 24), scale * (float)((int)(two << 16) >> 24));
    }
    return make_uint4(words[0], words[1], words[2], words[3]);
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

#define ARGUMENTS                                                                                                     \
    const float *q, u64 q_step, float *out, u64 out_step, const u8 *keys, const u8 *values, const u8 *key_scales,      \
        const u8 *value_scales, int codec, int dim, int n_tokens, int start, int group, int capacity, float scale,     \
        float softcap, int window, const float *sinks
#define PASSED                                                                                                        \
    q, q_step, out, out_step, Kept{keys, key_scales}, Kept{values, value_scales}, codec, dim, n_tokens, start, group,  \
        capacity, scale, softcap, window, sinks
