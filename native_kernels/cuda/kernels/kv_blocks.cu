// Convert keys and values between the CPU's blocks of 32 positions (native_kernels/kv_blocks.py) and the GPU's rows of
// positions. Numbers keep their bits. One CUDA block converts one block of one head.
#include "common.cuh"

#define BLOCK 32  // positions

// Byte offsets within a block as in KvLayout; block_bytes: of the whole block.
struct Layout {
    int dim, padded, groups, key_scales, values, value_scales, block_bytes;
};

template <class T, bool TO_BLOCK>
__device__ __forceinline__ void copy(T* in_block, T* in_row, bool exists) {
    if (TO_BLOCK)
        *in_block = exists ? *in_row : T(0);
    else if (exists)
        *in_row = *in_block;
}

// keys, values: of the block's first position. Positions from n on do not exist: they become 0 in a block.
template <class T, bool TO_BLOCK>
__device__ void convert(u8* block, const Layout& at, T* keys, T* values, u16* key_scales, u16* value_scales, int n) {
    T *block_keys = (T*)block, *block_values = (T*)(block + at.values);
    for (int i = threadIdx.x; i < BLOCK * at.padded; i += blockDim.x) {
        const int p = i / at.padded, d = i % at.padded;
        const bool exists = p < n && d < at.dim;
        if (d < at.dim) copy<T, TO_BLOCK>(block_keys + d * BLOCK + p, keys + p * at.dim + d, exists);
        copy<T, TO_BLOCK>(block_values + i, values + p * at.dim + d, exists);
    }
    u16 *block_key_scales = (u16*)(block + at.key_scales), *block_value_scales = (u16*)(block + at.value_scales);
    for (int i = threadIdx.x; i < BLOCK * at.groups; i += blockDim.x) {
        const int p = i / at.groups, g = i % at.groups;
        copy<u16, TO_BLOCK>(block_key_scales + g * BLOCK + p, key_scales + i, p < n);
        copy<u16, TO_BLOCK>(block_value_scales + g * BLOCK + p, value_scales + i, p < n);
    }
}

// Block x of head y: from `blocks` + (x + y * gridDim.x) * block_bytes, to or from positions 32 * (first + x) up to
// `end` of head head + y. width: bytes of a number.
template <bool TO_BLOCK>
__device__ __forceinline__ void convert_block(u8* blocks, Layout at, u8* keys, u8* values, u8* key_scales,
                                              u8* value_scales, int width, int head, int first, int end,
                                              int capacity) {
    u8* block = blocks + ((u64)blockIdx.x + (u64)blockIdx.y * gridDim.x) * at.block_bytes;
    const int position = BLOCK * (first + (int)blockIdx.x), n = min(end - position, BLOCK);
    const u64 row = (u64)(head + (int)blockIdx.y) * capacity + position;
    keys += row * at.dim * width, values += row * at.dim * width;
    u16 *of_keys = (u16*)key_scales + row * at.groups, *of_values = (u16*)value_scales + row * at.groups;
    if (width == 4)
        convert<u32, TO_BLOCK>(block, at, (u32*)keys, (u32*)values, of_keys, of_values, n);
    else if (width == 2)
        convert<u16, TO_BLOCK>(block, at, (u16*)keys, (u16*)values, of_keys, of_values, n);
    else
        convert<u8, TO_BLOCK>(block, at, keys, values, of_keys, of_values, n);
}

KERNEL __launch_bounds__(256) blocks_to_rows(u8* blocks, Layout at, u8* keys, u8* values, u8* key_scales,
                                             u8* value_scales, int width, int head, int first, int end, int capacity) {
    WAIT;
    convert_block<false>(blocks, at, keys, values, key_scales, value_scales, width, head, first, end, capacity);
}

KERNEL __launch_bounds__(256) rows_to_blocks(u8* blocks, Layout at, u8* keys, u8* values, u8* key_scales,
                                             u8* value_scales, int width, int head, int first, int end, int capacity) {
    WAIT;
    convert_block<true>(blocks, at, keys, values, key_scales, value_scales, width, head, first, end, capacity);
}
