// Rows of a weight matrix in the GPU's layout (layouts.py): how a lane reads a unit of one, multiplies it by the same
// columns of a vector, or gets it as floats. One struct per codec; launches nothing.
//
// A unit is what one lane takes at a time: 16 bytes of a row's first plane, which two units share where numbers have two
// bits there, and the corresponding bytes of the others. A warp takes 32 adjacent units, so that it reads whole lines.
// Every struct has:
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
    if (c + 4 <= x.n) return *(const float4*)(x.values + c);
    float4 v = make_float4(0.f, 0.f, 0.f, 0.f);
    if (c < x.n) v.x = x.values[c];
    if (c + 1 < x.n) v.y = x.values[c + 1];
    if (c + 2 < x.n) v.z = x.values[c + 2];
    return v;
}

// n items padded to 16 bytes: a row of a plane of scales.
template <class T>
DEVICE u32 filled(int n) {
    const u32 of_line = 16 / sizeof(T);
    return (n + of_line - 1) / of_line * of_line;
}

DEVICE u32 word_of(const uint4& v, int i) { return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w; }

// The lowest four bits as the fifth ones of four bytes.
DEVICE u32 fifth_of_four(u32 bits) { return (bits & 15) * 0x02040810u & 0x10101010u; }

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
        return {(const uint4*)m.at[0], (const u16*)m.at[1], (u32)r * units(n_cols), r * filled<u16>(blocks(n_cols))};
    }
    DEVICE Unit load(const Row& row, int unit) {
        return {load_once(row.bytes + (row.first + unit)), __ldg(row.scales + (row.first_scale + unit / 2))};
    }
    DEVICE Input input(const Vector& x, int unit) {
        return {((const uint4*)x.bytes)[unit], x.scales[unit / 2].x};
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
        return {(const uint4*)m.at[0], (const u16*)m.at[1], (u32)r * units(n_cols), r * filled<u16>(units(n_cols))};
    }
    DEVICE Unit load(const Row& row, int unit) {
        return {load_once(row.bytes + (row.first + unit)), __ldg(row.scales + (row.first_scale + unit))};
    }
    DEVICE Input input(const Vector& x, int unit) {
        const uint4* bytes = (const uint4*)x.bytes + 2 * unit;
        return {bytes[0], bytes[1], x.scales[unit]};
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

// The scales (x, y) and the minima (z, w) of the two groups of a unit of Q4_K or Q5_K, times the large factors.
DEVICE float4 factors_of(const uint4& head, int unit) {
    const int down = (unit & 2) * 8;  // a pair of groups has 16 bits of each word
    const u32 first = head.y >> down, second = head.z >> down, shared = head.w >> down;
    const bool late = unit & 4;
    const u32 scales = late ? (shared & 0x0f0fu) | ((first >> 2) & 0x3030u) : first & 0x3f3fu;
    const u32 minima = late ? ((shared >> 4) & 0x0f0fu) | ((second >> 2) & 0x3030u) : second & 0x3f3fu;
    const float2 large = halves_to_floats(head.x);
    return make_float4(large.x * (float)(scales & 255), large.x * (float)(scales >> 8),
                       large.y * (float)(minima & 255), large.y * (float)(minima >> 8));
}

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
        const float4 scales = ((const float4*)x.scales)[unit / 2];
        return {bytes[0], bytes[2], scales.x, scales.z, unit & 1 ? scales.w : scales.y};
    }
    DEVICE float4 factors(const Unit& w) { return factors_of(w.scales, w.unit); }
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
                (u32)r * units(n_cols), r * filled<u16>(blocks(n_cols))};
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
        const uint4 low = bytes[0], high = bytes[4];
        const uint4 minus = make_uint4(0xe0e0e0e0u, 0xe0e0e0e0u, 0xe0e0e0e0u, 0xe0e0e0e0u);  // bytes of -32
        return {low, high, scales[0].x, scales[2].x, dot16(minus, low, 0), dot16(minus, high, 0)};
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

// ------------------------------------------------------------ units of two times 16 columns

