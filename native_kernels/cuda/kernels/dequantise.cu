// Convert weights to halves, for products of many positions (gemm.cu).
//
// Columns col0 .. col0 + n_cols, rows row0 .. row0 + gridDim.y of a matrix as halves, rows `step` halves apart; n_cols
// is rounded up to 8, col0 is a multiple of 8. A thread converts eight columns, so that a warp writes whole lines of
// memory. Larger numbers are clamped to the largest half.
// dequantise_*: from planes (layouts.py). stored_*: from rows as a file or a bundle stores them, row_bytes apart (a
// multiple of 16).
#include "halves.cuh"
#include "weights.cuh"

#define LARGEST_HALF 65504.f

// A thread's columns: `column` of the matrix and seven more, the eighth `eighth` of a group of 32.
struct Own {
    int column, group, eighth, end;
    u64 row;
    u16* to;

    __device__ __forceinline__ Own(int row0, int col0, int n_cols, u16* out, u64 step) {
        const int at = 8 * (blockIdx.x * blockDim.x + threadIdx.x);
        column = col0 + at;
        group = column / 32;
        eighth = column % 32 / 8;
        end = col0 + n_cols;
        row = row0 + blockIdx.y;
        to = out + blockIdx.y * step + at;
    }
    __device__ __forceinline__ bool none() const { return column >= end; }
    __device__ __forceinline__ void store(const u32 (&words)[4]) const {
        *(uint4*)to = make_uint4(words[0], words[1], words[2], words[3]);
    }
};

// ---------------------------------------------------------------- loads

__device__ __forceinline__ uint2 load_eight(const u8* at) { return __ldg((const uint2*)at); }

// Eight bytes with any alignment: aligned words, of which the third is read only if it is needed.
__device__ __forceinline__ uint2 eight_bytes(const u8* at) {
    const int skip = (int)((u64)at & 3);
    const u32* words = (const u32*)(at - skip);
    const u32 a = __ldg(words), b = __ldg(words + 1), c = skip ? __ldg(words + 2) : 0;
    return make_uint2(__funnelshift_r(a, b, 8 * skip), __funnelshift_r(b, c, 8 * skip));
}

// Four bytes with two-byte alignment.
__device__ __forceinline__ u32 four_bytes(const u8* at) {
    const u16* halves = (const u16*)at;
    return __ldg(halves) | (u32)__ldg(halves + 1) << 16;
}

__device__ __forceinline__ float half_at(const u8* at) { return from_half(__ldg((const u16*)at)); }

// ---------------------------------------------------------------- arithmetic

// Two numbers, clamped and rounded.
__device__ __forceinline__ u32 two_weights(float low, float high) {
    low = fminf(fmaxf(low, -LARGEST_HALF), LARGEST_HALF);
    high = fminf(fmaxf(high, -LARGEST_HALF), LARGEST_HALF);
#if __CUDA_ARCH__ >= 800
    u32 both;
    asm("cvt.rn.f16x2.f32 %0,%1,%2;" : "=r"(both) : "f"(high), "f"(low));
    return both;
#else
    return two_halves(low, high);
#endif
}

__device__ __forceinline__ void round_eight(u32 (&words)[4], const float (&v)[8]) {
#pragma unroll
    for (int i = 0; i < 4; i++) words[i] = two_weights(v[2 * i], v[2 * i + 1]);
}

// Byte i of a word as a number less `offset`: 2^23 with the byte as its low bits is a float without any conversion.
__device__ __forceinline__ float byte_less(u32 word, int i, float offset) {
    return __uint_as_float(__byte_perm(word, 0x4b000000u, 0x7540u | i)) - (8388608.f + offset);
}

// Four bytes less OFFSET, times a scale, as halves. 1024 with the byte as its low bits is a half, the difference is
// exact, and so the product of two halves is rounded once, as from floats. Scales of this many bits or more go through
// floats: their products could exceed the largest half.
template <u32 OFFSET, u32 TOO_LARGE>
__device__ __forceinline__ void scale_four(u32* words, u32 bytes, u16 scale) {
    if ((scale & 0x7fffu) < TOO_LARGE) {
        const u32 less = (0x6400u + OFFSET) * 0x10001u, factor = scale * 0x10001u;
#pragma unroll
        for (int i = 0; i < 2; i++) {
            u32 pair = __byte_perm(bytes, 0x64646464u, i ? 0x4342u : 0x4140u);
            asm("sub.rn.f16x2 %0,%0,%1;" : "+r"(pair) : "r"(less));
            asm("mul.rn.f16x2 %0,%1,%2;" : "=r"(words[i]) : "r"(pair), "r"(factor));
        }
    } else {
        const float factor = from_half(scale);
#pragma unroll
        for (int i = 0; i < 2; i++)
            words[i] = two_weights(factor * byte_less(bytes, 2 * i, OFFSET), factor * byte_less(bytes, 2 * i + 1, OFFSET));
    }
}

