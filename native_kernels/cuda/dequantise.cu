// Weights as halves, for products of many positions (gemm.cu).
//
// Columns col0 .. col0 + n_cols, rows row0 .. row0 + gridDim.y of a matrix as halves, rows `step` halves apart; n_cols is
// rounded up to 8, col0 is a multiple of 8. A thread makes eight columns. What is beyond the largest half becomes that.
// dequantise_*: from planes (layouts.py). stored_*: from rows as a file or a bundle stores them, row_bytes apart (a
// multiple of 4).
#include "halves.cuh"

#define LARGEST_HALF 65504.f

__device__ __forceinline__ u16 to_weight(float f) { return to_half(fminf(fmaxf(f, -LARGEST_HALF), LARGEST_HALF)); }

struct Eight {
    float v[8];
};

__device__ __forceinline__ void store_eight(u16* to, const Eight& e) {
    u32 words[4];
#pragma unroll
    for (int i = 0; i < 4; i++) words[i] = (u32)to_weight(e.v[2 * i]) | ((u32)to_weight(e.v[2 * i + 1]) << 16);
    *(uint4*)to = make_uint4(words[0], words[1], words[2], words[3]);
}

__device__ __forceinline__ float nibble(uint2 bytes, int i, int high) {
    const u32 word = i < 4 ? bytes.x : bytes.y;
    return (float)(word >> (8 * (i & 3) + 4 * high) & 15);
}

__device__ __forceinline__ int byte_of(uint2 bytes, int i) {
    return (int)((i < 4 ? bytes.x : bytes.y) << (24 - 8 * (i & 3))) >> 24;
}

// The numbers of eight columns, codec by codec.
__device__ __forceinline__ Eight of_bytes(uint2 q, float scale) {
    Eight e;
#pragma unroll
    for (int i = 0; i < 8; i++) e.v[i] = scale * (float)byte_of(q, i);
    return e;
}

__device__ __forceinline__ Eight of_nibbles(uint2 q, int high, float scale) {
    Eight e;
#pragma unroll
    for (int i = 0; i < 8; i++) e.v[i] = scale * (nibble(q, i, high) - 8.f);
    return e;
}

// head: d, least d and the small scales of a superblock; group: of 32 columns, in it.
__device__ __forceinline__ Eight of_q4_k(uint2 q, const u8* head, int group) {
    const u8* small = head + 4;
    int scale, least;
    if (group < 4) {
        scale = small[group] & 63;
        least = small[group + 4] & 63;
    } else {
        scale = (small[group + 4] & 15) | (small[group - 4] >> 6 << 4);
        least = (small[group + 4] >> 4) | (small[group] >> 6 << 4);
    }
    const float d = from_half(((const u16*)head)[0]) * (float)scale, m = from_half(((const u16*)head)[1]) * (float)least;
    Eight e;
#pragma unroll
    for (int i = 0; i < 8; i++) e.v[i] = d * nibble(q, i, group & 1) - m;
    return e;
}

// inside: the first of the columns in its superblock.
__device__ __forceinline__ Eight of_q6_k(uint2 l, uint2 h, float d, int inside) {
    const int shift = 2 * (inside % 128 / 32);
    Eight e;
#pragma unroll
    for (int i = 0; i < 8; i++) {
        const u32 upper = (i < 4 ? h.x : h.y) >> (8 * (i & 3) + shift) & 3;
        e.v[i] = d * (nibble(l, i, inside % 128 / 64) + (float)(16 * upper) - 32.f);
    }
    return e;
}

// Eight bytes that begin on two.
__device__ __forceinline__ uint2 eight_bytes(const u8* at) {
    const u16* h = (const u16*)at;
    return make_uint2(__ldg(h) | (u32)__ldg(h + 1) << 16, __ldg(h + 2) | (u32)__ldg(h + 3) << 16);
}

// Eight columns from a thread's own on; false behind the last.
__device__ __forceinline__ bool own_columns(int n_cols, int& at) {
    at = 8 * (blockIdx.x * blockDim.x + threadIdx.x);
    return at < n_cols;
}

