// Attention of many positions at once without storing the scores: for each query a running maximum, sum and weighted
// sum of values, in f32 throughout.
//
// A block of 256 threads takes 64 queries of one head and goes over their visible keys, 64 (of wide heads 32 or 16) at a
// time. Query t is at position start + t and sees the positions up to its own, limited to the last `window`, or to those from
// -window on if that is 0 or less.
// Keys and values: [H_kv, capacity, dim] in f32, f16 or bytes (codec 0, 1, 2) with scales f16 [H_kv, capacity, dim / 32
// rounded up]; dim up to 64, 128, 256, 512, 576, the number in the kernel's name. grid: x queries by 64, y heads.
#include "halves.cuh"

#define QUERIES 64
#define PART 32
#define NO_SCORE -3.0e38f

struct Kept {
    const u8* numbers;
    const u8* scales;
    int codec, dim;
};

__device__ __forceinline__ float kept_number(const Kept& k, u64 place, int d) {
    const u64 at = place * k.dim + d;
    if (k.codec == 0) return ((const float*)k.numbers)[at];
    if (k.codec == 1) return from_half(((const u16*)k.numbers)[at]);
    return from_half(((const u16*)k.scales)[place * ((k.dim + 31) / 32) + d / 32]) *
           (float)((const signed char*)k.numbers)[at];
}

__device__ __forceinline__ float sixteen_sum(float v) {
#pragma unroll
    for (int o = 8; o; o >>= 1) v += __shfl_xor_sync(0xffffffffu, v, o);
    return v;
}

__device__ __forceinline__ float sixteen_largest(float v) {
#pragma unroll
    for (int o = 8; o; o >>= 1) v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, o));
    return v;
}

template <int DIM, int KEYS>
__device__ __forceinline__ void attend(const float* q, u64 q_step, float* out, u64 out_step, const Kept keys,
                                       const Kept values, int n_tokens, int start, int group, int capacity, float scale,
                                       float softcap, int window, const float* sinks) {
    constexpr int COLUMNS = KEYS / 16, DEPTHS = DIM / 16;
    __shared__ float room[KEYS * DIM > (QUERIES + KEYS) * (PART + 1) ? KEYS * DIM : (QUERIES + KEYS) * (PART + 1)];
    __shared__ float weights[QUERIES * KEYS];
    float* some_q = room;                          // [QUERIES, PART + 1]
    float* some_k = room + QUERIES * (PART + 1);   // [KEYS, PART + 1]
    const int tx = threadIdx.x % 16, ty = threadIdx.x / 16, dim = keys.dim, head = blockIdx.y;
    const int query0 = (gridDim.x - 1 - blockIdx.x) * QUERIES;  // the longest first
    const u64 base = (u64)(head / group) * capacity;
    const int last = start + min(query0 + QUERIES, n_tokens) - 1;
    const int first = window > 0 ? max(0, start + query0 - window + 1) : -window;

    float largest[4], total[4], sums[4][DEPTHS];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        largest[i] = sinks ? __ldg(sinks + head) : NO_SCORE;
        total[i] = sinks ? 1.f : 0.f;
#pragma unroll
        for (int d = 0; d < DEPTHS; d++) sums[i][d] = 0.f;
    }
    for (int key0 = first; key0 <= last; key0 += KEYS) {
        float scores[4][COLUMNS];
#pragma unroll
        for (int i = 0; i < 4; i++)
#pragma unroll
            for (int j = 0; j < COLUMNS; j++) scores[i][j] = 0.f;
        for (int part = 0; part < dim; part += PART) {
            __syncthreads();
            for (int i = threadIdx.x; i < QUERIES * PART; i += 256) {
                const int row = i / PART, d = part + i % PART;
                const bool inside = query0 + row < n_tokens && d < dim;
                some_q[row * (PART + 1) + i % PART] = inside ? q[(query0 + row) * q_step + head * dim + d] : 0.f;
            }
            for (int i = threadIdx.x; i < KEYS * PART; i += 256) {
                const int row = i / PART, d = part + i % PART;
                const bool inside = key0 + row <= last && d < dim;
                some_k[row * (PART + 1) + i % PART] = inside ? kept_number(keys, base + key0 + row, d) : 0.f;
            }
            __syncthreads();
#pragma unroll 8
            for (int d = 0; d < PART; d++) {
                float a[4];
#pragma unroll
                for (int i = 0; i < 4; i++) a[i] = some_q[(4 * ty + i) * (PART + 1) + d];
#pragma unroll
                for (int j = 0; j < COLUMNS; j++) {
                    const float b = some_k[(tx + 16 * j) * (PART + 1) + d];
#pragma unroll
                    for (int i = 0; i < 4; i++) scores[i][j] += a[i] * b;
                }
            }
        }
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int position = start + query0 + 4 * ty + i;
            float most = NO_SCORE;
#pragma unroll
            for (int j = 0; j < COLUMNS; j++) {
                const int key = key0 + tx + 16 * j;
                float s = scores[i][j] * scale;
                if (softcap > 0.f) s = softcap * tanhf(s / softcap);
                if (key > position || (window > 0 && key <= position - window)) s = NO_SCORE;
                scores[i][j] = s;
                most = fmaxf(most, s);
            }
            most = fmaxf(largest[i], sixteen_largest(most));
            const float shrink = expf(largest[i] - most);
            float sum = 0.f;
#pragma unroll
            for (int j = 0; j < COLUMNS; j++) {
                const float w = scores[i][j] == NO_SCORE ? 0.f : expf(scores[i][j] - most);
                weights[(4 * ty + i) * KEYS + tx + 16 * j] = w;
                sum += w;
            }
            total[i] = total[i] * shrink + sixteen_sum(sum);
            largest[i] = most;
#pragma unroll
            for (int d = 0; d < DEPTHS; d++) sums[i][d] *= shrink;
        }
        __syncthreads();
        for (int i = threadIdx.x; i < KEYS * DIM; i += 256) {
            const int row = i / DIM, d = i % DIM;
            room[i] = key0 + row <= last && d < dim ? kept_number(values, base + key0 + row, d) : 0.f;
        }
        __syncthreads();