// ---------------------------------------------------------------- eight columns, codec by codec

__device__ __forceinline__ void of_bytes(u32 (&words)[4], uint2 q, u16 scale) {
    scale_four<128, 0x6000>(words, q.x ^ 0x80808080u, scale);
    scale_four<128, 0x6000>(words + 2, q.y ^ 0x80808080u, scale);
}

__device__ __forceinline__ uint2 nibbles(uint2 q, int high) {
    return make_uint2(q.x >> (4 * high) & 0x0f0f0f0fu, q.y >> (4 * high) & 0x0f0f0f0fu);
}

__device__ __forceinline__ void of_nibbles(u32 (&words)[4], uint2 q, u16 scale) {
    scale_four<8, 0x7000>(words, q.x, scale);
    scale_four<8, 0x7000>(words + 2, q.y, scale);
}

// Scale and minimum of a group, from d, dmin and the small scales of its superblock.
__device__ __forceinline__ float2 scales_of_q4_k(const u8* head, int group) {
    const u8* small = head + 4;
    int scale, least;
    if (group < 4) {
        scale = small[group] & 63;
        least = small[group + 4] & 63;
    } else {
        scale = (small[group + 4] & 15) | (small[group - 4] >> 6 << 4);
        least = (small[group + 4] >> 4) | (small[group] >> 6 << 4);
    }
    return make_float2(from_half(((const u16*)head)[0]) * (float)scale, from_half(((const u16*)head)[1]) * (float)least);
}

// scale * (byte - offset) - least
__device__ __forceinline__ void of_scaled(u32 (&words)[4], uint2 q, float scale, float offset, float least = 0.f) {
    float v[8];
#pragma unroll
    for (int i = 0; i < 8; i++) v[i] = scale * byte_less(i < 4 ? q.x : q.y, i & 3, offset) - least;
    round_eight(words, v);
}

// inside: the first of the columns in its superblock.
__device__ __forceinline__ void of_q6_k(u32 (&words)[4], uint2 l, uint2 h, float d, int inside) {
    const int shift = 2 * (inside % 128 / 32);
    const uint2 low = nibbles(l, inside % 128 / 64);
    const u32 x = low.x | (h.x >> shift & 0x03030303u) << 4, y = low.y | (h.y >> shift & 0x03030303u) << 4;
    of_scaled(words, make_uint2(x, y), d, 32.f);
}

// Bit `bit` of eight bytes as bit `to` of eight bytes of q.
__device__ __forceinline__ uint2 with_bits(uint2 q, uint2 bits, int bit, int to) {
    return make_uint2(q.x | (bits.x >> bit & 0x01010101u) << to, q.y | (bits.y >> bit & 0x01010101u) << to);
}

// The following take the fields of a block, in planes or in a file's row, and the nibbles of these with any alignment.

__device__ __forceinline__ uint2 own_nibbles(const u8* of_group, const Own& own) {
    return nibbles(eight_bytes(of_group + 8 * (own.eighth & 1)), own.eighth >> 1);
}

// With fifth bits, which are in the order of the columns.
__device__ __forceinline__ uint2 five_bits(const u8* of_group, const u8* fifth, const Own& own) {
    const u32 bits = four_bytes(fifth) >> (8 * own.eighth);
    const uint2 q = own_nibbles(of_group, own);
    return make_uint2(q.x | fifth_of_four(bits), q.y | fifth_of_four(bits >> 4));
}

__device__ __forceinline__ void of_q4_1(u32 (&words)[4], const u8* low, const u8* scales, const Own& own) {
    of_scaled(words, own_nibbles(low, own), half_at(scales), 0.f, -half_at(scales + 2));
}

__device__ __forceinline__ void of_q5_0(
    u32 (&words)[4], const u8* low, const u8* fifth, const u8* scale, const Own& own) {
    of_scaled(words, five_bits(low, fifth, own), half_at(scale), 16.f);
}

