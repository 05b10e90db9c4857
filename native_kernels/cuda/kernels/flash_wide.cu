// Attention of many positions at once on tensor cores, as flash_half.cu, for heads of 129 to 576 numbers, a multiple of 8.
// With 576, a position's key is its value too, as in latent attention.
//
// A block takes 48 queries of one head (32 with 576) and goes over their visible keys 32 at a time (16 before compute
// capability 8.0). For each PART numbers of a head, three warps (two with 576) have 16 queries each: they score by these
// numbers, add the scores of the other numbers from shared memory, and weigh these numbers of the values. With more
// queries, registers would not suffice. grid: x queries by 48 or 32, y heads.
#include "flash_halves.cuh"

#define ROWS (PART == 128 ? 3 : 2)  // of warps
#define QUERIES (16 * ROWS)
#define KEYS (__CUDA_ARCH__ >= 800 ? 32 : 16)
#define STEP (KEYS + 1)  // of a row of scores in shared memory

// As narrow_place, for rows of DIM halves.
template <int DIM>
__device__ __forceinline__ u32 place_of(int row, int chunk) { return row * (2 * DIM) + (chunk ^ (row & 7)) * 16; }

// KEYS positions from `first` on; zeros beyond the last one and beyond dim.
template <int DIM, int PART>
__device__ __forceinline__ void bring(u8* to, const Kept& k, int codec, u64 base, int first, int last, int dim) {
    constexpr int CHUNKS = DIM / 8;
#pragma unroll 2
    for (int i = threadIdx.x; i < KEYS * CHUNKS; i += 32 * ROWS * (DIM / PART)) {
        const int row = i / CHUNKS, chunk = i % CHUNKS;
        uint4 v = make_uint4(0, 0, 0, 0);
        if (first + row <= last && 8 * chunk < dim)
            v = as_halves(eight_stored(k, codec, base + first + row, dim, 8 * chunk), codec);
        *(uint4*)(to + place_of<DIM>(row, chunk)) = v;
    }
}

// PART: numbers of a head that a warp has. SHARED: keys are the values too, and of DIM numbers.
template <int DIM, int PART, bool SHARED = false>
__device__ __forceinline__ void attend(const float* q, u64 q_step, float* out, u64 out_step, const Kept keys,
                                       const Kept values, int codec, int given_dim, int n_tokens, int start, int group,
                                       int capacity, float scale, float softcap, int window,
                                       const float* sinks) {
    const int dim = SHARED ? DIM : given_dim;
    extern __shared__ __align__(128) u8 room[];
    u8 *some_keys = room, *some_values = SHARED ? room : room + KEYS * DIM * 2;
    float* by_part = (float*)(some_values + KEYS * DIM * 2);  // [DIM / PART, QUERIES, STEP], scores by each part of a head
    const int lane = threadIdx.x & 31, row = threadIdx.x / 32 % ROWS, part = threadIdx.x / (32 * ROWS), head = blockIdx.y;
    const int query0 = (gridDim.x - 1 - blockIdx.x) * QUERIES;  // the longest first
    const int own = query0 + 16 * row + lane / 4;               // and the one 8 rows below
    const u64 base = (u64)(head / group) * capacity;
    const int last = start + min(query0 + QUERIES, n_tokens) - 1;
    const int first = window > 0 ? max(0, start + query0 - window + 1) : -window;

    u32 queries[PART / 16][4];
    float back[2];
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int query = own + 8 * half;
        const float* from = q + min(query, n_tokens - 1) * q_step + head * dim + 2 * (lane & 3);
        float most = 0.f;
        for (int d = 0; d < dim; d += 8) most = fmaxf(most, fmaxf(fabsf(from[d]), fabsf(from[d + 1])));
        const float factor = rounding_factor(row_largest(most), back[half]);
#pragma unroll
        for (int i = 0; i < PART / 8; i++) {
            const int d = PART * part + 8 * i;
            queries[i / 2][half + i % 2 * 2] = d < dim ? two_halves(from[d] * factor, from[d + 1] * factor) : 0;
        }
        back[half] *= softcap > 0.f ? scale : LOG2_E * scale;
    }
    const float sink = sinks ? LOG2_E * __ldg(sinks + head) : NO_SCORE, of_sink = sinks && lane % 4 == 0 ? 1.f : 0.f;
    float largest[2] = {sink, sink}, total[2] = {of_sink, of_sink}, sums[PART / 8][4];
#pragma unroll
    for (int i = 0; i < PART / 2; i++) sums[i / 4][i % 4] = 0.f;
    const u32 keys_at = shared_address(some_keys), values_at = shared_address(some_values);

    for (int key0 = first; key0 <= last; key0 += KEYS) {
        __syncthreads();
        bring<DIM, PART>(some_keys, keys, codec, base, key0, last, dim);
        if (!SHARED) bring<DIM, PART>(some_values, values, codec, base, key0, last, dim);
        __syncthreads();
        float scores[KEYS / 8][4], shrink[2];
        score<KEYS>(scores, queries, lane, [&](int row, int chunk) { return keys_at + place_of<DIM>(row, PART / 8 * part + chunk); });
        float* at = by_part + (16 * row + lane / 4) * STEP + 2 * (lane & 3);
#pragma unroll
        for (int i = 0; i < KEYS / 2; i++) {
            float& score = scores[i / 4][i % 4];
            at[part * QUERIES * STEP + i / 2 % 2 * 8 * STEP + i / 4 * 8 + i % 2] = score;
            score = 0.f;
        }
        __syncthreads();
#pragma unroll
        for (int p = 0; p < DIM / PART; p++)
#pragma unroll
            for (int i = 0; i < KEYS / 2; i++)
                scores[i / 4][i % 4] += at[p * QUERIES * STEP + i / 2 % 2 * 8 * STEP + i / 4 * 8 + i % 2];
        weigh<KEYS, false>(scores, key0, start + own, lane, back, softcap, window, largest, total, shrink);
        mix<KEYS, PART / 16>(sums, scores, shrink, lane,
                           [&](int row, int chunk) { return values_at + place_of<DIM>(row, PART / 8 * part + chunk); });
    }
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int query = own + 8 * half;
        const float sum = row_sum(total[half]);
        if (query >= n_tokens) continue;
        float* to = out + query * out_step + head * dim + 2 * (lane & 3);
#pragma unroll
        for (int i = 0; i < PART / 8; i++) {
            const int d = PART * part + 8 * i;
            if (d >= dim) continue;
            to[d] = sums[i][2 * half] / sum;
            to[d + 1] = sums[i][2 * half + 1] / sum;
        }
    }
}

KERNEL __launch_bounds__(192, 2) attend_wide_256(ARGUMENTS) { WAIT; attend<256, 128>(PASSED); }
KERNEL __launch_bounds__(384, 1) attend_wide_512(ARGUMENTS) { WAIT; attend<512, 128>(PASSED); }
KERNEL __launch_bounds__(384, 1) attend_wide_576(ARGUMENTS) {
    WAIT;
#if __CUDA_ARCH__ >= 800  // before, registers do not suffice, and it is not launched
    attend<576, 96, true>(PASSED);
#endif
}
