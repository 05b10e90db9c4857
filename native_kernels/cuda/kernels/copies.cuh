// Rows of low-bit copies (native_kernels/codecs/copies.py): a reader as those of weights.cuh, for products only.
#pragma once
#include "weights.cuh"

// A unit is a piece of 32 columns: one word of four bytes from each run of its superblock. The codes of columns 4 i to
// 4 i + 3 are at the same bits of the four bytes of one word.
template <int BITS>
struct Copy {
    struct Row {
        const u32* words;
        u32 first, first_scale;
        int pieces;
    };
    struct Unit {
        u32 words[BITS];
        u16 scale;
    };
    struct Input {
        uint4 low, high;
        float2 scales;
    };
    DEVICE int units(int n_cols) { return (n_cols + 31) / 32; }
    DEVICE Row row(const Planes& m, int n_cols, int r) {
        const int filled = (n_cols + 63) / 64, bytes = 8 * BITS * filled;
        const u32 first = r * ((bytes + 2 * ((n_cols + 511) / 512) + 15) / 16 * 4u);
        return {(const u32*)m.at[0], first, 2 * first + bytes / 2, 2 * filled};
    }
    DEVICE Unit load(const Row& row, int unit) {
        const int block = unit / 16, lanes = min(16, row.pieces - 16 * block);
        const u32* words = row.words + (row.first + 16 * BITS * block + unit % 16);
        Unit w;
#pragma unroll
        for (int k = 0; k < BITS; k++) w.words[k] = __ldg(words + k * lanes);
        w.scale = __ldg((const u16*)row.words + (row.first_scale + block));
        return w;
    }
    DEVICE Input input(const Vector& x, int unit) {
        const uint4* bytes = (const uint4*)x.bytes + 2 * unit;
        return {bytes[0], bytes[1], x.scales[unit]};
    }
    DEVICE u32 codes(const Unit& w, int i) {
        if (BITS == 1) return (w.words[0] >> i) & 0x01010101u;
        if (BITS == 4) return (w.words[i / 2] >> (4 * (i % 2))) & 0x0f0f0f0fu;
        const u32 low = (w.words[i / 4] >> (2 * (i % 4))) & 0x03030303u;
        return BITS == 2 ? low : low | (((w.words[BITS - 1] >> i) & 0x01010101u) << 2);
    }
    DEVICE float dot(const Unit& w, const Input& v, float sum) {
        const u32 x[8] = {v.low.x, v.low.y, v.low.z, v.low.w, v.high.x, v.high.y, v.high.z, v.high.w};
        int whole = 0;
#pragma unroll
        for (int i = 0; i < 8; i++) whole = dot4(codes(w, i), x[i], whole);
        const float middle = (1 - (1 << BITS)) * 0.5f;
        return fmaf(half_to_float(w.scale), fmaf((float)whole, v.scales.x, middle * v.scales.y), sum);
    }
};
