// Latent attention (MLA), between its products: the queries' numbers that are rotated, and the key that is cached
// (LatentSpec in native_kernels/backend.py).
#include "heads.cuh"

#define THREADS 256
#define BEHIND (1 << 30)  // beyond every vector's end, a multiple of 4

// Of T positions, one for each blockIdx.y. state: [t] is the position of number t, which goes to slot t of the cache, of
// `slot` positions; 0: consecutive ones start at `start`.
// cosines, sines: [T, n_pairs], `apart` numbers from one pair to the next. neighbours: pairs are 2i and 2i + 1, else i and
// i + n_pairs. strength 0: queries do not grow with their position. codec: as in put_in_cache.
struct Latent {
    float* q;            // [T, H, key_dim + rotated]
    const float* k;      // [T, rank + rotated]
    float* queries;      // [T, H, rank + rotated], of which the rotated numbers are written
    Rounded plain;       // [H, key_dim] of one position: the other numbers of q; values 0: they stay in q
    const float* norm;   // [rank], weights of the latent vector's norm
    const float *cosines, *sines;
    const int* state;
    u8* keys;
    u16* key_scales;
    float epsilon, strength;
    int n_heads, key_dim, rotated, rank, apart, n_pairs, neighbours, codec, capacity, start, slot, length, offset;
};

// A rotated number: number i of those from `row` on.
DEVICE float rotated(const Latent& job, const float* row, int i, int t) {
    if (i >= 2 * job.n_pairs) return row[i];
    const int pair = job.neighbours ? i / 2 : i % job.n_pairs;
    const bool second = job.neighbours ? i & 1 : i >= job.n_pairs;
    const float other = row[job.neighbours ? i ^ 1 : second ? i - job.n_pairs : i + job.n_pairs];
    const u64 at = ((u64)t * job.n_pairs + pair) * job.apart;
    return row[i] * job.cosines[at] + (second ? other : -other) * job.sines[at];
}

DEVICE void place_query(const Latent& job, const float* row, float* from, int head, int t, int position) {
    const float factor = job.strength == 0.f ? 1.f : 1.f + job.strength * log1pf((float)((position + job.offset) / job.length));
    float* to = job.queries + ((u64)t * job.n_heads + head) * (job.rank + job.rotated) + job.rank;
    for (int i = threadIdx.x; i < job.rotated; i += THREADS) to[i] = factor * rotated(job, row + job.key_dim, i, t);
    if (!job.plain.values) {
        if (job.strength != 0.f)
            for (int i = threadIdx.x; i < job.key_dim; i += THREADS) from[i] = factor * row[i];
        return;
    }
    for (int base = 0; base < job.key_dim; base += 4 * THREADS) {
        const int i = base + 4 * threadIdx.x, column = head * job.key_dim + i;
        float v[4];
#pragma unroll
        for (int j = 0; j < 4; j++) {
            v[j] = i + j < job.key_dim ? factor * row[i + j] : 0.f;
            if (i + j < job.key_dim) job.plain.values[column + j] = v[j];
        }
        if (job.plain.bytes) round_four(job.plain, i < job.key_dim ? column : BEHIND, v);
    }
}

DEVICE void place_key(const Latent& job, const float* row, float* places, int t, int position) {
    const int width = job.rank + job.rotated;
    float sum = 0.f;
    for (int i = threadIdx.x; i < job.rank; i += THREADS) sum += row[i] * row[i];
    const float by = __fdiv_rn(1.f, __fsqrt_rn(block_sum(sum, places) / (float)job.rank + job.epsilon));
    if ((unsigned)position >= (unsigned)job.capacity) return;
    for (int i = threadIdx.x; i / 32 * 32 < width; i += THREADS) {  // whole warps
        float v = 0.f;
        if (i < job.rank) v = row[i] * by * job.norm[i];
        else if (i < width) v = rotated(job, row + job.rank, i - job.rank, t);
        put_in_cache(v, i, width, job.codec, position, job.keys, job.key_scales);
    }
}

// Grid: H + 1 (the key last), T.
KERNEL __launch_bounds__(256) place_latent(const Latent job) {
    WAIT;
    __shared__ float row[MOST_HEAD], places[THREADS / 32];
    const int number = blockIdx.x, t = blockIdx.y, position = job.state ? job.state[t] : job.start + t;
    const bool is_key = number == job.n_heads;
    const int width = job.rotated + (is_key ? job.rank : job.key_dim);
    float* from = job.q + ((u64)t * job.n_heads + number) * width;
    for (int i = threadIdx.x; i < width; i += THREADS) row[i] = is_key ? job.k[(u64)t * width + i] : from[i];
    __syncthreads();
    if (is_key) place_key(job, row, places, t, job.slot * t + position);
    else place_query(job, row, from, number, t, position);
}
