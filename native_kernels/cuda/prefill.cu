// What many positions need beside products (gemm.cu) and attention (flash.cu): norms, rounding, rotation, keys and
// values into their place, activations. Vectors of numbers are f32 [T, n], rows `step` numbers apart.
//
// round_rows: one block a row, of up to 1024 threads: a norm (kind 1: root mean square, 2: layer; 0: none), then into out
// (added to it where `adds`), and as halves whose largest lies in [2^12, 2^13), with the power of two that undoes it.
#include "halves.cuh"

// ---------------------------------------------------------------- rows

__device__ __forceinline__ float warp_sum(float v) {
#pragma unroll
    for (int o = 16; o; o >>= 1) v += __shfl_xor_sync(0xffffffffu, v, o);
    return v;
}

__device__ __forceinline__ float warp_largest(float v) {
#pragma unroll
    for (int o = 16; o; o >>= 1) v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, o));
    return v;
}

// Over a block; all get it.
template <bool LARGEST>
__device__ __forceinline__ float over_block(float v) {
    __shared__ float of_warp[32];
    v = LARGEST ? warp_largest(v) : warp_sum(v);
    __syncthreads();
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = v;
    __syncthreads();
    float all = of_warp[0];
    for (int i = 1; i < (int)blockDim.x / 32; i++) all = LARGEST ? fmaxf(all, of_warp[i]) : all + of_warp[i];
    return all;
}

KERNEL __launch_bounds__(1024, 1) round_rows(
    const float* x, u64 x_step, int n, int kind, const float* weight, const float* bias, float eps, float* out,
    u64 out_step, int adds, u16* halves, u64 half_step, float* factors) {
    const float* from = x + blockIdx.x * x_step;
    float mean = 0.f, factor = 1.f;
    if (kind == 2) {
        float sum = 0.f;
        for (int i = threadIdx.x; i < n; i += blockDim.x) sum += from[i];
        mean = over_block<false>(sum) / (float)n;
    }
    if (kind) {
        float sum = 0.f;
        for (int i = threadIdx.x; i < n; i += blockDim.x) sum += (from[i] - mean) * (from[i] - mean);
        factor = 1.f / sqrtf(over_block<false>(sum) / (float)n + eps);
    }
    const auto value = [&](int i) {
        if (!kind) return from[i];
        const float normed = (from[i] - mean) * factor * weight[i];
        return bias ? normed + bias[i] : normed;
    };
    float up = 1.f;
    if (halves) {
        float largest = 0.f, back;
        for (int i = threadIdx.x; i < n; i += blockDim.x) largest = fmaxf(largest, fabsf(value(i)));
        up = rounding_factor(over_block<true>(largest), back);
        if (threadIdx.x == 0) factors[blockIdx.x] = back;
    }
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        const float v = value(i);
        if (halves) halves[blockIdx.x * half_step + i] = to_half(v * up);
        if (out) {
            float* to = out + blockIdx.x * out_step + i;
            *to = adds ? *to + v : v;
        }
    }
}

// ---------------------------------------------------------------- hidden values

__device__ __forceinline__ float activated(float x, int kind, float threshold) {
    switch (kind) {
        case 0: case 1: return x <= 0.f ? 0.f : x;
        case 2: return x <= threshold ? 0.f : x;
        case 3: return x / (1.f + expf(-x));
        case 4: return 0.5f * x * (1.f + erff(x * 0.70710678118654752f));
        default: return 0.5f * x * (1.f + tanhf(0.79788456080286536f * (x + 0.044715f * x * x * x)));
    }
}

// first [T, n] becomes its activation times up (0: without), as halves too. kind: 0 relu, 1 drelu, 2 fatrelu, 3 silu,
// 4 gelu, 5 gelu-tanh. neuron_in [n]: slots with a negative number are empty (0: none is). counts [T, 2], added to:
// how many passed the first activation, and how many fired. One block a row.
KERNEL __launch_bounds__(1024, 1) activate_rows(
    float* first, const float* up, u64 step, int n, int kind, float threshold, const int* neuron_in, u16* halves,
    u64 half_step, float* factors, u32* counts) {
    float* row = first + blockIdx.x * step;
    const float* others = up + blockIdx.x * step;
    float largest = 0.f, opened = 0.f, fired = 0.f;
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        float h = neuron_in && neuron_in[i] < 0 ? 0.f : activated(row[i], kind, threshold);
        const bool passed = h != 0.f;
        bool fires = passed;
        if (up) {
            float other = others[i];
            if (kind == 1) {
                other = activated(other, 1, 0.f);
                fires = fires && other != 0.f;
            }
            h = passed ? h * other : 0.f;
        }
        opened += passed ? 1.f : 0.f;
        fired += fires ? 1.f : 0.f;
        row[i] = h;
        largest = fmaxf(largest, fabsf(h));
    }
    float back;
    const float factor = rounding_factor(over_block<true>(largest), back);
    opened = over_block<false>(opened);  // whole numbers below 2^24: exact
    fired = over_block<false>(fired);
    if (threadIdx.x == 0) {
        factors[blockIdx.x] = back;
        counts[2 * blockIdx.x] += (u32)opened;
        counts[2 * blockIdx.x + 1] += (u32)fired;
    }
    for (int i = threadIdx.x; i < n; i += blockDim.x) halves[blockIdx.x * half_step + i] = to_half(row[i] * factor);
}

