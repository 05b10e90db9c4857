// Weights as halves, for products of many positions (gemm.cu).
//
// Columns col0 .. col0 + n_cols, rows row0 .. row0 + gridDim.y of a matrix as halves, rows `step` halves apart; n_cols is
// rounded up to 8, col0 is a multiple of 8. A thread makes twice eight columns of a group of 32, from its first or ninth
// on and sixteen behind, so that two threads fill whole sectors and share what belongs to a group. What is beyond the
// largest half becomes that. grid: x two threads for each group that any of the columns is in, y rows.
// dequantise_*: from planes (layouts.py). stored_*: from rows as a file or a bundle stores them, row_bytes apart (a
// multiple of 16).
#include "halves.cuh"

#define LARGEST_HALF 65504.f

// A thread's columns, from the matrix's first on: `column` and sixteen behind. out: where column 0 would lie.
struct Own {
    int group, eighth, column, col0, end;
    u64 row;
    u16* out;

    __device__ __forceinline__ Own(int row0, int col0, int n_cols, u16* to, u64 step) : col0(col0), end(col0 + n_cols) {
        const int thread = blockIdx.x * blockDim.x + threadIdx.x;
        group = col0 / 32 + thread / 2;
        eighth = thread % 2;
        column = 32 * group + 8 * eighth;
        row = row0 + blockIdx.y;
        out = to + blockIdx.y * step - col0;
    }
    __device__ __forceinline__ bool none() const { return 32 * group >= end; }
    __device__ __forceinline__ bool has(int which) const {
        return column + 16 * which >= col0 && column + 16 * which < end;
    }
    __device__ __forceinline__ void store(int which, const u32 (&words)[4]) const {
        if (has(which)) *(uint4*)(out + column + 16 * which) = make_uint4(words[0], words[1], words[2], words[3]);
    }
};

// ---------------------------------------------------------------- arithmetic

// Two numbers, bounded and rounded.
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

// Byte i of a word as a number less `offset`: 2^23 and a byte behind it are a float without any conversion.
__device__ __forceinline__ float byte_less(u32 word, int i, float offset) {
    return __uint_as_float(__byte_perm(word, 0x4b000000u, 0x7540u | i)) - (8388608.f + offset);
}

// Four bytes less OFFSET, times a scale, as halves: 1024 and a byte behind it are a half, the difference is exact, and so
// the product of two halves is rounded once, as it is from floats. Scales of so many bits or more go through floats:
// their products could be beyond the largest half.
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

// Scale and least of a group, out of d, least d and the small scales of its superblock.
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

__device__ __forceinline__ void of_q4_k(u32 (&words)[4], uint2 q, float2 scales) {
    float v[8];
#pragma unroll
    for (int i = 0; i < 8; i++) v[i] = scales.x * byte_less(i < 4 ? q.x : q.y, i & 3, 0.f) - scales.y;
    round_eight(words, v);
}

// inside: the first of the columns in its superblock.
__device__ __forceinline__ void of_q6_k(u32 (&words)[4], uint2 l, uint2 h, float d, int inside) {
    const int shift = 2 * (inside % 128 / 32);
    const uint2 low = nibbles(l, inside % 128 / 64);
    const u32 x = low.x | (h.x >> shift & 0x03030303u) << 4, y = low.y | (h.y >> shift & 0x03030303u) << 4;
    float v[8];
#pragma unroll
    for (int i = 0; i < 8; i++) v[i] = d * byte_less(i < 4 ? x : y, i & 3, 32.f);
    round_eight(words, v);
}

// ---------------------------------------------------------------- planes

__device__ __forceinline__ uint2 load_eight(const u8* at) { return __ldg((const uint2*)at); }

#define DEQUANTISE(...)                                        \
    const Own own(row0, col0, n_cols, out, step);              \
    if (own.none()) return;                                    \
    __VA_ARGS__                                                \
    _Pragma("unroll") for (int i = 0; i < 2; i++) if (own.has(i))