// What the codecs below share, all but how a unit is read. The bytes of columns 4 k to 4 k + 3 of the first 16 are low
// word k, those of the last 16, which begin GAP columns after the first, high word k. C has, beside Row and Unit:
//
//   BLOCK, GAP              columns of a block; 16, or 32 if two units share their columns
//   HAS_MINIMA              number = scale * byte - minimum; else the bytes are signed, and number = scale * byte
//   HALF_GROUPS             scales are for 16 columns, not for 32
//   words(w, k, low, high)  low and high word k
//   factors(w)              scales (x, y) and minima (z, w) of the first and the last 16 columns
template <class C>
struct TwoSixteens {
    static const int COLUMNS = 32;
    // Sums of the columns that each minimum of the unit is subtracted from, 0 if another unit subtracts it.
    struct Input {
        uint4 low, high;
        float low_scale, high_scale, low_sum, high_sum;
    };
    DEVICE int blocks(int n_cols) { return (n_cols + C::BLOCK - 1) / C::BLOCK; }
    DEVICE int units(int n_cols) { return C::BLOCK / 32 * blocks(n_cols); }
    DEVICE int first_column(int unit) { return C::GAP == 16 ? 32 * unit : unit / 2 * 64 + unit % 2 * 16; }
    DEVICE int column(int unit, int i) { return first_column(unit) + i % 16 + i / 16 * C::GAP; }
    DEVICE Input input(const Vector& x, int unit) {
        const uint4* bytes = (const uint4*)x.bytes + first_column(unit) / 16;
        const uint4 low = bytes[0], high = bytes[C::GAP / 16];
        if (C::GAP == 16) {
            const float2 scales = x.scales[unit];
            return {low, high, scales.x, scales.x, scales.y, 0.f};
        }
        const float4 scales = ((const float4*)x.scales)[unit / 2];
        if (C::HALF_GROUPS) {
            const uint4 ones = make_uint4(0x01010101u, 0x01010101u, 0x01010101u, 0x01010101u);
            return {low, high, scales.x, scales.z, scales.x * (float)dot16(ones, low, 0),
                    scales.z * (float)dot16(ones, high, 0)};
        }
        return {low, high, scales.x, scales.z, unit & 1 ? 0.f : scales.y, unit & 1 ? scales.w : 0.f};
    }
    template <class Unit>
    DEVICE void all_words(const Unit& w, uint4& low, uint4& high) {
        C::words(w, 0, low.x, high.x);
        C::words(w, 1, low.y, high.y);
        C::words(w, 2, low.z, high.z);
        C::words(w, 3, low.w, high.w);
    }
    template <class Unit>
    DEVICE void values(const Unit& w, float (&out)[COLUMNS]) {
        const float4 f = C::factors(w);
        uint4 low, high;
        all_words(w, low, high);
        bytes_to_floats(low, f.x, -f.z, out);
        bytes_to_floats(high, f.y, -f.w, out + 16);
    }
    template <class Unit>
    DEVICE float dot(const Unit& w, const Input& v, float sum) {
        const float4 f = C::factors(w);
        uint4 low, high;
        all_words(w, low, high);
        if (C::GAP == 16) {
            sum = fmaf(f.x, (float)dot16(high, v.high, dot16(low, v.low, 0)) * v.low_scale, sum);
            return C::HAS_MINIMA ? fmaf(-f.z, v.low_sum, sum) : sum;
        }
        sum = fmaf(f.x, (float)dot16(low, v.low, 0) * v.low_scale, sum);
        sum = fmaf(f.y, (float)dot16(high, v.high, 0) * v.high_scale, sum);
        return C::HAS_MINIMA ? fmaf(-f.w, v.high_sum, fmaf(-f.z, v.low_sum, sum)) : sum;
    }
};

