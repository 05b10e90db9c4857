// The residual stream of one token: additions, norms, rotation of heads and storing of keys and values, copies.
// Products with weights are elsewhere.
//
// Sums run in an order that depends only on the sizes. Vectors are f32; 0 stands for a missing array.
#include "heads.cuh"

#define MOST_ROWS 8     // of a block of `gather`: how many partial sums are added side by side

// stream [n] = factor (stream + sum of parts [n_parts, n] + others, each [n]); fresh: without the stream. Blocks of 32 columns x blockDim.y rows that share the
// parts; the others, which may be in host memory, are loaded first and added last.
// stats [gridDim.x]: of each block's columns the sum and the sum of squares (kind 1), or that of squared distances from
// their own mean (kind 2), from which `normalise` computes the total without losing digits.
KERNEL __launch_bounds__(256) gather(float* stream, const float* parts, int n_parts, const float* a, const float* b,
                                     const float* c, const float* d, int n, float factor, int fresh,
                                     float2* stats, int kind) {
    START_NEXT; WAIT;
    __shared__ float rows[MOST_ROWS][32];
    const int lane = threadIdx.x, row = threadIdx.y, column = blockIdx.x * 32 + lane;
    const bool there = column < n;
    float sum = 0.f;
    if (there) {
        const float* mine = row % 4 == 0 ? a : row % 4 == 1 ? b : row % 4 == 2 ? c : d;
        float other = 0.f, v = 0.f;
        if (mine && row < 4) other = load_fresh(mine + column);
        if (row == 0 && !fresh) v = stream[column];
#pragma unroll 8
        for (int p = row; p < n_parts; p += blockDim.y) sum += parts[(u64)p * n + column];
        sum = v + (sum + other);
    }
    rows[row][lane] = sum;
    __syncthreads();
    if (row) return;
    for (int r = 1; r < blockDim.y; r++) sum += rows[r][lane];
    sum *= factor;
    if (there) stream[column] = sum;
    if (kind == 0) return;
    const float total = warp_sum(there ? sum : 0.f);
    const float mean = kind == NORM_LAYER ? total / (float)min(32, n - (int)blockIdx.x * 32) : 0.f;
    const float squares = warp_sum(there ? (sum - mean) * (sum - mean) : 0.f);
    if (lane == 0) stats[blockIdx.x] = make_float2(total, squares);
}

// Four numbers from `column` on; 0 beyond the end.
DEVICE void load_four(const float* x, int column, int n, float (&out)[4]) {
    if (column + 4 <= n && ((u64)(x + column) & 15) == 0) {
        const float4 v = *(const float4*)(x + column);
        out[0] = v.x; out[1] = v.y; out[2] = v.z; out[3] = v.w;
        return;
    }
#pragma unroll
    for (int j = 0; j < 4; j++) out[j] = column + j < n ? x[column + j] : 0.f;
}

// The mean of n numbers and 1 / their deviation (kind 1: 0 and 1 / root of the mean square), from the stats of
// `gather`.
DEVICE float2 centre_and_factor(const float2* stats, int n, int kind, float epsilon, float* places) {
    const int blocks = (n + 31) / 32;
    float mean = 0.f, squares = 0.f;
    if (kind == NORM_LAYER) {
        for (int i = threadIdx.x; i < blocks; i += blockDim.x) mean += stats[i].x;
        mean = block_sum(mean, places) / (float)n;
    }
    for (int i = threadIdx.x; i < blocks; i += blockDim.x) {
        const float2 block = stats[i];
        squares += block.y;
        if (kind == NORM_LAYER) {
            const float count = (float)min(32, n - 32 * i), off = block.x / count - mean;
            squares += count * off * off;
        }
    }
    squares = block_sum(squares, places);
    return make_float2(mean, __fdiv_rn(1.f, __fsqrt_rn(squares / (float)n + epsilon)));
}

// to [n] = norm of x [n], which may be the same, and its 8-bit form if bytes are given. Four columns per thread.
KERNEL __launch_bounds__(128) normalise(const float* x, const float2* stats, int n, int kind, const float* weight,
                                        const float* bias, float epsilon, float* to, u8* bytes, float2* scales) {
    START_NEXT; WAIT;
    __shared__ float places[4];
    const int column = 4 * (blockIdx.x * 128 + threadIdx.x);
    float v[4], w[4], added[4] = {0.f, 0.f, 0.f, 0.f};
    load_four(x, column, n, v);
    load_four(weight, column, n, w);
    if (bias) load_four(bias, column, n, added);
    const float2 by = centre_and_factor(stats, n, kind, epsilon, places);
    const bool whole = column + 4 <= n && ((u64)(to + column) & 15) == 0;
#pragma unroll
    for (int j = 0; j < 4; j++) {
        v[j] = column + j < n ? (v[j] - by.x) * by.y * w[j] + added[j] : 0.f;
        if (!whole && column + j < n) to[column + j] = v[j];
    }
    if (whole) *(float4*)(to + column) = make_float4(v[0], v[1], v[2], v[3]);
    if (bytes) round_four({x, to, bytes, scales, n}, column, v);
}

// x [gridDim.x, n] = RMS norm of each row, plus the row of `added`, which the CPU may have just written.
KERNEL __launch_bounds__(128) norm_rows(float* x, int n, const float* weight, float epsilon, const float* added) {
    START_NEXT; WAIT;
    __shared__ float places[4];
    float* row = x + (u64)blockIdx.x * n;
    const float* other = added + (u64)blockIdx.x * n;
    float squares = 0.f;
    for (int i = threadIdx.x; i < n; i += 128) squares += row[i] * row[i];
    squares = block_sum(squares, places);
    const float factor = __fdiv_rn(1.f, __fsqrt_rn(squares / (float)n + epsilon));
    for (int i = threadIdx.x; i < n; i += 128) row[i] = row[i] * factor * weight[i] + load_fresh(other + i);
}

