// Units of weights (weights.cuh) as halves, for products on tensor cores. Numbers beyond the range of halves are clamped.
#pragma once
#include "halves.cuh"
#include "weights.cuh"

DEVICE u32 two_clamped(float low, float high) {
#if __CUDA_ARCH__ >= 800
    u32 out;
    asm("{.reg .b32 v; cvt.rn.f16x2.f32 v,%2,%1; max.f16x2 v,v,%3; min.f16x2 %0,v,%4;}"
        : "=r"(out) : "f"(low), "f"(high), "r"(0xfbfffbffu), "r"(0x7bff7bffu));
    return out;
#else
    const float largest = 65504.f;
    return two_halves(fminf(fmaxf(low, -largest), largest), fminf(fmaxf(high, -largest), largest));
#endif
}

// The numbers of a unit as halves, two a word.
template <class C>
struct Halves {
    DEVICE void of(const typename C::Unit& unit, u32 (&out)[C::COLUMNS / 2]) {
        float values[C::COLUMNS];
        C::values(unit, values);
#pragma unroll
        for (int i = 0; i < C::COLUMNS / 2; i++) out[i] = two_clamped(values[2 * i], values[2 * i + 1]);
    }
};

// Unchanged, infinite ones too.
template <>
struct Halves<F16> {
    DEVICE void of(const F16::Unit& unit, u32 (&out)[4]) {
        out[0] = unit.values.x, out[1] = unit.values.y, out[2] = unit.values.z, out[3] = unit.values.w;
    }
};

#if __CUDA_ARCH__ >= 800
// Two numbers of four bits, bytes 0 and 1 or 2 and 3 of a word: a product of halves is rounded once, as that of floats is.
DEVICE u32 two_of_four(u32 word, bool upper, u32 scales) {
    const u32 placed = __byte_perm(word, 0x64646464u, upper ? 0x4342 : 0x4140);  // below the exponent of 1024
    u32 out;
    asm("{.reg .b32 v; sub.rn.f16x2 v,%1,%2; mul.rn.f16x2 v,v,%3; min.f16x2 v,v,%4; max.f16x2 %0,v,%5;}"
        : "=r"(out) : "r"(placed), "r"(0x64086408u), "r"(scales), "r"(0x7bff7bffu), "r"(0xfbfffbffu));
    return out;
}

template <>
struct Halves<Q4_0> {
    DEVICE void of(const Q4_0::Unit& unit, u32 (&out)[16]) {
        const uint4 low = lower_halves(unit.bytes), high = upper_halves(unit.bytes);
        const u32 scales = unit.scale * 0x10001u;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            out[2 * i] = two_of_four(word_of(low, i), false, scales);
            out[2 * i + 1] = two_of_four(word_of(low, i), true, scales);
            out[8 + 2 * i] = two_of_four(word_of(high, i), false, scales);
            out[8 + 2 * i + 1] = two_of_four(word_of(high, i), true, scales);
        }
    }
};
#endif