// fired counts up by the positions where h [T, n] is not 0; places [n]: where each is counted (0: in order), a negative
// one nowhere. Whole numbers: their sum does not depend on the order. grid: x n by 128, y T by 32; 128 threads.
KERNEL tally(const float* h, u64 step, int n_tokens, int n, u32* fired, const int* places) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    u32 count = 0;
    const int first = 32 * blockIdx.y, last = min(n_tokens, first + 32);
#pragma unroll 8
    for (int t = first; t < last; t++) count += h[t * step + i] != 0.f ? 1u : 0u;
    const int place = places ? places[i] : i;
    if (place >= 0 && count) atomicAdd(fired + place, count);
}

// ---------------------------------------------------------------- heads

__device__ __forceinline__ void store_key(u8* to, u8* scales, const float* head, int dim, int codec, int lane) {
    for (int d = lane; d < (dim + 31) / 32 * 32; d += 32) {
        const float v = d < dim ? head[d] : 0.f;
        if (codec == 2) {
            const float largest = warp_largest(fabsf(v));
            const float steps = largest > 0.f ? 127.f / largest : 0.f;
            if (d < dim) ((signed char*)to)[d] = (signed char)__float2int_rn(v * steps);
            if (lane == 0) ((u16*)scales)[d / 32] = to_half(largest * (1.f / 127.f));
        } else if (d < dim) {
            if (codec == 1) ((u16*)to)[d] = to_half(v);
            else ((float*)to)[d] = v;
        }
    }
}

// A warp for each head of each of T positions: qkv [T, H + 2 H_kv, dim], dim up to 256. Norms over each head of q and k
// (weights 0: none; kind as round_rows), then the first 2 n_angles values of each turn by cosines and sines [T,
// n_angles]; q stays in place, keys and values go to position `start` + t of [H_kv, capacity, dim] in f32, f16 or bytes
// (codec 0, 1, 2; scales f16 [H_kv, capacity, dim / 32 rounded up]). grid: x T, y heads by four; 128 threads.
KERNEL __launch_bounds__(128) place_heads(
    float* qkv, u64 step, int n_heads, int n_kv_heads, int dim, int kind, const float* q_norm, const float* q_bias,
    const float* k_norm, const float* k_bias, float eps, const float* cosines, const float* sines, int n_angles,
    int interleaved, u8* keys, u8* values, u8* key_scales, u8* value_scales, int codec, int capacity, int start,
    const int* positions) {
    __shared__ float heads[4][256];
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, number = blockIdx.y * 4 + warp;
    if (number >= n_heads + 2 * n_kv_heads) return;
    float* from = qkv + blockIdx.x * step + number * dim;
    float* head = heads[warp];
    for (int d = lane; d < dim; d += 32) head[d] = from[d];
    __syncwarp();
    const bool is_q = number < n_heads, is_v = number >= n_heads + n_kv_heads;
    const float *norm = is_v ? nullptr : is_q ? q_norm : k_norm, *bias = is_q ? q_bias : k_bias;
    if (norm) {
        float sum = 0.f, mean = 0.f;
        if (kind == 2) {
            for (int d = lane; d < dim; d += 32) sum += head[d];
            mean = warp_sum(sum) / (float)dim;
            sum = 0.f;
        }
        for (int d = lane; d < dim; d += 32) sum += (head[d] - mean) * (head[d] - mean);
        const float factor = 1.f / sqrtf(warp_sum(sum) / (float)dim + eps);
        for (int d = lane; d < dim; d += 32)
            head[d] = (head[d] - mean) * factor * norm[d] + (bias ? bias[d] : 0.f);
        __syncwarp();
    }
    if (!is_v && n_angles) {
        for (int i = lane; i < n_angles; i += 32) {
            const float c = cosines[blockIdx.x * n_angles + i], s = sines[blockIdx.x * n_angles + i];
            const int a = interleaved ? 2 * i : i, b = interleaved ? 2 * i + 1 : i + n_angles;
            const float x = head[a], y = head[b];
            head[a] = x * c - y * s;
            head[b] = x * s + y * c;
        }
        __syncwarp();
    }
    if (is_q) {
        for (int d = lane; d < dim; d += 32) from[d] = head[d];
        return;
    }
    const int kv_head = (number - n_heads) % n_kv_heads, width = codec == 0 ? 4 : codec == 1 ? 2 : 1;
    const u64 place = (u64)kv_head * capacity + (positions ? positions[blockIdx.x] : start + (int)blockIdx.x);
    u8* scales = (is_v ? value_scales : key_scales) + place * ((dim + 31) / 32) * 2;
    store_key((is_v ? values : keys) + place * dim * width, scales, head, dim, codec, lane);
}