KERNEL dequantise_f32(const u8* values, u64 row_bytes, int row0, int col0, int n_cols, u16* out, u64 step) {
    DEQUANTISE(const float* from = (const float*)(values + own.row * row_bytes);) {
        const int column = own.column + 16 * i;
        float v[8];
#pragma unroll
        for (int j = 0; j < 8; j++) v[j] = column + j < own.end ? from[column + j] : 0.f;
        u32 words[4];
        round_eight(words, v);
        own.store(i, words);
    }
}

KERNEL dequantise_bf16(const u8* values, u64 row_bytes, int row0, int col0, int n_cols, u16* out, u64 step) {
    DEQUANTISE(const u16* from = (const u16*)(values + own.row * row_bytes);) {
        const int column = own.column + 16 * i;
        float v[8];
#pragma unroll
        for (int j = 0; j < 8; j++) v[j] = column + j < own.end ? __uint_as_float((u32)from[column + j] << 16) : 0.f;
        u32 words[4];
        round_eight(words, v);
        own.store(i, words);
    }
}

KERNEL dequantise_q8_0(const u8* bytes, u64 row_bytes, const u8* scales, u64 scale_bytes, int row0, int col0, int n_cols,
                       u16* out, u64 step) {
    DEQUANTISE(const u16 scale = __ldg((const u16*)(scales + own.row * scale_bytes) + own.group);) {
        u32 words[4];
        of_bytes(words, load_eight(bytes + own.row * row_bytes + own.column + 16 * i), scale);
        own.store(i, words);
    }
}

KERNEL dequantise_q4_0(const u8* bytes, u64 row_bytes, const u8* scales, u64 scale_bytes, int row0, int col0, int n_cols,
                       u16* out, u64 step) {
    DEQUANTISE(const u16 scale = __ldg((const u16*)(scales + own.row * scale_bytes) + own.group);
               const uint2 q = load_eight(bytes + own.row * row_bytes + 16 * own.group + 8 * own.eighth);) {
        u32 words[4];
        of_nibbles(words, nibbles(q, i), scale);
        own.store(i, words);
    }
}

KERNEL dequantise_q4_k(const u8* bytes, u64 row_bytes, const u8* scales, u64 scale_bytes, int row0, int col0, int n_cols,
                       u16* out, u64 step) {
    DEQUANTISE(const int block = own.group / 8; const int group = own.group % 8;
               const float2 both = scales_of_q4_k(scales + own.row * scale_bytes + 16 * block, group);
               const u8* from = bytes + own.row * row_bytes + 128 * block + 32 * (group / 2) + 8 * own.eighth;) {
        u32 words[4];
        of_q4_k(words, nibbles(load_eight(from + 16 * i), group & 1), both);
        own.store(i, words);
    }
}

KERNEL dequantise_q6_k(const u8* low, u64 low_bytes, const u8* high, u64 high_bytes, const u8* scales, u64 scale_bytes,
                       const u8* ds, u64 d_bytes, int row0, int col0, int n_cols, u16* out, u64 step) {
    DEQUANTISE(const int block = own.column / 256;
               const float d = from_half(*((const u16*)(ds + own.row * d_bytes) + block));) {
        const int inside = own.column % 256 + 16 * i, half = inside / 128;
        const uint2 l = load_eight(low + own.row * low_bytes + 128 * block + 64 * half + inside % 64);
        const uint2 h = load_eight(high + own.row * high_bytes + 64 * block + 32 * half + inside % 32);
        const float scale = (float)(signed char)scales[own.row * scale_bytes + 16 * block + inside / 16];
        u32 words[4];
        of_q6_k(words, l, h, d * scale, inside);
        own.store(i, words);
    }
}

// ---------------------------------------------------------------- rows as files and bundles store them

// Eight bytes that begin on two: words that begin on four, of which the third is read only where it is needed.
__device__ __forceinline__ uint2 eight_bytes(const u8* at) {
    const bool between = (u64)at & 2;
    const u32* words = (const u32*)(at - 2 * between);
    const u32 a = __ldg(words), b = __ldg(words + 1), c = between ? __ldg(words + 2) : 0;
    return between ? make_uint2(__byte_perm(a, b, 0x5432), __byte_perm(b, c, 0x5432)) : make_uint2(a, b);
}