KERNEL dequantise_f32(const u8* values, u64 row_bytes, int row0, int col0, int n_cols, u16* out, u64 step) {
    int at;
    if (!own_columns(n_cols, at)) return;
    const float* from = (const float*)(values + (row0 + blockIdx.y) * row_bytes) + col0 + at;
    Eight e;
#pragma unroll
    for (int i = 0; i < 8; i++) e.v[i] = at + i < n_cols ? from[i] : 0.f;
    store_eight(out + blockIdx.y * step + at, e);
}

KERNEL dequantise_bf16(const u8* values, u64 row_bytes, int row0, int col0, int n_cols, u16* out, u64 step) {
    int at;
    if (!own_columns(n_cols, at)) return;
    const u16* from = (const u16*)(values + (row0 + blockIdx.y) * row_bytes) + col0 + at;
    Eight e;
#pragma unroll
    for (int i = 0; i < 8; i++) e.v[i] = at + i < n_cols ? __uint_as_float((u32)from[i] << 16) : 0.f;
    store_eight(out + blockIdx.y * step + at, e);
}

KERNEL dequantise_q8_0(const u8* bytes, u64 row_bytes, const u8* scales, u64 scale_bytes, int row0, int col0, int n_cols,
                       u16* out, u64 step) {
    int at;
    if (!own_columns(n_cols, at)) return;
    const u64 row = row0 + blockIdx.y;
    const int column = col0 + at;
    const uint2 q = __ldg((const uint2*)(bytes + row * row_bytes + column));
    const float scale = from_half(__ldg((const u16*)(scales + row * scale_bytes) + column / 32));
    store_eight(out + blockIdx.y * step + at, of_bytes(q, scale));
}

KERNEL dequantise_q4_0(const u8* bytes, u64 row_bytes, const u8* scales, u64 scale_bytes, int row0, int col0, int n_cols,
                       u16* out, u64 step) {
    int at;
    if (!own_columns(n_cols, at)) return;
    const u64 row = row0 + blockIdx.y;
    const int column = col0 + at, block = column / 32, eighth = column % 32 / 8;
    const uint2 q = __ldg((const uint2*)(bytes + row * row_bytes + 16 * block) + (eighth & 1));
    const float scale = from_half(__ldg((const u16*)(scales + row * scale_bytes) + block));
    store_eight(out + blockIdx.y * step + at, of_nibbles(q, eighth >> 1, scale));
}

KERNEL dequantise_q4_k(const u8* bytes, u64 row_bytes, const u8* scales, u64 scale_bytes, int row0, int col0, int n_cols,
                       u16* out, u64 step) {
    int at;
    if (!own_columns(n_cols, at)) return;
    const u64 row = row0 + blockIdx.y;
    const int column = col0 + at, block = column / 256, group = column % 256 / 32;
    const uint2 q = __ldg((const uint2*)(bytes + row * row_bytes + 128 * block + 32 * (group / 2) + column % 32));
    store_eight(out + blockIdx.y * step + at, of_q4_k(q, scales + row * scale_bytes + 16 * block, group));
}

KERNEL dequantise_q6_k(const u8* low, u64 low_bytes, const u8* high, u64 high_bytes, const u8* scales, u64 scale_bytes,
                       const u8* ds, u64 d_bytes, int row0, int col0, int n_cols, u16* out, u64 step) {
    int at;
    if (!own_columns(n_cols, at)) return;
    const u64 row = row0 + blockIdx.y;
    const int column = col0 + at, block = column / 256, inside = column % 256, half = inside / 128;
    const uint2 l = __ldg((const uint2*)(low + row * low_bytes + 128 * block + 64 * half + inside % 64));
    const uint2 h = __ldg((const uint2*)(high + row * high_bytes + 64 * block + 32 * half + inside % 32));
    const float scale = (float)(signed char)scales[row * scale_bytes + 16 * block + inside / 16];
    const float d = from_half(*((const u16*)(ds + row * d_bytes) + block)) * scale;
    store_eight(out + blockIdx.y * step + at, of_q6_k(l, h, d, inside));
}

// ---------------------------------------------------------------- rows as files and bundles store them