// A block of 32: nibbles, with FIFTH a word of their fifth bits in the order of the columns; a scale, with MINIMUM
// followed by what is added, else 16 times the scale is subtracted.
template <bool FIFTH, bool MINIMUM>
struct SmallBlock : TwoSixteens<SmallBlock<FIFTH, MINIMUM>> {
    static const int BLOCK = 32, GAP = 16;
    static const bool HAS_MINIMA = true, HALF_GROUPS = false;
    struct Row {
        const uint4* nibbles;
        const u32* fifth;
        const void* scales;
        u32 first, first_word, first_half;
    };
    struct Unit {
        uint4 nibbles;
        u32 fifth, scales;
    };
    DEVICE Row row(const Planes& m, int n_cols, int r) {
        const int n = (n_cols + 31) / 32;
        return {(const uint4*)m.at[0], (const u32*)m.at[1], m.at[FIFTH ? 2 : 1], (u32)r * n, r * filled<u32>(n),
                r * filled<u16>(n)};
    }
    DEVICE Unit load(const Row& row, int unit) {
        const uint4 nibbles = load_once(row.nibbles + (row.first + unit));
        const u32 fifth = FIFTH ? __ldg(row.fifth + (row.first_word + unit)) : 0;
        if (MINIMUM) return {nibbles, fifth, __ldg((const u32*)row.scales + (row.first_word + unit))};
        return {nibbles, fifth, __ldg((const u16*)row.scales + (row.first_half + unit))};
    }
    DEVICE void words(const Unit& w, int k, u32& low, u32& high) {
        const u32 v = word_of(w.nibbles, k);
        low = (v & 0x0f0f0f0fu) | (FIFTH ? fifth_of_four(w.fifth >> (4 * k)) : 0);
        high = (v >> 4 & 0x0f0f0f0fu) | (FIFTH ? fifth_of_four(w.fifth >> (4 * k + 16)) : 0);
    }
    DEVICE float4 factors(const Unit& w) {
        const float2 both = halves_to_floats(w.scales);
        const float least = MINIMUM ? -both.y : 16.f * both.x;
        return make_float4(both.x, both.x, least, least);
    }
};
typedef SmallBlock<false, true> Q4_1;
typedef SmallBlock<true, false> Q5_0;
typedef SmallBlock<true, true> Q5_1;

// Levels that nibbles select, four bytes each, and the scale of a block of them.
struct NonLinear {
    static const u32 A = 0xbfad9881u, B = 0xf6eaddcfu, C = 0x26190d01u, D = 0x71594535u;
    typedef u16 Scale;
    DEVICE float scale(u16 bits) { return half_to_float(bits); }
};
// Twice the numbers of e2m1, so half of 2^(e - 127); the first two are subnormal.
struct Microscaled {
    static const u32 A = 0x03020100u, B = 0x0c080604u, C = 0xfdfeff00u, D = 0xf4f8fafcu;
    typedef u8 Scale;
    DEVICE float scale(u8 e) { return __uint_as_float(e < 2 ? 0x00200000u << e : (e - 1u) << 23); }
};

// The levels of four low and of four high nibbles.
template <class Levels>
DEVICE void look_up(u32 nibbles, u32& low, u32& high) {
    const u32 at = nibbles & 0x77777777u, half = 0x32103210u | (nibbles & 0x88888888u) >> 1;
    const u32 a = __byte_perm(__byte_perm(Levels::A, Levels::B, at), __byte_perm(Levels::C, Levels::D, at), half);
    const u32 b = __byte_perm(__byte_perm(Levels::A, Levels::B, at >> 16),
                              __byte_perm(Levels::C, Levels::D, at >> 16), half >> 16);
    low = __byte_perm(a, b, 0x6420), high = __byte_perm(a, b, 0x7531);
}

// A block of 32 levels and its scale.
template <class Levels>
struct LevelBlock : TwoSixteens<LevelBlock<Levels>> {
    static const int BLOCK = 32, GAP = 16;
    static const bool HAS_MINIMA = false, HALF_GROUPS = false;
    typedef typename Levels::Scale Scale;
    struct Row {
        const uint4* nibbles;
        const Scale* scales;
        u32 first, first_scale;
    };
    struct Unit {
        uint4 nibbles;
        Scale scale;
    };
    DEVICE Row row(const Planes& m, int n_cols, int r) {
        const int n = (n_cols + 31) / 32;
        return {(const uint4*)m.at[0], (const Scale*)m.at[1], (u32)r * n, r * filled<Scale>(n)};
    }
    DEVICE Unit load(const Row& row, int unit) {
        return {load_once(row.nibbles + (row.first + unit)), __ldg(row.scales + (row.first_scale + unit))};
    }
    DEVICE void words(const Unit& w, int k, u32& low, u32& high) { look_up<Levels>(word_of(w.nibbles, k), low, high); }
    DEVICE float4 factors(const Unit& w) {
        const float scale = Levels::scale(w.scale);
        return make_float4(scale, scale, 0.f, 0.f);
    }
};
typedef LevelBlock<NonLinear> IQ4_NL;
typedef LevelBlock<Microscaled> MXFP4;

