// Half-precision numbers in registers, without a toolkit's header.
#pragma once
#include "common.cuh"

__device__ __forceinline__ float from_half(u16 h) {
    float f;
    asm("cvt.f32.f16 %0,%1;" : "=f"(f) : "h"(h));
    return f;
}

// Rounded to nearest even; overflow becomes infinite.
__device__ __forceinline__ u16 to_half(float f) {
    u16 h;
    asm("cvt.rn.f16.f32 %0,%1;" : "=h"(h) : "f"(f));
    return h;
}

__device__ __forceinline__ u32 two_halves(float low, float high) {
#if __CUDA_ARCH__ >= 800
    u32 both;
    asm("cvt.rn.f16x2.f32 %0,%1,%2;" : "=r"(both) : "f"(high), "f"(low));
    return both;
#else
    return (u32)to_half(low) | ((u32)to_half(high) << 16);
#endif
}

// The power of two by which a row is multiplied before it is rounded; `back` undoes it. It is 1 if the row's maximum is
// in [2^-7, 2^15): for so many rows that a product rarely needs a second look at their factors, and what subnormal
// halves lose of 8192 numbers is then no more than the rounding error of the largest. Other rows' maxima are scaled
// into [2^12, 2^13), or below if that would take more than 2^80: sums of f32 go through the factors both ways.
__device__ __forceinline__ float rounding_factor(float largest, float& back) {
    const u32 exponent = max(__float_as_uint(largest) >> 23 & 255u, 59u);
    if (exponent == 255u || largest == 0.f || (exponent >= 120u && exponent < 142u)) return back = 1.f;
    back = __uint_as_float((exponent - 12u) << 23);
    return __uint_as_float((266u - exponent) << 23);
}
