// The experts of many positions: the router's scores, rows grouped by expert, and their weighted sum. The products are
// gemm.cu's, the choice is router.cu's. T positions use K of E experts each: R = T K rows.
#include "halves.cuh"

#define SCORED 4  // positions of a block

__device__ __forceinline__ float number_of(const float* at) { return *at; }
__device__ __forceinline__ float number_of(const u16* at) { return from_half(*at); }

// scores [T, E] = x [T, D] times the rows of w [E, D], in f32. grid: x T by SCORED, y E by 8; a warp per row.
template <class T>
__device__ __forceinline__ void score(const float* x, u64 x_step, const T* w, u64 w_step, const float* bias,
                                      float* scores, int n_tokens, int n_experts, int depth) {
    const int lane = threadIdx.x & 31, expert = blockIdx.y * 8 + (threadIdx.x >> 5), first = blockIdx.x * SCORED;
    if (expert >= n_experts) return;
    const T* row = w + expert * w_step;
    float sums[SCORED] = {};
    for (int d = lane; d < depth; d += 32) {
        const float by = number_of(row + d);
#pragma unroll
        for (int i = 0; i < SCORED; i++) sums[i] = fmaf(by, x[min(first + i, n_tokens - 1) * x_step + d], sums[i]);
    }
#pragma unroll
    for (int i = 0; i < SCORED; i++) {
#pragma unroll
        for (int o = 16; o; o >>= 1) sums[i] += __shfl_xor_sync(0xffffffffu, sums[i], o);
        if (lane == 0 && first + i < n_tokens)
            scores[(u64)(first + i) * n_experts + expert] = sums[i] + (bias ? bias[expert] : 0.f);
    }
}

KERNEL __launch_bounds__(256) score_floats(const float* x, u64 x_step, const float* w, u64 w_step, const float* bias,
                                           float* scores, int n_tokens, int n_experts, int depth) {
    WAIT;
    score(x, x_step, w, w_step, bias, scores, n_tokens, n_experts, depth);
}

KERNEL __launch_bounds__(256) score_halves(const float* x, u64 x_step, const u16* w, u64 w_step, const float* bias,
                                           float* scores, int n_tokens, int n_experts, int depth) {
    WAIT;
    score(x, x_step, w, w_step, bias, scores, n_tokens, n_experts, depth);
}

// Group the rows by the ranks of their experts, and by positions within. ids [R]: the experts; rank_of [E]. starts
// [E + 1]: each rank's first row; positions [R]: of each grouped row; places [R]: where each of ids is. A block per
// rank counts for itself what comes before.
KERNEL __launch_bounds__(256) group_rows(const int* ids, const int* rank_of, int n_rows, int n_used, int n_experts,
                                         int* starts, int* positions, int* places) {
    WAIT;
    __shared__ int of_warp[8];
    __shared__ int start;
    const int rank = blockIdx.x, lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    if (threadIdx.x == 0) start = 0;
    __syncthreads();
    int before = 0;
    for (int i = threadIdx.x; i < n_rows; i += 256) before += rank_of[ids[i]] < rank ? 1 : 0;
    atomicAdd(&start, before);
    __syncthreads();
    int at = start;
    if (threadIdx.x == 0) {
        starts[rank] = at;
        if (rank == n_experts - 1) starts[n_experts] = n_rows;
    }
    for (int base = 0; base < n_rows; base += 256) {
        const int i = base + threadIdx.x;
        const bool mine = i < n_rows && rank_of[ids[i]] == rank;
        const u32 others = __ballot_sync(0xffffffffu, mine);
        if (lane == 0) of_warp[warp] = __popc(others);
        __syncthreads();
        int place = at + __popc(others & ((1u << lane) - 1u));
        for (int w = 0; w < 8; w++) {
            if (w < warp) place += of_warp[w];
            at += of_warp[w];
        }
        if (mine) {
            positions[place] = i / n_used;
            places[i] = place;
        }
        __syncthreads();
    }
}

// Row r of `to` = row positions[r] of x, as halves `step` apart with factors. weights [T, K + 1]: those of the row's
// position and expert multiply it, whose row is places [T, K]; 0: none. A block per row.
KERNEL __launch_bounds__(128) take_rows(const u16* x, const float* factors, const int* positions, u64 step, u16* to,
                                        float* to_factors, const float* weights, const int* places, int n_used) {
    WAIT;
    const int row = blockIdx.x, from = positions[row];
    const uint4* source = (const uint4*)(x + from * step);
    uint4* target = (uint4*)(to + row * step);
    for (int i = threadIdx.x; i < (int)(step / 8); i += blockDim.x) target[i] = source[i];
    if (threadIdx.x) return;
    float factor = factors[from];
    for (int k = 0; weights && k < n_used; k++)
        if (places[from * n_used + k] == row) factor *= weights[from * (n_used + 1) + k];
    to_factors[row] = factor;
}

// out [T, D] += the sum over k of weights [T, K + 1] (0: all 1) times row places[t, k] of y, and over the shared expert's [T, D]
// with the last weight (0: none). In this order. A block per position.
KERNEL __launch_bounds__(256) sum_experts(const float* y, const int* places, const float* weights, const float* shared,
                                          int n_used, int n, float* out, u64 out_step, int adds) {
    WAIT;
    const u64 t = blockIdx.x;
    const float* own = weights + t * (n_used + 1);
    for (int d = threadIdx.x; d < n; d += blockDim.x) {
        float sum = 0.f;
        for (int k = 0; k < n_used; k++) sum = fmaf(weights ? own[k] : 1.f, y[(u64)places[t * n_used + k] * n + d], sum);
        if (shared) sum = fmaf(weights ? own[n_used] : 1.f, shared[t * n + d], sum);
        float* to = out + t * out_step + d;
        *to = adds ? *to + sum : sum;
    }
}