// Eight units of 32 levels; their scales share 8 bytes.
struct IQ4_XS : TwoSixteens<IQ4_XS> {
    static const int BLOCK = 256, GAP = 16;
    static const bool HAS_MINIMA = false, HALF_GROUPS = false;
    struct Row {
        const uint4* nibbles;
        const uint2* heads;
        u32 first, first_head;
    };
    struct Unit {
        uint4 nibbles;
        uint2 head;
        int unit;
    };
    DEVICE Row row(const Planes& m, int n_cols, int r) {
        return {(const uint4*)m.at[0], (const uint2*)m.at[1], (u32)r * units(n_cols), r * filled<uint2>(blocks(n_cols))};
    }
    DEVICE Unit load(const Row& row, int unit) {
        return {load_once(row.nibbles + (row.first + unit)), __ldg(row.heads + (row.first_head + unit / 8)), unit};
    }
    DEVICE void words(const Unit& w, int k, u32& low, u32& high) {
        look_up<NonLinear>(word_of(w.nibbles, k), low, high);
    }
    DEVICE float4 factors(const Unit& w) {
        const int group = w.unit % 8;
        const u32 small = (w.head.y >> (4 * group) & 15) | (w.head.x >> (16 + 2 * group) & 3) << 4;
        const float scale = half_to_float((u16)w.head.x) * (float)((int)small - 32);
        return make_float4(scale, scale, 0.f, 0.f);
    }
};

// As Q4_K, with fifth bits: bit g of byte b is that of column 32 g + b of the superblock, so four units share 16 bytes.
struct Q5_K : TwoSixteens<Q5_K> {
    static const int BLOCK = 256, GAP = 32;
    static const bool HAS_MINIMA = true, HALF_GROUPS = false;
    struct Row {
        const uint4 *nibbles, *fifth, *heads;
        u32 first;
    };
    struct Unit {
        uint4 nibbles, fifth, head;
        int unit;
    };
    DEVICE Row row(const Planes& m, int n_cols, int r) {
        return {(const uint4*)m.at[0], (const uint4*)m.at[1], (const uint4*)m.at[2], (u32)r * units(n_cols)};
    }
    DEVICE Unit load(const Row& row, int unit) {
        const u32 at = row.first + unit;
        return {load_once(row.nibbles + at), __ldg(row.fifth + (at / 8 * 2 + at % 2)), __ldg(row.heads + at / 8), unit};
    }
    DEVICE void words(const Unit& w, int k, u32& low, u32& high) {
        const u32 v = word_of(w.nibbles, k), bits = word_of(w.fifth, k) >> (w.unit & 6);
        low = (v & 0x0f0f0f0fu) | (bits << 4 & 0x10101010u);
        high = (v >> 4 & 0x0f0f0f0fu) | (bits << 3 & 0x10101010u);
    }
    DEVICE float4 factors(const Unit& w) { return factors_of(w.head, w.unit); }
};

// Two bits of each number: two units share 16 bytes, of which each takes two pairs of bits of every byte. Every 16
// columns have a scale. Third bits lie as Q5_K's fifth ones.
struct Q3_K : TwoSixteens<Q3_K> {
    static const int BLOCK = 256, GAP = 32;
    static const bool HAS_MINIMA = true, HALF_GROUPS = true;
    struct Row {
        const uint4 *pairs, *third;
        const u32* scales;
        const u16* large;
        u32 first, first_scale, first_large;
    };
    struct Unit {
        uint4 pairs, third;
        u32 small, upper;
        u16 large;
        int unit;
    };
    DEVICE Row row(const Planes& m, int n_cols, int r) {
        const int n = blocks(n_cols);
        return {(const uint4*)m.at[0], (const uint4*)m.at[1], (const u32*)m.at[2], (const u16*)m.at[3],
                (u32)r * units(n_cols), r * filled<u32>(3 * n), r * filled<u16>(n)};
    }
    DEVICE Unit load(const Row& row, int unit) {
        const u32 at = row.first + unit;
        const u32* scales = row.scales + (row.first_scale + unit / 8 * 3);
        return {load_once(row.pairs + (at / 4 * 2 + at % 2)), __ldg(row.third + (at / 8 * 2 + at % 2)),
                __ldg(scales + unit / 2 % 2), __ldg(scales + 2), __ldg(row.large + (row.first_large + unit / 8)), unit};
    }
    DEVICE void words(const Unit& w, int k, u32& low, u32& high) {
        const u32 v = word_of(w.pairs, k) >> (2 * (w.unit & 2)), bits = word_of(w.third, k) >> (w.unit & 6);
        low = (v & 0x03030303u) | (bits << 2 & 0x04040404u);
        high = (v >> 2 & 0x03030303u) | (bits << 1 & 0x04040404u);
    }
    DEVICE float4 factors(const Unit& w) {
        const int odd = w.unit % 2 * 8;
        const u32 small = w.small >> (odd + (w.unit & 4)), upper = w.upper >> (odd + (w.unit & 6));
        const float large = half_to_float(w.large);
        const float low = large * (float)((int)((small & 15) | (upper & 3) << 4) - 32);
        const float high = large * (float)((int)((small >> 16 & 15) | (upper >> 16 & 3) << 4) - 32);
        return make_float4(low, high, 4.f * low, 4.f * high);
    }
};