__device__ __forceinline__ void of_q5_1(
    u32 (&words)[4], const u8* low, const u8* fifth, const u8* scales, const Own& own) {
    of_scaled(words, five_bits(low, fifth, own), half_at(scales), 0.f, -half_at(scales + 2));
}

// Levels by nibbles, as weights.cuh has them.
template <class Levels>
__device__ __forceinline__ void of_levels(u32 (&words)[4], const u8* of_group, float scale, const Own& own) {
    const uint2 q = eight_bytes(of_group + 8 * (own.eighth & 1));
    uint2 low, high;
    look_up<Levels>(q.x, low.x, high.x);
    look_up<Levels>(q.y, low.y, high.y);
    const uint2 found = own.eighth >> 1 ? high : low;
    of_scaled(words, make_uint2(found.x ^ 0x80808080u, found.y ^ 0x80808080u), scale, 128.f);
}

__device__ __forceinline__ void of_iq4_xs(u32 (&words)[4], const u8* low, const u8* head, const Own& own) {
    const int group = own.group % 8;
    const u32 small = (four_bytes(head + 4) >> (4 * group) & 15) | (four_bytes(head) >> (16 + 2 * group) & 3) << 4;
    of_levels<NonLinear>(words, low + 16 * group, half_at(head) * (float)((int)small - 32), own);
}

__device__ __forceinline__ void of_q5_k(
    u32 (&words)[4], const u8* low, const u8* fifth, const u8* head, const Own& own) {
    const int group = own.group % 8;
    const uint2 q = nibbles(load_eight(low + 32 * (group / 2) + 8 * own.eighth), group & 1);
    const float2 scales = scales_of_q4_k(head, group);
    of_scaled(words, with_bits(q, load_eight(fifth + 8 * own.eighth), group, 4), scales.x, 0.f, scales.y);
}

// Two bits of each number, at bits 0, 2, 4 and 6 of 32 bytes.
__device__ __forceinline__ uint2 own_pairs(const u8* pairs, const Own& own) {
    const uint2 q = eight_bytes(pairs + own.group % 8 / 4 * 32 + 8 * own.eighth);
    const int shift = 2 * (own.group % 4);
    return make_uint2(q.x >> shift & 0x03030303u, q.y >> shift & 0x03030303u);
}

__device__ __forceinline__ void of_q3_k(
    u32 (&words)[4], const u8* pairs, const u8* third, const u8* scales, const u8* large, const Own& own) {
    const int group = own.group % 8, small = 2 * group + own.eighth / 2;  // number of the scale
    const u32 low = scales[small % 8] >> (small / 8 * 4) & 15, upper = scales[8 + small % 4] >> (small / 4 * 2) & 3;
    const uint2 q = with_bits(own_pairs(pairs, own), eight_bytes(third + 8 * own.eighth), group, 2);
    of_scaled(words, q, half_at(large) * (float)((int)(low | upper << 4) - 32), 4.f);
}

__device__ __forceinline__ void of_q2_k(
    u32 (&words)[4], const u8* pairs, const u8* scales, const u8* large, const Own& own) {
    const u32 small = scales[2 * (own.group % 8) + own.eighth / 2];
    of_scaled(words, own_pairs(pairs, own), half_at(large) * (float)(small & 15), 0.f,
              half_at(large + 2) * (float)(small >> 4));
}

// ---------------------------------------------------------------- planes

#define OWN                                       \
    const Own own(row0, col0, n_cols, out, step); \
    if (own.none()) return;                       \
    u32 words[4]

KERNEL dequantise_f32(const u8* values, u64 row_bytes, int row0, int col0, int n_cols, u16* out, u64 step) {
    WAIT;
    OWN;
    const float* from = (const float*)(values + own.row * row_bytes) + own.column;
    float v[8];
#pragma unroll
    for (int i = 0; i < 8; i++) v[i] = own.column + i < own.end ? __ldg(from + i) : 0.f;
    round_eight(words, v);
    own.store(words);
}

KERNEL dequantise_bf16(const u8* values, u64 row_bytes, int row0, int col0, int n_cols, u16* out, u64 step) {
    WAIT;
    OWN;
    const u16* from = (const u16*)(values + own.row * row_bytes) + own.column;
    float v[8];
#pragma unroll
    for (int i = 0; i < 8; i++) v[i] = own.column + i < own.end ? __uint_as_float((u32)__ldg(from + i) << 16) : 0.f;
    round_eight(words, v);
    own.store(words);
}

