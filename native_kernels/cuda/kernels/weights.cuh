// Rows of a weight matrix in the GPU's layout (layouts.py): how a lane reads a unit of one, multiplies it by the same
// columns of a vector, or gets it as floats. One struct per codec; launches nothing.
//
// A unit is what one lane takes at a time: 16 bytes of a row's first plane, and the corresponding bytes of the others.
// A warp takes 32 adjacent units, so that it reads whole lines. Every struct has:
//
//   COLUMNS                      columns of a unit
//   units(n_cols)                units of a row
//   Row, row(planes, n_cols, r)  start of row r, relative to the planes, so that rows share their addresses
//   Unit, load(row, unit)        a unit of weights in registers
//   Input, input(x, unit)        the same columns of the vector: floats, or bytes with their scales
//   dot(w, v, sum)               sum + weights * vector
//   values(w, out)               the unit's COLUMNS numbers
//   column(unit, i)              column of number i of a unit; numbers are in runs of at least 4
//
// Padding after the last column of a row in its last unit is 0. Planes and vectors are 16-byte aligned.
#pragma once
#include "common.cuh"

#define DEVICE static __device__ __forceinline__
#define FULL_WARP 0xffffffffu

struct Planes {
    const u8* at[4];
};

// A vector of n numbers: float values, or bytes and for each 32 of them their scale and that times their sum.
struct Vector {
    const float* values;
    const u8* bytes;
    const float2* scales;
    int n;
};

DEVICE float half_to_float(u16 h) {
    float f;
    asm("cvt.f32.f16 %0,%1;" : "=f"(f) : "h"(h));
    return f;
}

DEVICE float2 halves_to_floats(u32 pair) {
    float2 v;
    asm("{.reg .f16 a,b; mov.b32 {a,b},%2; cvt.f32.f16 %0,a; cvt.f32.f16 %1,b;}" : "=f"(v.x), "=f"(v.y) : "r"(pair));
    return v;
}

DEVICE float2 bfloats_to_floats(u32 pair) {
    return make_float2(__uint_as_float(pair << 16), __uint_as_float(pair & 0xffff0000u));
}

// sum + four products of signed bytes.
DEVICE int dot4(u32 a, u32 b, int sum) {
    int d;
    asm("dp4a.s32.s32 %0,%1,%2,%3;" : "=r"(d) : "r"(a), "r"(b), "r"(sum));
    return d;
}

DEVICE int dot16(const uint4& a, const uint4& b, int sum) {
    return dot4(a.w, b.w, dot4(a.z, b.z, dot4(a.y, b.y, dot4(a.x, b.x, sum))));
}

// The low and the high nibbles of 16 bytes.
DEVICE uint4 lower_halves(const uint4& v) {
    const u32 m = 0x0f0f0f0fu;
    return make_uint4(v.x & m, v.y & m, v.z & m, v.w & m);
}

DEVICE uint4 upper_halves(const uint4& v) {
    const u32 m = 0x0f0f0f0fu;
    return make_uint4((v.x >> 4) & m, (v.y >> 4) & m, (v.z >> 4) & m, (v.w >> 4) & m);
}

// The sum over a warp, in every lane, in a fixed order.
DEVICE float warp_sum(float v) {
#pragma unroll
    for (int o = 16; o; o >>= 1) v += __shfl_xor_sync(FULL_WARP, v, o);
    return v;
}

// The sums over a warp of several numbers per lane, ROWS a power of two: lane i gets that of number i * ROWS / 32. In a
// fixed order, with fewer exchanges than separate warp_sums.
template <int ROWS>
DEVICE float warp_sums(const float (&numbers)[ROWS]) {
    float v[ROWS];
#pragma unroll
    for (int i = 0; i < ROWS; i++) v[i] = numbers[i];
    int o = 16;
#pragma unroll
    for (int n = ROWS / 2; n; n /= 2, o /= 2) {
        const bool upper = threadIdx.x & o;
#pragma unroll
        for (int i = 0; i < n; i++) {
            const float given = upper ? v[i] : v[i + n], kept = upper ? v[i + n] : v[i];
            v[i] = kept + __shfl_xor_sync(FULL_WARP, given, o);
        }
    }
#pragma unroll
    for (; o; o /= 2) v[0] += __shfl_xor_sync(FULL_WARP, v[0], o);
    return v[0];
}

