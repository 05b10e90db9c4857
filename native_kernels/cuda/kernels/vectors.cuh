// Shared by the operators on vectors: sums over a block in a fixed order, half precision, numbers that the CPU has
// written.
#pragma once
#include "rounding.cuh"

// Overflow becomes infinite.
DEVICE u16 float_to_half(float f) {
    u16 h;
    asm("cvt.rn.f16.f32 %0,%1;" : "=h"(h) : "f"(f));
    return h;
}

DEVICE float load_fresh(const float* at) {
    float v;
    asm volatile("ld.volatile.global.f32 %0,[%1];" : "=f"(v) : "l"(at));
    return v;
}

// The highest over a warp, in every lane.
DEVICE float warp_max(float v) {
#pragma unroll
    for (int o = 16; o; o >>= 1) v = fmaxf(v, __shfl_xor_sync(FULL_WARP, v, o));
    return v;
}

// The sum over a block of whole warps, in every thread. places: shared, one per warp; reusable afterwards.
DEVICE float block_sum(float v, float* places) {
    v = warp_sum(v);
    const int warps = blockDim.x / 32;
    if (threadIdx.x % 32 == 0) places[threadIdx.x / 32] = v;
    __syncthreads();
    float sum = 0.f;
    for (int w = 0; w < warps; w++) sum += places[w];
    __syncthreads();
    return sum;
}