KERNEL dequantise_q8_0(const u8* bytes, u64 row_bytes, const u8* scales, u64 scale_bytes, int row0, int col0, int n_cols,
                       u16* out, u64 step) {
    WAIT;
    OWN;
    const u16 scale = __ldg((const u16*)(scales + own.row * scale_bytes) + own.group);
    of_bytes(words, load_eight(bytes + own.row * row_bytes + own.column), scale);
    own.store(words);
}

KERNEL dequantise_q4_0(const u8* bytes, u64 row_bytes, const u8* scales, u64 scale_bytes, int row0, int col0, int n_cols,
                       u16* out, u64 step) {
    WAIT;
    OWN;
    const uint2 q = load_eight(bytes + own.row * row_bytes + 16 * own.group + 8 * (own.eighth & 1));
    const u16 scale = __ldg((const u16*)(scales + own.row * scale_bytes) + own.group);
    of_nibbles(words, nibbles(q, own.eighth >> 1), scale);
    own.store(words);
}

KERNEL dequantise_q4_k(const u8* bytes, u64 row_bytes, const u8* scales, u64 scale_bytes, int row0, int col0, int n_cols,
                       u16* out, u64 step) {
    WAIT;
    OWN;
    const int block = own.group / 8, group = own.group % 8;
    const uint2 q = load_eight(bytes + own.row * row_bytes + 128 * block + 32 * (group / 2) + 8 * own.eighth);
    const float2 factors = scales_of_q4_k(scales + own.row * scale_bytes + 16 * block, group);
    of_scaled(words, nibbles(q, group & 1), factors.x, 0.f, factors.y);
    own.store(words);
}

KERNEL dequantise_q6_k(const u8* low, u64 low_bytes, const u8* high, u64 high_bytes, const u8* scales, u64 scale_bytes,
                       const u8* ds, u64 d_bytes, int row0, int col0, int n_cols, u16* out, u64 step) {
    WAIT;
    OWN;
    const int block = own.column / 256, inside = own.column % 256, half = inside / 128;
    const uint2 l = load_eight(low + own.row * low_bytes + 128 * block + 64 * half + inside % 64);
    const uint2 h = load_eight(high + own.row * high_bytes + 64 * block + 32 * half + inside % 32);
    const float scale = (float)(signed char)__ldg(scales + own.row * scale_bytes + 16 * block + inside / 16);
    of_q6_k(words, l, h, from_half(__ldg((const u16*)(ds + own.row * d_bytes) + block)) * scale, inside);
    own.store(words);
}

// Address of the own block's `size` bytes in a plane.
#define PLANE(plane, size) (plane + own.row * plane##_bytes + (size) * block)

KERNEL dequantise_mxfp4(const u8* a, u64 a_bytes, const u8* b, u64 b_bytes, int row0, int col0, int n_cols, u16* out,
                        u64 step) {
    WAIT;
    OWN;
    const int block = own.group;
    of_levels<Microscaled>(words, PLANE(a, 16), Microscaled::scale(__ldg(PLANE(b, 1))), own);
    own.store(words);
}

KERNEL dequantise_q5_k(const u8* a, u64 a_bytes, const u8* b, u64 b_bytes, const u8* c, u64 c_bytes, int row0, int col0,
                       int n_cols, u16* out, u64 step) {
    WAIT;
    OWN;
    const int block = own.group / 8;
    of_q5_k(words, PLANE(a, 128), PLANE(b, 32), PLANE(c, 16), own);
    own.store(words);
}

KERNEL dequantise_iq4_nl(const u8* a, u64 a_bytes, const u8* b, u64 b_bytes, int row0, int col0, int n_cols, u16* out,
                         u64 step) {
    WAIT;
    OWN;
    const int block = own.group;
    of_levels<NonLinear>(words, PLANE(a, 16), half_at(PLANE(b, 2)), own);
    own.store(words);
}

KERNEL dequantise_iq4_xs(const u8* a, u64 a_bytes, const u8* b, u64 b_bytes, int row0, int col0, int n_cols, u16* out,
                         u64 step) {
    WAIT;
    OWN;
    const int block = own.group / 8;
    of_iq4_xs(words, PLANE(a, 128), PLANE(b, 8), own);
    own.store(words);
}