KERNEL stored_q8_0(const u8* rows, u64 row_bytes, int row0, int col0, int n_cols, u16* out, u64 step) {
    DEQUANTISE(const u8* block = rows + own.row * row_bytes + 34 * own.group; const u16 scale = __ldg((const u16*)block);) {
        u32 words[4];
        of_bytes(words, eight_bytes(block + 2 + 8 * own.eighth + 16 * i), scale);
        own.store(i, words);
    }
}

KERNEL stored_q4_0(const u8* rows, u64 row_bytes, int row0, int col0, int n_cols, u16* out, u64 step) {
    DEQUANTISE(const u8* block = rows + own.row * row_bytes + 18 * own.group; const u16 scale = __ldg((const u16*)block);
               const uint2 q = eight_bytes(block + 2 + 8 * own.eighth);) {
        u32 words[4];
        of_nibbles(words, nibbles(q, i), scale);
        own.store(i, words);
    }
}

KERNEL stored_q4_k(const u8* rows, u64 row_bytes, int row0, int col0, int n_cols, u16* out, u64 step) {
    DEQUANTISE(const u8* block = rows + own.row * row_bytes + 144 * (own.group / 8); const int group = own.group % 8;
               const float2 both = scales_of_q4_k(block, group);) {
        u32 words[4];
        const u8* from = block + 16 + 32 * (group / 2) + 8 * own.eighth + 16 * i;
        of_q4_k(words, nibbles(load_eight(from), group & 1), both);
        own.store(i, words);
    }
}

KERNEL stored_q6_k(const u8* rows, u64 row_bytes, int row0, int col0, int n_cols, u16* out, u64 step) {
    DEQUANTISE(const u8* block = rows + own.row * row_bytes + 210 * (own.group / 8);
               const float d = from_half(*(const u16*)(block + 208));) {
        const int inside = own.column % 256 + 16 * i, half = inside / 128;
        u32 words[4];
        of_q6_k(words, eight_bytes(block + 64 * half + inside % 64), eight_bytes(block + 128 + 32 * half + inside % 32),
                d * (float)(signed char)block[192 + inside / 16], inside);
        own.store(i, words);
    }
}

// Where word `chunk` of a group lies in a row of lanes, with so many bytes a group: docs/bundle.md, section 4.
__device__ __forceinline__ u32 lane_word(const u8* row, int n_groups, int group, int chunk, int group_bytes) {
    const int block = group / 16, lanes = min(16, n_groups - 16 * block);
    return __ldg((const u32*)(row + block * 16 * group_bytes + chunk * 4 * lanes + group % 16 * 4));
}

KERNEL stored_q8_0_lanes(const u8* rows, u64 row_bytes, int n_groups, int row0, int col0, int n_cols, u16* out,
                         u64 step) {
    DEQUANTISE(const u8* row = rows + own.row * row_bytes;
               const u16 scale = __ldg((const u16*)(row + 32 * n_groups) + own.group);) {
        const int chunk = 2 * own.eighth + 4 * i;
        const uint2 q = make_uint2(lane_word(row, n_groups, own.group, chunk, 32),
                                   lane_word(row, n_groups, own.group, chunk + 1, 32));
        u32 words[4];
        of_bytes(words, q, scale);
        own.store(i, words);
    }
}

// Chunk c has columns 8 c to 8 c + 3 in its lower halves, the next four in its upper ones.
KERNEL stored_q4_0_lanes(const u8* rows, u64 row_bytes, int n_groups, int row0, int col0, int n_cols, u16* out,
                         u64 step) {
    DEQUANTISE(const u8* row = rows + own.row * row_bytes;
               const u16 scale = __ldg((const u16*)(row + 16 * n_groups) + own.group);) {
        const u32 q = lane_word(row, n_groups, own.group, own.eighth + 2 * i, 16);
        u32 words[4];
        of_nibbles(words, nibbles(make_uint2(q, q >> 4), 0), scale);
        own.store(i, words);
    }
}