#pragma unroll 4
        for (int key = 0; key < KEYS; key++) {
            float w[4];
#pragma unroll
            for (int i = 0; i < 4; i++) w[i] = weights[(4 * ty + i) * KEYS + key];
#pragma unroll
            for (int d = 0; d < DEPTHS; d++) {
                const float v = room[key * DIM + tx + 16 * d];
#pragma unroll
                for (int i = 0; i < 4; i++) sums[i][d] += w[i] * v;
            }
        }
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int query = query0 + 4 * ty + i;
        if (query >= n_tokens) continue;
#pragma unroll
        for (int d = 0; d < DEPTHS; d++)
            if (tx + 16 * d < dim) out[query * out_step + head * dim + tx + 16 * d] = sums[i][d] / total[i];
    }
}

#define ARGUMENTS                                                                                                     \
    const float *q, u64 q_step, float *out, u64 out_step, const u8 *keys, const u8 *values, const u8 *key_scales,      \
        const u8 *value_scales, int codec, int dim, int n_tokens, int start, int group, int capacity, float scale,     \
        float softcap, int window, const float *sinks
#define PASSED                                                                                                        \
    q, q_step, out, out_step, Kept{keys, key_scales, codec, dim}, Kept{values, value_scales, codec, dim}, n_tokens,    \
        start, group, capacity, scale, softcap, window, sinks

KERNEL __launch_bounds__(256, 2) attend_64(ARGUMENTS) { WAIT; attend<64, 64>(PASSED); }
KERNEL __launch_bounds__(256, 2) attend_128(ARGUMENTS) { WAIT; attend<128, 64>(PASSED); }
KERNEL __launch_bounds__(256, 2) attend_256(ARGUMENTS) { WAIT; attend<256, 32>(PASSED); }
KERNEL __launch_bounds__(256, 1) attend_512(ARGUMENTS) { WAIT; attend<512, 16>(PASSED); }
KERNEL __launch_bounds__(256, 1) attend_576(ARGUMENTS) { WAIT; attend<576, 16>(PASSED); }