// n_words words; source may have just been written by the CPU, and the CPU may read `to`.
KERNEL __launch_bounds__(256) copy_words(const float* source, float* to, int n_words) {
    START_NEXT; WAIT;
    const int step = gridDim.x * 256, first = blockIdx.x * 256 + threadIdx.x;
    const bool whole = (((u64)source | (u64)to) & 15) == 0;
    const int lines = whole ? n_words / 4 : 0;
    for (int i = first; i < lines; i += step) ((float4*)to)[i] = load_fresh((const float4*)source + i);
    for (int i = 4 * lines + first; i < n_words; i += step) to[i] = load_fresh(source + i);
}

// to [n] = cosine and sine of position * frequency, times scale; state [0] is the position. The angle is computed and
// reduced to one turn in double precision: in single precision that of position 100,000 would be off by 0.004. The
// rounding error of the reduced angle is corrected to first order.
KERNEL __launch_bounds__(64) angles(const int* state, const double* frequencies, float scale, int n, float2* to) {
    START_NEXT; WAIT;
    const int i = blockIdx.x * 64 + threadIdx.x;
    if (i >= n) return;
    const double angle = (double)state[0] * frequencies[i], turns = rint(angle * 0.15915494309189535);
    const double rest = fma(-turns, 2.4492935982947064e-16, fma(-turns, 6.283185307179586, angle));
    const float near = (float)rest, dropped = (float)(rest - (double)near);
    const float sine = sinf(near), cosine = cosf(near);
    to[i] = make_float2(scale * fmaf(-dropped, sine, cosine), scale * fmaf(dropped, cosine, sine));
}

// qkv [n_heads + 2 n_kv_heads, head_dim]: a block each, of whole warps with at least head_dim threads; or the n_heads of q
// alone. Norms (kind 0: none) of the heads, without weights of v's; rotation of the first 2 n_pairs numbers of q and k
// (neighbours: 2i and 2i + 1, else i and i + n_pairs), in place; keys and values into the caches at position state[0].
// norm_last: norms follow the rotation. v_is_k: v is read where k is, which then stays as it was. strength 0: queries do
// not grow with their position.
KERNEL __launch_bounds__(576) rotate_and_store(
    float* qkv, int n_heads, int n_kv_heads, int head_dim, const int* state, const float2* angles, int n_pairs,
    int neighbours, int norm_last, int v_is_k, float strength, int length, int offset, int q_kind, const float* q_weight,
    const float* q_bias, float q_epsilon, int k_kind, const float* k_weight, const float* k_bias, float k_epsilon,
    int v_kind, float v_epsilon, int codec, u8* keys, u8* values, u16* key_scales,
    u16* value_scales, int capacity) {
    START_NEXT; WAIT;
    __shared__ float head[MOST_HEAD], places[MOST_HEAD / 32];
    const int i = threadIdx.x, number = blockIdx.x;
    const bool is_q = number < n_heads, is_k = !is_q && number < n_heads + n_kv_heads;
    float* at = qkv + (u64)(is_q || is_k || !v_is_k ? number : number - n_kv_heads) * head_dim;
    const int position = state[0];
    if (i < head_dim) head[i] = at[i];
    __syncthreads();
    if (is_q && q_kind && !norm_last) norm_head(head, head_dim, q_kind, q_weight, q_bias, q_epsilon, places);
    if (is_k && k_kind && !norm_last) norm_head(head, head_dim, k_kind, k_weight, k_bias, k_epsilon, places);
    if (!is_q && !is_k && v_kind) norm_head(head, head_dim, v_kind, nullptr, nullptr, v_epsilon, places);
    float v = i < head_dim ? head[i] : 0.f;
    if ((is_q || is_k) && i < 2 * n_pairs) {
        const int pair = neighbours ? i / 2 : i % n_pairs;
        const bool second = neighbours ? i & 1 : i >= n_pairs;
        const float other = head[neighbours ? i ^ 1 : second ? i - n_pairs : i + n_pairs];
        const float2 by = angles[pair];
        v = v * by.x + (second ? other : -other) * by.y;
    }
    if (norm_last && (is_q ? q_kind : is_k && k_kind)) {
        __syncthreads();  // others have read the number
        if (i < head_dim) head[i] = v;
        __syncthreads();
        if (is_q) norm_head(head, head_dim, q_kind, q_weight, q_bias, q_epsilon, places);
        else norm_head(head, head_dim, k_kind, k_weight, k_bias, k_epsilon, places);
        v = i < head_dim ? head[i] : 0.f;
    }
    if (is_q && strength != 0.f) v *= 1.f + strength * log1pf((float)((position + offset) / length));
    if ((is_q || (is_k && !v_is_k)) && i < head_dim) at[i] = v;
    if (is_q || (unsigned)position >= (unsigned)capacity) return;
    const u64 row = (u64)((number - n_heads) % n_kv_heads) * capacity + position;
    if (is_k) put_in_cache(v, i, head_dim, codec, row, keys, key_scales);
    else put_in_cache(v, i, head_dim, codec, row, values, value_scales);
}

// x = cap tanh(x / cap), in place.
KERNEL __launch_bounds__(256) softcap(float* x, int n, float cap) {
    START_NEXT; WAIT;
    const int i = blockIdx.x * 256 + threadIdx.x;
    if (i < n) x[i] = cap * tanhf(__fdiv_rn(x[i], cap));
}