// Four numbers of x from column c on; 0 beyond its end.
DEVICE float4 four_of(const Vector& x, int c) {
    if (c + 4 <= x.n) return __ldg((const float4*)(x.values + c));
    float4 v = make_float4(0.f, 0.f, 0.f, 0.f);
    if (c < x.n) v.x = __ldg(x.values + c);
    if (c + 1 < x.n) v.y = __ldg(x.values + c + 1);
    if (c + 2 < x.n) v.z = __ldg(x.values + c + 2);
    return v;
}

// n halves padded to 16 bytes: a row of a plane of scales.
DEVICE u32 filled_halves(int n) { return (u32)(n + 7) / 8 * 8; }

// Signed bytes as floats.
DEVICE void bytes_to_floats(u32 word, float* out) {
#pragma unroll
    for (int j = 0; j < 4; j++) out[j] = (float)((int)(word << (24 - 8 * j)) >> 24);
}

DEVICE void bytes_to_floats(const uint4& v, float scale, float offset, float* out) {
    const u32 words[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (int k = 0; k < 4; k++) {
        bytes_to_floats(words[k], out + 4 * k);
#pragma unroll
        for (int j = 0; j < 4; j++) out[4 * k + j] = fmaf(out[4 * k + j], scale, offset);
    }
}

// ------------------------------------------------------------ floats

struct F32 {
    static const int COLUMNS = 4;
    struct Row {
        const uint4* values;
        u32 first;
    };
    struct Unit {
        uint4 values;
    };
    struct Input {
        float4 values;
    };
    DEVICE int units(int n_cols) { return (n_cols + 3) / 4; }
    DEVICE int column(int unit, int i) { return 4 * unit + i; }
    DEVICE Row row(const Planes& m, int n_cols, int r) { return {(const uint4*)m.at[0], (u32)r * units(n_cols)}; }
    DEVICE Unit load(const Row& row, int unit) { return {load_once(row.values + (row.first + unit))}; }
    DEVICE Input input(const Vector& x, int unit) { return {four_of(x, 4 * unit)}; }
    DEVICE void values(const Unit& w, float (&out)[COLUMNS]) {
        out[0] = __uint_as_float(w.values.x);
        out[1] = __uint_as_float(w.values.y);
        out[2] = __uint_as_float(w.values.z);
        out[3] = __uint_as_float(w.values.w);
    }
    DEVICE float dot(const Unit& w, const Input& v, float sum) {
        float a[COLUMNS];
        values(w, a);
        return fmaf(a[3], v.values.w, fmaf(a[2], v.values.z, fmaf(a[1], v.values.y, fmaf(a[0], v.values.x, sum))));
    }
};

// Two bytes a number. BRAIN: the upper halves of float32 instead of half precision.
template <bool BRAIN>
struct TwoByteFloats {
    static const int COLUMNS = 8;
    struct Row {
        const uint4* values;
        u32 first;
    };
    struct Unit {
        uint4 values;
    };
    struct Input {
        float4 low, high;
    };
    DEVICE int units(int n_cols) { return (n_cols + 7) / 8; }
    DEVICE int column(int unit, int i) { return 8 * unit + i; }
    DEVICE Row row(const Planes& m, int n_cols, int r) { return {(const uint4*)m.at[0], (u32)r * units(n_cols)}; }
    DEVICE Unit load(const Row& row, int unit) { return {load_once(row.values + (row.first + unit))}; }
    DEVICE Input input(const Vector& x, int unit) { return {four_of(x, 8 * unit), four_of(x, 8 * unit + 4)}; }
    DEVICE float2 pair(u32 word) { return BRAIN ? bfloats_to_floats(word) : halves_to_floats(word); }
    DEVICE void values(const Unit& w, float (&out)[COLUMNS]) {
        const u32 words[4] = {w.values.x, w.values.y, w.values.z, w.values.w};
#pragma unroll
        for (int k = 0; k < 4; k++) {
            const float2 v = pair(words[k]);
            out[2 * k] = v.x;
            out[2 * k + 1] = v.y;
        }
    }
    DEVICE float dot(const Unit& w, const Input& v, float sum) {
        float a[COLUMNS];
        values(w, a);
        sum = fmaf(a[3], v.low.w, fmaf(a[2], v.low.z, fmaf(a[1], v.low.y, fmaf(a[0], v.low.x, sum))));
        return fmaf(a[7], v.high.w, fmaf(a[6], v.high.z, fmaf(a[5], v.high.y, fmaf(a[4], v.high.x, sum))));
    }
};
typedef TwoByteFloats<false> F16;
typedef TwoByteFloats<true> BF16;

// ------------------------------------------------------------ blocks of 32

// A unit is half a block.
struct Q8_0 {
    static const int COLUMNS = 16;
    struct Row {
        const uint4* bytes;
        const u16* scales;
        u32 first, first_scale;
    };
    struct Unit {
        uint4 bytes;
        u16 scale;
    };
    struct Input {
        uint4 bytes;
        float scale;
    };
    DEVICE int blocks(int n_cols) { return (n_cols + 31) / 32; }
    DEVICE int units(int n_cols) { return 2 * blocks(n_cols); }
    DEVICE int column(int unit, int i) { return 16 * unit + i; }
    DEVICE Row row(const Planes& m, int n_cols, int r) {
        return {(const uint4*)m.at[0], (const u16*)m.at[1], (u32)r * units(n_cols), r * filled_halves(blocks(n_cols))};
    }
    DEVICE Unit load(const Row& row, int unit) {
        return {load_once(row.bytes + (row.first + unit)), __ldg(row.scales + (row.first_scale + unit / 2))};
    }
    DEVICE Input input(const Vector& x, int unit) {
        return {__ldg((const uint4*)x.bytes + unit), __ldg(x.scales + unit / 2).x};
    }
    DEVICE void values(const Unit& w, float (&out)[COLUMNS]) {
        bytes_to_floats(w.bytes, half_to_float(w.scale), 0.f, out);
    }
    DEVICE float dot(const Unit& w, const Input& v, float sum) {
        return fmaf((float)dot16(w.bytes, v.bytes, 0), half_to_float(w.scale) * v.scale, sum);
    }
};

// A unit is a block: numbers 0 to 15 are its low nibbles, 16 to 31 its high ones.
struct Q4_0 {
    static const int COLUMNS = 32;
    struct Row {
        const uint4* bytes;
        const u16* scales;
        u32 first, first_scale;
    };
    struct Unit {
        uint4 bytes;
        u16 scale;
    };
    struct Input {
        uint4 low, high;
        float2 scales;
    };
    DEVICE int units(int n_cols) { return (n_cols + 31) / 32; }
    DEVICE int column(int unit, int i) { return 32 * unit + i; }
    DEVICE Row row(const Planes& m, int n_cols, int r) {
        return {(const uint4*)m.at[0], (const u16*)m.at[1], (u32)r * units(n_cols), r * filled_halves(units(n_cols))};
    }
    DEVICE Unit load(const Row& row, int unit) {
        return {load_once(row.bytes + (row.first + unit)), __ldg(row.scales + (row.first_scale + unit))};
    }
    DEVICE Input input(const Vector& x, int unit) {
        const uint4* bytes = (const uint4*)x.bytes + 2 * unit;
        return {__ldg(bytes), __ldg(bytes + 1), __ldg(x.scales + unit)};
    }
    DEVICE void values(const Unit& w, float (&out)[COLUMNS]) {
        const float scale = half_to_float(w.scale), offset = -8.f * scale;
        bytes_to_floats(lower_halves(w.bytes), scale, offset, out);
        bytes_to_floats(upper_halves(w.bytes), scale, offset, out + 16);
    }
    DEVICE float dot(const Unit& w, const Input& v, float sum) {
        const int whole = dot16(upper_halves(w.bytes), v.high, dot16(lower_halves(w.bytes), v.low, 0));
        return fmaf(half_to_float(w.scale), fmaf((float)whole, v.scales.x, -8.f * v.scales.y), sum);
    }
};

// ------------------------------------------------------------ superblocks of 256

// A unit is an eighth of a superblock: of 64 columns 16 in the low nibbles, and the 16 that follow 32 later in the high
// ones. Those are halves of two groups of 32, each with a scale and a minimum; the minimum of the first group is
// subtracted by the first half's unit, that of the second group by the second half's.
struct Q4_K {
    static const int COLUMNS = 32;
    struct Row {
        const uint4 *bytes, *scales;
        u32 first;
    };
    struct Unit {
        uint4 bytes, scales;
        int unit;
    };
    struct Input {
        uint4 low, high;
        float low_scale, high_scale, sum;  // sum: of the group whose minimum is this unit's
    };
    DEVICE int blocks(int n_cols) { return (n_cols + 255) / 256; }
    DEVICE int units(int n_cols) { return 8 * blocks(n_cols); }
    DEVICE int column(int unit, int i) { return unit / 2 * 64 + unit % 2 * 16 + i + (i & 16); }
    DEVICE Row row(const Planes& m, int n_cols, int r) {
        return {(const uint4*)m.at[0], (const uint4*)m.at[1], (u32)r * units(n_cols)};
    }
    DEVICE Unit load(const Row& row, int unit) {
        const u32 at = row.first + unit;
        return {load_once(row.bytes + at), __ldg(row.scales + at / 8), unit};
    }
    DEVICE Input input(const Vector& x, int unit) {
        const uint4* bytes = (const uint4*)x.bytes + unit / 2 * 4 + unit % 2;
        const float4 scales = __ldg((const float4*)x.scales + unit / 2);
        return {__ldg(bytes), __ldg(bytes + 2), scales.x, scales.z, unit & 1 ? scales.w : scales.y};
    }
    // The scales (x, y) and the minima (z, w) of the unit's two groups, times the large factors.
    DEVICE float4 factors(const Unit& w) {
        const int down = (w.unit & 2) * 8;  // a pair of groups has 16 bits of each word
        const u32 first = w.scales.y >> down, second = w.scales.z >> down, shared = w.scales.w >> down;
        const bool late = w.unit & 4;
        const u32 scales = late ? (shared & 0x0f0fu) | ((first >> 2) & 0x3030u) : first & 0x3f3fu;
        const u32 minima = late ? ((shared >> 4) & 0x0f0fu) | ((second >> 2) & 0x3030u) : second & 0x3f3fu;
        const float2 large = halves_to_floats(w.scales.x);
        return make_float4(large.x * (float)(scales & 255), large.x * (float)(scales >> 8),
                           large.y * (float)(minima & 255), large.y * (float)(minima >> 8));
    }
    DEVICE void values(const Unit& w, float (&out)[COLUMNS]) {
        const float4 f = factors(w);
        bytes_to_floats(lower_halves(w.bytes), f.x, -f.z, out);
        bytes_to_floats(upper_halves(w.bytes), f.y, -f.w, out + 16);
    }
    DEVICE float dot(const Unit& w, const Input& v, float sum) {
        const float4 f = factors(w);
        const float low = (float)dot16(lower_halves(w.bytes), v.low, 0) * v.low_scale;
        const float high = (float)dot16(upper_halves(w.bytes), v.high, 0) * v.high_scale;
        return fmaf(-(w.unit & 1 ? f.w : f.z), v.sum, fmaf(f.y, high, fmaf(f.x, low, sum)));
    }
};

// A unit is an eighth of a superblock: of 128 columns 16 in the low nibbles, and the 16 that follow 64 later in the
// high ones, each 16 with a scale of their own. Their upper two bits are in 16 bytes that two units share.
struct Q6_K {
    static const int COLUMNS = 32;
    struct Row {
        const uint4 *low, *high;
        const signed char* scales;
        const u16* large;
        u32 first, first_large;
    };
    struct Unit {
        uint4 low, high;
        u16 large;
        signed char low_scale, high_scale;
        int shift;
    };
    struct Input {
        uint4 low, high;
        float low_scale, high_scale;
        int low_start, high_start;  // -32 times the sums of the bytes
    };
    DEVICE int blocks(int n_cols) { return (n_cols + 255) / 256; }
    DEVICE int units(int n_cols) { return 8 * blocks(n_cols); }
    DEVICE int column(int unit, int i) { return unit / 4 * 128 + unit % 4 * 16 + i % 16 + i / 16 * 64; }
    DEVICE Row row(const Planes& m, int n_cols, int r) {
        return {(const uint4*)m.at[0], (const uint4*)m.at[1], (const signed char*)m.at[2], (const u16*)m.at[3],
                (u32)r * units(n_cols), r * filled_halves(blocks(n_cols))};
    }
    DEVICE Unit load(const Row& row, int unit) {
        const u32 at = row.first + unit;
        const uint4 low = load_once(row.low + at), high = __ldg(row.high + (at / 4 * 2 + at % 2));
        const signed char* scales = row.scales + (at / 4 * 8 + at % 4);
        return {low, high, __ldg(row.large + (row.first_large + unit / 8)), __ldg(scales), __ldg(scales + 4), unit & 2};
    }
    DEVICE Input input(const Vector& x, int unit) {
        const uint4* bytes = (const uint4*)x.bytes + unit / 4 * 8 + unit % 4;
        const float2* scales = x.scales + unit / 4 * 4 + unit % 4 / 2;
        const uint4 low = __ldg(bytes), high = __ldg(bytes + 4);
        const uint4 minus = make_uint4(0xe0e0e0e0u, 0xe0e0e0e0u, 0xe0e0e0e0u, 0xe0e0e0e0u);  // bytes of -32
        return {low, high, __ldg(scales).x, __ldg(scales + 2).x, dot16(minus, low, 0), dot16(minus, high, 0)};
    }
    DEVICE uint4 with_upper(const uint4& halves, const uint4& upper, int down) {
        const u32 m = 0x30303030u;
        return make_uint4(halves.x | ((upper.x >> down << 4) & m), halves.y | ((upper.y >> down << 4) & m),
                          halves.z | ((upper.z >> down << 4) & m), halves.w | ((upper.w >> down << 4) & m));
    }
    DEVICE uint4 low_numbers(const Unit& w) { return with_upper(lower_halves(w.low), w.high, w.shift); }
    DEVICE uint4 high_numbers(const Unit& w) { return with_upper(upper_halves(w.low), w.high, w.shift + 4); }
    DEVICE void values(const Unit& w, float (&out)[COLUMNS]) {
        const float large = half_to_float(w.large), low = large * (float)w.low_scale, high = large * (float)w.high_scale;
        bytes_to_floats(low_numbers(w), low, -32.f * low, out);
        bytes_to_floats(high_numbers(w), high, -32.f * high, out + 16);
    }
    DEVICE float dot(const Unit& w, const Input& v, float sum) {
        const float low = (float)(dot16(low_numbers(w), v.low, v.low_start) * w.low_scale) * v.low_scale;
        const float high = (float)(dot16(high_numbers(w), v.high, v.high_start) * w.high_scale) * v.high_scale;
        return fmaf(half_to_float(w.large), low + high, sum);
    }
};

// ------------------------------------------------------------ rows times a vector

// sums[i] += the units `unit`, unit + step, ... of rows[i] times those of x: a lane's share, to be summed over the
// lanes. The rows may be of several matrices of one codec. AHEAD * ROWS loads are in flight at once.
template <class C, int ROWS, int AHEAD>
DEVICE void add_dots(
    const typename C::Row (&rows)[ROWS], const Vector& x, int unit, int step, int n_units, float (&sums)[ROWS]) {
#pragma unroll 1
    for (; unit < n_units; unit += AHEAD * step) {
        typename C::Unit w[AHEAD][ROWS];
#pragma unroll
        for (int a = 0; a < AHEAD; a++) {
            if (unit + a * step < n_units) {
#pragma unroll
                for (int i = 0; i < ROWS; i++) w[a][i] = C::load(rows[i], unit + a * step);
            }
        }
#pragma unroll
        for (int a = 0; a < AHEAD; a++) {
            if (unit + a * step < n_units) {
                const typename C::Input v = C::input(x, unit + a * step);
#pragma unroll
                for (int i = 0; i < ROWS; i++) sums[i] = C::dot(w[a][i], v, sums[i]);
            }
        }
    }
}
