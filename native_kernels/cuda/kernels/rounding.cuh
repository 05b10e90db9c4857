// Rounding of a vector to bytes, the input of quantised matrices (GpuVector in gpu.py).
#pragma once
#include "weights.cuh"

// The targets: values (0: none), and bytes up to a multiple of 64 with the scales of each 32.
struct Rounded {
    const float* x;  // the source, for kernels that read it there
    float* values;
    u8* bytes;
    float2* scales;
    int n;
};

// A thread's four numbers, columns `column` to `column` + 3, a multiple of 4; beyond the end they are 0. All threads of
// a warp must call this together with adjacent columns: eight have a group of 32. Rounds as
// native_kernels/cpu/products/activations.py: ties to even; a group with a value that is not finite gets a NaN scale.
DEVICE void round_four(const Rounded& to, int column, const float (&v)[4]) {
    float top = 0.f, spoilt = 0.f;
#pragma unroll
    for (int j = 0; j < 4; j++) {
        top = fmaxf(top, fabsf(v[j]));
        spoilt += v[j] * 0.f;
    }
#pragma unroll
    for (int o = 4; o; o >>= 1) {
        top = fmaxf(top, __shfl_xor_sync(FULL_WARP, top, o));
        spoilt += __shfl_xor_sync(FULL_WARP, spoilt, o);
    }
    const float step = __fmul_rn(top, 1.f / 127.f);
    float inverse = step > 0.f && spoilt == 0.f ? __fdiv_rn(127.f, top) : 0.f;
    if (inverse > 3.4e38f) inverse = 0.f;  // infinite: numbers so small that they count as 0
    u32 word = 0;
    int sum = 0;
#pragma unroll
    for (int j = 0; j < 4; j++) {
        const int q = inverse > 0.f ? __float2int_rn(__fmul_rn(v[j], inverse)) : 0;
        word |= (u32)(q & 255) << (8 * j);
        sum += q;
    }
#pragma unroll
    for (int o = 4; o; o >>= 1) sum += __shfl_xor_sync(FULL_WARP, sum, o);
    if (column < (to.n + 63) / 64 * 64) *(u32*)(to.bytes + column) = word;
    const float scale = step + spoilt;
    if (column % 32 == 0 && column < to.n) to.scales[column / 32] = make_float2(scale, __fmul_rn(scale, (float)sum));
}
