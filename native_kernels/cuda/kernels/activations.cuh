// The activations of the FFN, one number at a time, as in native_kernels/cpu/ffn/activation_math.py; NaN stays NaN.
#pragma once
#include "common.cuh"

enum Activation { RELU, DRELU, SILU, GELU, GELU_TANH, CLAMPED_SILU, RELU2 };

// x, or 0 if it does not exceed the threshold.
static __device__ __forceinline__ float above(float x, float threshold) { return x <= threshold ? 0.f : x; }

static __device__ __forceinline__ float silu(float x) { return x / (1.f + expf(-x)); }

// RELU and DRELU are 0 up to the threshold. FATReLU is RELU with a threshold above 0.
static __device__ __forceinline__ float activated(int activation, float x, float threshold) {
    if (activation <= DRELU) return above(x, threshold);
    if (activation == SILU) return silu(x);
    if (activation == GELU) return 0.5f * x * (1.f + erff(x * 0.70710678f));
    if (activation == RELU2) return above(x, 0.f) * above(x, 0.f);
    if (activation == CLAMPED_SILU) {
        const float least = x > threshold ? threshold : x;
        return least / (1.f + expf(-1.702f * least));
    }
    // 1 + tanh(u) = 2 / (1 + e^(-2 u))
    return x / (1.f + expf(-1.59576912f * x * fmaf(0.044715f, x * x, 1.f)));
}

// What the activation's value is multiplied with: up, through a function of its own for some activations.
static __device__ __forceinline__ float beside(int activation, float up, float threshold) {
    if (activation == DRELU) return above(up, threshold);
    if (activation == CLAMPED_SILU) return (up > threshold ? threshold : up < -threshold ? -threshold : up) + 1.f;
    return up;
}