KERNEL dequantise_q5_0(const u8* a, u64 a_bytes, const u8* b, u64 b_bytes, const u8* c, u64 c_bytes, int row0, int col0,
                       int n_cols, u16* out, u64 step) {
    WAIT;
    OWN;
    const int block = own.group;
    of_q5_0(words, PLANE(a, 16), PLANE(b, 4), PLANE(c, 2), own);
    own.store(words);
}

KERNEL dequantise_q4_1(const u8* a, u64 a_bytes, const u8* b, u64 b_bytes, int row0, int col0, int n_cols, u16* out,
                       u64 step) {
    WAIT;
    OWN;
    const int block = own.group;
    of_q4_1(words, PLANE(a, 16), PLANE(b, 4), own);
    own.store(words);
}

KERNEL dequantise_q5_1(const u8* a, u64 a_bytes, const u8* b, u64 b_bytes, const u8* c, u64 c_bytes, int row0, int col0,
                       int n_cols, u16* out, u64 step) {
    WAIT;
    OWN;
    const int block = own.group;
    of_q5_1(words, PLANE(a, 16), PLANE(b, 4), PLANE(c, 4), own);
    own.store(words);
}

KERNEL dequantise_q3_k(const u8* a, u64 a_bytes, const u8* b, u64 b_bytes, const u8* c, u64 c_bytes,
                       const u8* d, u64 d_bytes, int row0, int col0, int n_cols, u16* out, u64 step) {
    WAIT;
    OWN;
    const int block = own.group / 8;
    of_q3_k(words, PLANE(a, 64), PLANE(b, 32), PLANE(c, 12), PLANE(d, 2), own);
    own.store(words);
}

KERNEL dequantise_q2_k(const u8* a, u64 a_bytes, const u8* b, u64 b_bytes, const u8* c, u64 c_bytes, int row0, int col0,
                       int n_cols, u16* out, u64 step) {
    WAIT;
    OWN;
    const int block = own.group / 8;
    of_q2_k(words, PLANE(a, 64), PLANE(b, 16), PLANE(c, 4), own);
    own.store(words);
}

// ---------------------------------------------------------------- rows as files and bundles store them

KERNEL stored_q8_0(const u8* rows, u64 row_bytes, int row0, int col0, int n_cols, u16* out, u64 step) {
    WAIT;
    OWN;
    const u8* block = rows + own.row * row_bytes + 34 * own.group;
    const uint2 q = eight_bytes(block + 2 + 8 * own.eighth);
    of_bytes(words, q, __ldg((const u16*)block));
    own.store(words);
}

KERNEL stored_q4_0(const u8* rows, u64 row_bytes, int row0, int col0, int n_cols, u16* out, u64 step) {
    WAIT;
    OWN;
    const u8* block = rows + own.row * row_bytes + 18 * own.group;
    const uint2 q = eight_bytes(block + 2 + 8 * (own.eighth & 1));
    of_nibbles(words, nibbles(q, own.eighth >> 1), __ldg((const u16*)block));
    own.store(words);
}

KERNEL stored_q4_k(const u8* rows, u64 row_bytes, int row0, int col0, int n_cols, u16* out, u64 step) {
    WAIT;
    OWN;
    const int group = own.group % 8;
    const u8* block = rows + own.row * row_bytes + 144 * (own.group / 8);
    const uint2 q = load_eight(block + 16 + 32 * (group / 2) + 8 * own.eighth);
    const float2 factors = scales_of_q4_k(block, group);
    of_scaled(words, nibbles(q, group & 1), factors.x, 0.f, factors.y);
    own.store(words);
}

KERNEL stored_q6_k(const u8* rows, u64 row_bytes, int row0, int col0, int n_cols, u16* out, u64 step) {
    WAIT;
    OWN;
    const int inside = own.column % 256, half = inside / 128;
    const u8* block = rows + own.row * row_bytes + 210 * (own.column / 256);
    const float d = from_half(__ldg((const u16*)(block + 208))) * (float)(signed char)__ldg(block + 192 + inside / 16);
    of_q6_k(words, eight_bytes(block + 64 * half + inside % 64), eight_bytes(block + 128 + 32 * half + inside % 32), d,
            inside);
    own.store(words);
}

KERNEL stored_mxfp4(const u8* rows, u64 row_bytes, int row0, int col0, int n_cols, u16* out, u64 step) {
    WAIT;
    OWN;
    const u8* block = rows + own.row * row_bytes + 17 * own.group;
    of_levels<Microscaled>(words, block + 1, Microscaled::scale(__ldg(block)), own);
    own.store(words);
}