// As Q3_K without third bits; the scales are low nibbles, the high ones are minima.
struct Q2_K : TwoSixteens<Q2_K> {
    static const int BLOCK = 256, GAP = 32;
    static const bool HAS_MINIMA = true, HALF_GROUPS = true;
    struct Row {
        const uint4* pairs;
        const u32 *scales, *large;
        u32 first, first_large;
    };
    struct Unit {
        uint4 pairs;
        u32 small, large;
        int unit;
    };
    DEVICE Row row(const Planes& m, int n_cols, int r) {
        return {(const uint4*)m.at[0], (const u32*)m.at[1], (const u32*)m.at[2], (u32)r * units(n_cols),
                r * filled<u32>(blocks(n_cols))};
    }
    DEVICE Unit load(const Row& row, int unit) {
        const u32 at = row.first + unit;
        return {load_once(row.pairs + (at / 4 * 2 + at % 2)), __ldg(row.scales + at / 2),
                __ldg(row.large + (row.first_large + unit / 8)), unit};
    }
    DEVICE void words(const Unit& w, int k, u32& low, u32& high) {
        const u32 v = word_of(w.pairs, k) >> (2 * (w.unit & 2));
        low = v & 0x03030303u, high = v >> 2 & 0x03030303u;
    }
    DEVICE float4 factors(const Unit& w) {
        const u32 small = w.small >> (w.unit % 2 * 8);
        const float2 large = halves_to_floats(w.large);
        return make_float4(large.x * (float)(small & 15), large.x * (float)(small >> 16 & 15),
                           large.y * (float)(small >> 4 & 15), large.y * (float)(small >> 20 & 15));
    }
};

// ------------------------------------------------------------ rows times a vector

DEVICE Vector further(const Vector& x, u64 step) {
    return {(const float*)((const u8*)x.values + step), x.bytes + step, (const float2*)((const u8*)x.scales + step),
            x.n};
}

// sums[k][i] += the units `unit`, unit + step, ... of rows[i] times those of vector k, of VECTORS that lie vector_step
// bytes apart: a lane's share, to be summed over the lanes. The rows may be of several matrices of one codec. AHEAD *
// ROWS loads are in flight at once. waits: for the previous kernel, with the first weights already in flight.
template <class C, int ROWS, int AHEAD, int VECTORS>
DEVICE void add_dots_of_several(const typename C::Row (&rows)[ROWS], const Vector& x, u64 vector_step, int unit,
                                int step, int n_units, float (&sums)[VECTORS][ROWS], bool waits = false) {
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
        if (waits) {
            WAIT;
            waits = false;
        }
#pragma unroll
        for (int a = 0; a < AHEAD; a++) {
            if (unit + a * step < n_units) {
#pragma unroll
                for (int k = 0; k < VECTORS; k++) {
                    const typename C::Input v = C::input(further(x, k * vector_step), unit + a * step);
#pragma unroll
                    for (int i = 0; i < ROWS; i++) sums[k][i] = C::dot(w[a][i], v, sums[k][i]);
                }
            }
        }
    }
}

// The same for one vector.
template <class C, int ROWS, int AHEAD>
DEVICE void add_dots(
    const typename C::Row (&rows)[ROWS], const Vector& x, int unit, int step, int n_units, float (&sums)[ROWS],
    bool waits = false) {
    add_dots_of_several<C, ROWS, AHEAD>(rows, x, 0, unit, step, n_units, (float(&)[1][ROWS])sums, waits);
}