KERNEL stored_q8_0(const u8* rows, u64 row_bytes, int row0, int col0, int n_cols, u16* out, u64 step) {
    int at;
    if (!own_columns(n_cols, at)) return;
    const int column = col0 + at;
    const u8* block = rows + (row0 + blockIdx.y) * row_bytes + 34 * (column / 32);
    const float scale = from_half(__ldg((const u16*)block));
    store_eight(out + blockIdx.y * step + at, of_bytes(eight_bytes(block + 2 + column % 32), scale));
}

KERNEL stored_q4_0(const u8* rows, u64 row_bytes, int row0, int col0, int n_cols, u16* out, u64 step) {
    int at;
    if (!own_columns(n_cols, at)) return;
    const int column = col0 + at, eighth = column % 32 / 8;
    const u8* block = rows + (row0 + blockIdx.y) * row_bytes + 18 * (column / 32);
    const float scale = from_half(__ldg((const u16*)block));
    store_eight(out + blockIdx.y * step + at,
                of_nibbles(eight_bytes(block + 2 + 8 * (eighth & 1)), eighth >> 1, scale));
}

KERNEL stored_q4_k(const u8* rows, u64 row_bytes, int row0, int col0, int n_cols, u16* out, u64 step) {
    int at;
    if (!own_columns(n_cols, at)) return;
    const int column = col0 + at, group = column % 256 / 32;
    const u8* block = rows + (row0 + blockIdx.y) * row_bytes + 144 * (column / 256);
    store_eight(out + blockIdx.y * step + at,
                of_q4_k(eight_bytes(block + 16 + 32 * (group / 2) + column % 32), block, group));
}

KERNEL stored_q6_k(const u8* rows, u64 row_bytes, int row0, int col0, int n_cols, u16* out, u64 step) {
    int at;
    if (!own_columns(n_cols, at)) return;
    const int column = col0 + at, inside = column % 256, half = inside / 128;
    const u8* block = rows + (row0 + blockIdx.y) * row_bytes + 210 * (column / 256);
    const float d = from_half(*(const u16*)(block + 208)) * (float)(signed char)block[192 + inside / 16];
    store_eight(out + blockIdx.y * step + at, of_q6_k(eight_bytes(block + 64 * half + inside % 64),
                                                      eight_bytes(block + 128 + 32 * half + inside % 32), d, inside));
}

// Where word `chunk` of a group lies in a row of lanes, with so many bytes a group: docs/bundle.md, section 4.
__device__ __forceinline__ u32 lane_word(const u8* row, int n_groups, int group, int chunk, int group_bytes) {
    const int block = group / 16, lanes = min(16, n_groups - 16 * block);
    return __ldg((const u32*)(row + block * 16 * group_bytes + chunk * 4 * lanes + group % 16 * 4));
}

KERNEL stored_q8_0_lanes(const u8* rows, u64 row_bytes, int n_groups, int row0, int col0, int n_cols, u16* out,
                         u64 step) {
    int at;
    if (!own_columns(n_cols, at)) return;
    const int column = col0 + at, group = column / 32, chunk = column % 32 / 4;
    const u8* row = rows + (row0 + blockIdx.y) * row_bytes;
    const float scale = from_half(__ldg((const u16*)(row + 32 * n_groups) + group));
    const uint2 q =
        make_uint2(lane_word(row, n_groups, group, chunk, 32), lane_word(row, n_groups, group, chunk + 1, 32));
    store_eight(out + blockIdx.y * step + at, of_bytes(q, scale));
}

// Chunk c has columns 8 c to 8 c + 3 in its lower halves, the next four in its upper ones.
KERNEL stored_q4_0_lanes(const u8* rows, u64 row_bytes, int n_groups, int row0, int col0, int n_cols, u16* out,
                         u64 step) {
    int at;
    if (!own_columns(n_cols, at)) return;
    const int column = col0 + at, group = column / 32;
    const u8* row = rows + (row0 + blockIdx.y) * row_bytes;
    const float scale = from_half(__ldg((const u16*)(row + 16 * n_groups) + group));
    const u32 q = lane_word(row, n_groups, group, column % 32 / 8, 16);
    store_eight(out + blockIdx.y * step + at, of_nibbles(make_uint2(q, q >> 4), 0, scale));
}
