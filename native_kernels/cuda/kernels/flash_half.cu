// Attention of many positions at once on tensor cores, over keys and values in halves or bytes: products are of halves
// with sums in f32. flash.cu is the same in f32 throughout.
//
// A block of 256 threads takes 128 queries of one head, 16 per warp, and goes over their visible keys 64 at a time.
// While it computes with one tile of keys and values, it loads the next one into registers, and then stores it in the
// other half of shared memory. A warp skips tiles whose keys all come after its queries. Each query is rounded with its
// own power of two; scores, their maxima and sums are f32. Query t is at position start + t and sees the positions up
// to its own, limited to the last `window`, or to those from -window on if that is 0 or less. Keys and values: [H_kv, capacity, dim] in f16 or bytes (codec 1,
// 2) with scales f16 [H_kv, capacity, dim / 32 rounded up]; dim a multiple of 8 up to the number in the kernel's name.
// Shared memory: 512 bytes times that number. grid: x queries by 128, y heads.
#include "flash_halves.cuh"

#define THREADS 256
#define QUERIES 128
#define KEYS 64

// A thread's share of a tile of KEYS keys or values.
template <int DIM>
struct Coming {
    static constexpr int CHUNKS = DIM / 8, EACH = KEYS * CHUNKS / THREADS, ROWS = THREADS / CHUNKS;
    uint4 some[EACH];

    // Load positions from `first` on; zeros beyond the last one and beyond dim.
    __device__ __forceinline__ void load(const Kept& k, int codec, u64 base, int first, int last, int dim) {
        const int row = first + threadIdx.x / CHUNKS, d = threadIdx.x % CHUNKS * 8;
#pragma unroll
        for (int i = 0; i < EACH; i++)
            some[i] = row + ROWS * i <= last && d < dim ? eight_stored(k, codec, base + row + ROWS * i, dim, d)
                                                        : make_uint4(0, 0, 0, 0);
    }

    __device__ __forceinline__ void store(u8* to, int codec) const {
        const int row = threadIdx.x / CHUNKS, chunk = threadIdx.x % CHUNKS;
#pragma unroll
        for (int i = 0; i < EACH; i++)
            *(uint4*)(to + (DIM == 64 ? narrow_place(row + ROWS * i, chunk) : wide_place(row + ROWS * i, chunk))) =
                as_halves(some[i], codec);
    }
};

template <int DIM>
__device__ __forceinline__ void attend(const float* q, u64 q_step, float* out, u64 out_step, const Kept keys,
                                       const Kept values, int codec, int dim, int n_tokens, int start, int group,
                                       int capacity, float scale, float softcap, int window,
                                       const float* sinks) {
    constexpr u32 BYTES = KEYS * DIM * 2;  // of a tile of keys, and of one of values
    extern __shared__ __align__(128) u8 room[];  // [2, keys and values, KEYS, DIM] halves
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, head = blockIdx.y;
    const int query0 = (gridDim.x - 1 - blockIdx.x) * QUERIES;  // the longest first
    const int least = query0 + 16 * warp, own = least + lane / 4;  // and the one 8 rows below
    const u64 base = (u64)(head / group) * capacity;
    const int last = start + min(query0 + QUERIES, n_tokens) - 1;
    const int first = window > 0 ? max(0, start + query0 - window + 1) : -window;
    const int warp_last = least < n_tokens ? start + min(least + 16, n_tokens) - 1 : -1;

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
        back[half] *= softcap > 0.f ? scale : LOG2_E * scale;
    }
    const float sink = sinks ? LOG2_E * __ldg(sinks + head) : NO_SCORE, of_sink = sinks && lane % 4 == 0 ? 1.f : 0.f;
    float largest[2] = {sink, sink}, total[2] = {of_sink, of_sink}, sums[DIM / 8][4];
#pragma unroll
    for (int i = 0; i < DIM / 2; i++) sums[i / 4][i % 4] = 0.f;

    Coming<DIM> next_keys, next_values;
    next_keys.load(keys, codec, base, first, last, dim);
    next_values.load(values, codec, base, first, last, dim);
    next_keys.store(room, codec);
    next_values.store(room + BYTES, codec);
    __syncthreads();
    for (int key0 = first, turn = 0; key0 <= last; key0 += KEYS, turn ^= 1) {
        const bool goes_on = key0 + KEYS <= last;
        if (goes_on) {
            next_keys.load(keys, codec, base, key0 + KEYS, last, dim);
            next_values.load(values, codec, base, key0 + KEYS, last, dim);
        }
        if (key0 <= warp_last) {
            const u32 keys_at = shared_address(room) + turn * 2 * BYTES, values_at = keys_at + BYTES;
            float scores[KEYS / 8][4], shrink[2];
            score<KEYS>(scores, queries, lane, [&](int row, int chunk) {
                return keys_at + (DIM == 64 ? narrow_place(row, chunk) : wide_place(row, chunk));
            });
            if (key0 + KEYS - 1 <= start + least && (window <= 0 || key0 > start + least + 15 - window))
                weigh<KEYS, true>(scores, key0, start + own, lane, back, softcap, window, largest, total, shrink);
            else
                weigh<KEYS, false>(scores, key0, start + own, lane, back, softcap, window, largest, total, shrink);
            mix<KEYS, DIM / 16>(sums, scores, shrink, lane, [&](int row, int chunk) {
                return values_at + (DIM == 64 ? narrow_place(row, chunk) : wide_place(row, chunk));
            });
        }
        if (goes_on) {
            u8* to = room + (turn ^ 1) * 2 * BYTES;
            next_keys.store(to, codec);
            next_values.store(to + BYTES, codec);
            __syncthreads();
        }
    }
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int query = own + 8 * half;
        const float sum = row_sum(total[half]);
        if (query >= n_tokens) continue;
        float* to = out + query * out_step + head * dim + 2 * (lane & 3);
#pragma unroll
        for (int i = 0; i < DIM / 8; i++)
            if (8 * i < dim) {
                to[8 * i] = sums[i][2 * half] / sum;
                to[8 * i + 1] = sums[i][2 * half + 1] / sum;
            }
    }
}

KERNEL __launch_bounds__(256, 1) attend_half_64(ARGUMENTS) { WAIT; attend<64>(PASSED); }
KERNEL __launch_bounds__(256, 1) attend_half_128(ARGUMENTS) { WAIT; attend<128>(PASSED); }
