// A head of keys, values or queries of one position: its norm, and its place in a cache.
#pragma once
#include "vectors.cuh"

#define MOST_HEAD 576  // values of a head
#define NORM_RMS 1
#define NORM_LAYER 2

// A head's numbers (shared, blockDim.x >= 32 threads of whole warps) normed in place.
DEVICE void norm_head(float* head, int n, int kind, const float* weight, const float* bias, float epsilon,
                      float* places) {
    const int i = threadIdx.x;
    const float v = i < n ? head[i] : 0.f;
    const float mean = kind == NORM_LAYER ? block_sum(v, places) / (float)n : 0.f;
    const float off = i < n ? v - mean : 0.f;
    const float squares = block_sum(off * off, places);
    const float factor = __fdiv_rn(1.f, __fsqrt_rn(squares / (float)n + epsilon));
    if (i < n) head[i] = off * factor * (weight ? weight[i] : 1.f) + (bias ? bias[i] : 0.f);
    __syncthreads();
}

// Store one number of a head into the keys or values: codec 4 f32, 2 f16, 1 bytes with a scale for every 32 of them,
// rounded as in native_kernels/kv_blocks.py. Whole warps.
DEVICE void put_in_cache(float v, int i, int n, int codec, u64 row, u8* cache, u16* scales) {
    if (codec == 1) {
        const float most = warp_max(i < n ? fabsf(v) : 0.f);
        const float step = most > 0.f ? __fdiv_rn(127.f, most) : 0.f;
        if (i < n) {
            cache[row * n + i] = (u8)__float2int_rn(v * step);
            if (i % 32 == 0) scales[row * ((n + 31) / 32) + i / 32] = float_to_half(most * (1.f / 127.f));
        }
    } else if (i < n) {
        if (codec == 2) ((u16*)cache)[row * n + i] = float_to_half(v);
        else ((float*)cache)[row * n + i] = v;
    }
}
