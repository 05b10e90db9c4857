// Attention of many positions at once on tensor cores, over keys and values in halves or bytes: products are of halves
// with sums in f32. flash.cu is the same in f32 throughout.
//
// A block of 128 threads takes 64 queries of one head, 16 per warp, and goes over their visible keys 64 at a time. Each
// query is rounded with its own power of two; scores, their maxima and sums are f32. Query t is at position start + t
// and sees the positions up to its own, limited to the last `window` (0: all). Keys and values: [H_kv, capacity, dim]
// in f16 or bytes (codec 1, 2) with scales f16 [H_kv, capacity, dim / 32 rounded up]; dim a multiple of 8 up to the
// number in the kernel's name. grid: x queries by 64, y heads.
#include "flash_halves.cuh"

#define QUERIES 64
#define KEYS 64

// KEYS positions from `first` on; zeros beyond the last one and beyond dim.
template <int DIM>
__device__ __forceinline__ void bring(u8* to, const Kept& k, int codec, u64 base, int first, int last, int dim) {
    constexpr int CHUNKS = DIM / 8;
#pragma unroll 4
    for (int i = threadIdx.x; i < KEYS * CHUNKS; i += 128) {
        const int row = i / CHUNKS, chunk = i % CHUNKS;
        uint4 v = make_uint4(0, 0, 0, 0);
        if (first + row <= last && 8 * chunk < dim) v = eight_halves(k, codec, base + first + row, dim, 8 * chunk);
        *(uint4*)(to + (DIM == 64 ? narrow_place(row, chunk) : wide_place(row, chunk))) = v;
    }
}

template <int DIM>
__device__ __forceinline__ u32 place_of(int row, int chunk) {
    return DIM == 64 ? narrow_place(row, chunk) : wide_place(row, chunk);
}

template <int DIM>
__device__ __forceinline__ void attend(const float* q, u64 q_step, float* out, u64 out_step, const Kept keys,
                                       const Kept values, int codec, int dim, int n_tokens, int start, int group,
                                       int capacity, float scale, float softcap, int window,
                                       const float* sinks) {
    __shared__ __align__(128) u8 some_keys[KEYS * DIM * 2], some_values[KEYS * DIM * 2];
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, head = blockIdx.y;
    const int query0 = (gridDim.x - 1 - blockIdx.x) * QUERIES;  // the longest first
    const int own = query0 + 16 * warp + lane / 4;              // and the one 8 rows below
    const u64 base = (u64)(head / group) * capacity;
    const int last = start + min(query0 + QUERIES, n_tokens) - 1;
    const int first = window ? max(0, start + query0 - window + 1) : 0;

    u32 queries[DIM / 16][4];
    float back[2];
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int query = own + 8 * half;
        const float* from = q + min(query, n_tokens - 1) * q_step + head * dim + 2 * (lane & 3);
        float most = 0.f;
#pragma unroll
        for (int i = 0; i < DIM / 8; i++)
            if (8 * i < dim) most = fmaxf(most, fmaxf(fabsf(from[8 * i]), fabsf(from[8 * i + 1])));
        const float factor = rounding_factor(row_largest(most), back[half]);
#pragma unroll
        for (int i = 0; i < DIM / 8; i++)
            queries[i / 2][half + i % 2 * 2] =
                8 * i < dim ? two_halves(from[8 * i] * factor, from[8 * i + 1] * factor) : 0;
        back[half] *= scale;
    }
    const float sink = sinks ? __ldg(sinks + head) : NO_SCORE, of_sink = sinks ? 1.f : 0.f;
    float largest[2] = {sink, sink}, total[2] = {of_sink, of_sink}, sums[DIM / 8][4];
#pragma unroll
    for (int i = 0; i < DIM / 2; i++) sums[i / 4][i % 4] = 0.f;
    const u32 keys_at = shared_address(some_keys), values_at = shared_address(some_values);

    for (int key0 = first; key0 <= last; key0 += KEYS) {
        __syncthreads();
        bring<DIM>(some_keys, keys, codec, base, key0, last, dim);
        bring<DIM>(some_values, values, codec, base, key0, last, dim);
        __syncthreads();
        float scores[KEYS / 8][4], shrink[2];
        score<KEYS>(scores, queries, lane, [&](int row, int chunk) { return keys_at + place_of<DIM>(row, chunk); });
        weigh<KEYS>(scores, key0, start + own, lane, back, softcap, window, largest, total, shrink);
        mix<KEYS, DIM / 16>(sums, scores, shrink, lane,
                           [&](int row, int chunk) { return values_at + place_of<DIM>(row, chunk); });
    }
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int query = own + 8 * half;
        if (query >= n_tokens) continue;
        float* to = out + query * out_step + head * dim + 2 * (lane & 3);
#pragma unroll
        for (int i = 0; i < DIM / 8; i++)
            if (8 * i < dim) {
                to[8 * i] = sums[i][2 * half] / total[half];
                to[8 * i + 1] = sums[i][2 * half + 1] / total[half];
            }
    }
}

KERNEL __launch_bounds__(128, 2) attend_half_64(ARGUMENTS) { attend<64>(PASSED); }
KERNEL __launch_bounds__(128, 2) attend_half_128(ARGUMENTS) { attend<128>(PASSED); }