KERNEL stored_q5_k(const u8* rows, u64 row_bytes, int row0, int col0, int n_cols, u16* out, u64 step) {
    WAIT;
    OWN;
    const u8* block = rows + own.row * row_bytes + 176 * (own.group / 8);
    of_q5_k(words, block + 48, block + 16, block, own);
    own.store(words);
}

KERNEL stored_iq4_nl(const u8* rows, u64 row_bytes, int row0, int col0, int n_cols, u16* out, u64 step) {
    WAIT;
    OWN;
    const u8* block = rows + own.row * row_bytes + 18 * own.group;
    of_levels<NonLinear>(words, block + 2, half_at(block), own);
    own.store(words);
}

KERNEL stored_iq4_xs(const u8* rows, u64 row_bytes, int row0, int col0, int n_cols, u16* out, u64 step) {
    WAIT;
    OWN;
    const u8* block = rows + own.row * row_bytes + 136 * (own.group / 8);
    of_iq4_xs(words, block + 8, block, own);
    own.store(words);
}

KERNEL stored_q5_0(const u8* rows, u64 row_bytes, int row0, int col0, int n_cols, u16* out, u64 step) {
    WAIT;
    OWN;
    const u8* block = rows + own.row * row_bytes + 22 * own.group;
    of_q5_0(words, block + 6, block + 2, block, own);
    own.store(words);
}

KERNEL stored_q4_1(const u8* rows, u64 row_bytes, int row0, int col0, int n_cols, u16* out, u64 step) {
    WAIT;
    OWN;
    const u8* block = rows + own.row * row_bytes + 20 * own.group;
    of_q4_1(words, block + 4, block, own);
    own.store(words);
}

KERNEL stored_q5_1(const u8* rows, u64 row_bytes, int row0, int col0, int n_cols, u16* out, u64 step) {
    WAIT;
    OWN;
    const u8* block = rows + own.row * row_bytes + 24 * own.group;
    of_q5_1(words, block + 8, block + 4, block, own);
    own.store(words);
}

KERNEL stored_q3_k(const u8* rows, u64 row_bytes, int row0, int col0, int n_cols, u16* out, u64 step) {
    WAIT;
    OWN;
    const u8* block = rows + own.row * row_bytes + 110 * (own.group / 8);
    of_q3_k(words, block + 32, block, block + 96, block + 108, own);
    own.store(words);
}

KERNEL stored_q2_k(const u8* rows, u64 row_bytes, int row0, int col0, int n_cols, u16* out, u64 step) {
    WAIT;
    OWN;
    const u8* block = rows + own.row * row_bytes + 84 * (own.group / 8);
    of_q2_k(words, block + 16, block, block + 80, own);
    own.store(words);
}

// Offset of word `chunk` of a group in a row of lanes with this many bytes per group: docs/bundle.md, section 4.
__device__ __forceinline__ u32 lane_word(const u8* row, int n_groups, int group, int chunk, int group_bytes) {
    const int block = group / 16, lanes = min(16, n_groups - 16 * block);
    return __ldg((const u32*)(row + block * 16 * group_bytes + chunk * 4 * lanes + group % 16 * 4));
}

KERNEL stored_q8_0_lanes(const u8* rows, u64 row_bytes, int n_groups, int row0, int col0, int n_cols, u16* out,
                         u64 step) {
    WAIT;
    OWN;
    const u8* row = rows + own.row * row_bytes;
    const uint2 q = make_uint2(lane_word(row, n_groups, own.group, 2 * own.eighth, 32),
                               lane_word(row, n_groups, own.group, 2 * own.eighth + 1, 32));
    of_bytes(words, q, __ldg((const u16*)(row + 32 * n_groups) + own.group));
    own.store(words);
}

// Chunk c has columns 8 c to 8 c + 3 in its low nibbles, the next four in its high ones.
KERNEL stored_q4_0_lanes(const u8* rows, u64 row_bytes, int n_groups, int row0, int col0, int n_cols, u16* out,
                         u64 step) {
    WAIT;
    OWN;
    const u8* row = rows + own.row * row_bytes;
    const u32 q = lane_word(row, n_groups, own.group, own.eighth, 16);
    of_nibbles(words, nibbles(make_uint2(q, q >> 4), 0), __ldg((const u16*)(row + 16 * n_groups) + own.group));
    own.store(words);
}
