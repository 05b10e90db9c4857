// Half-precision numbers in registers, without a toolkit's header.
#pragma once
#include "common.cuh"

__device__ __forceinline__ float from_half(u16 h) {
    float f;
    asm("cvt.f32.f16 %0,%1;" : "=f"(f) : "h"(h));
    return f;
}

// Rounded to nearest even; what is too large becomes infinite.
__device__ __forceinline__ u16 to_half(float f) {
    u16 h;
    asm("cvt.rn.f16.f32 %0,%1;" : "=h"(h) : "f"(f));
    return h;
}

__device__ __forceinline__ u32 two_halves(float low, float high) {
    return (u32)to_half(low) | ((u32)to_half(high) << 16);
}

// What a row is multiplied with before it is rounded: a power of two; `back` undoes it. 1 where the row's largest lies
// in [2^-7, 2^15): so many rows that nobody who adds a product up need look at their factors twice, and what the
// smallest halves lose of 8192 numbers then is no more than what rounding takes of the largest. Other rows' largest comes
// to lie in [2^12, 2^13), or below where that would take more than 2^80: sums of f32 go through the factors both ways.
__device__ __forceinline__ float rounding_factor(float largest, float& back) {
    const u32 exponent = max(__float_as_uint(largest) >> 23 & 255u, 59u);
    if (exponent == 255u || largest == 0.f || (exponent >= 120u && exponent < 142u)) return back = 1.f;
    back = __uint_as_float((exponent - 12u) << 23);
    return __uint_as_float((266u - exponent) << 23);
}
