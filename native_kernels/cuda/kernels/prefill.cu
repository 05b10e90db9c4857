// Operators on many positions beside products (gemm.cu) and attention (flash.cu): norms, rounding, rotation, storing
// keys and values, activations. Vectors of numbers are f32 [T, n], rows `step` numbers apart.
//
// round_rows: one block per row, of up to 1024 threads: a norm (kind 1: root mean square, 2: layer; 0: none), then into
// out (added to it if `adds`), and as halves whose largest is in [2^12, 2^13), with the power of two that undoes it.
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

// Over a block; all threads get it.
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

__device__ __forceinline__ bool in_fours(const void* at, u64 step = 0) { return ((u64)at % 16 | step % 4) == 0; }

template <class Number>
__device__ __forceinline__ Number of_bits(u32 word) { return (Number)word; }
template <>
__device__ __forceinline__ float of_bits<float>(u32 word) { return __uint_as_float(word); }

// Numbers i to i + 3 of a row of n; 0 beyond its end.
template <class Number>
__device__ __forceinline__ void load_four(Number (&v)[4], const Number* from, int i, int n, bool fours) {
    if (fours && i + 4 <= n) {
        const uint4 all = *(const uint4*)(from + i);
        const u32 words[4] = {all.x, all.y, all.z, all.w};
#pragma unroll
        for (int k = 0; k < 4; k++) v[k] = of_bits<Number>(words[k]);
    } else {
#pragma unroll
        for (int k = 0; k < 4; k++) v[k] = i + k < n ? from[i + k] : Number(0);
    }
}

__device__ __forceinline__ void store_four(float* to, const float (&v)[4], int i, int n, bool fours) {
    if (fours && i + 4 <= n) {
        *(float4*)(to + i) = make_float4(v[0], v[1], v[2], v[3]);
    } else {
#pragma unroll
        for (int k = 0; k < 4; k++)
            if (i + k < n) to[i + k] = v[k];
    }
}

__device__ __forceinline__ void store_halves(u16* to, const float (&v)[4], float factor, int i, int n) {
    const u32 low = two_halves(v[0] * factor, v[1] * factor), high = two_halves(v[2] * factor, v[3] * factor);
    if (i + 4 <= n && (u64)to % 8 == 0) {
        *(uint2*)(to + i) = make_uint2(low, high);
    } else {
        const u16 all[4] = {(u16)low, (u16)(low >> 16), (u16)high, (u16)(high >> 16)};
#pragma unroll
        for (int k = 0; k < 4; k++)
            if (i + k < n) to[i + k] = all[k];
    }
}

// FOURS times four numbers of a row in a thread's registers, blockDim.x times four apart. A longer row is read again
// for each pass over it.
template <int FOURS>
struct Held {
    float v[FOURS][4];

    static __device__ __forceinline__ int span() { return 4 * FOURS * blockDim.x; }
    static __device__ __forceinline__ int place(int base, int j) { return base + 4 * (threadIdx.x + j * blockDim.x); }
    __device__ __forceinline__ void load(const float* from, int base, int n, bool fours) {
#pragma unroll
        for (int j = 0; j < FOURS; j++) load_four(v[j], from, place(base, j), n, fours);
    }
    // Calls what(number) for every number that exists.
    template <class What>
    __device__ __forceinline__ void each(int base, int n, What what) {
#pragma unroll
        for (int j = 0; j < FOURS; j++)
#pragma unroll
            for (int k = 0; k < 4; k++)
                if (place(base, j) + k < n) what(v[j][k]);
    }
};

#define ROW_FOURS 4

KERNEL __launch_bounds__(1024, 1) round_rows(
    const float* x, u64 x_step, int n, int kind, const float* weight, const float* bias, float eps, float* out,
    u64 out_step, int adds, u16* halves, u64 half_step, float* factors) {
    WAIT;
    const float* from = x + blockIdx.x * x_step;
    const bool fours = in_fours(x, x_step), out_fours = in_fours(out, out_step);
    const bool norm_fours = in_fours(weight) && in_fours(bias);
    Held<ROW_FOURS> row;
    const int span = row.span();
    const bool again = n > span;
    float mean = 0.f, factor = 1.f;
    row.load(from, 0, n, fours);
    if (kind == 2) {
        float sum = 0.f;
        for (int base = 0; base < n; base += span) {
            if (again) row.load(from, base, n, fours);
            row.each(base, n, [&](float v) { sum += v; });
        }
        mean = over_block<false>(sum) / (float)n;
    }
    if (kind) {
        float sum = 0.f;
        for (int base = 0; base < n; base += span) {
            if (again) row.load(from, base, n, fours);
            row.each(base, n, [&](float v) { sum += (v - mean) * (v - mean); });
        }
        factor = 1.f / sqrtf(over_block<false>(sum) / (float)n + eps);
    }
    const auto normed = [&](int base) {
        if (again) row.load(from, base, n, fours);
        if (!kind) return;
#pragma unroll
        for (int j = 0; j < ROW_FOURS; j++) {
            float w[4], b[4] = {0.f, 0.f, 0.f, 0.f};
            load_four(w, weight, row.place(base, j), n, norm_fours);
            if (bias) load_four(b, bias, row.place(base, j), n, norm_fours);
#pragma unroll
            for (int k = 0; k < 4; k++) {
                const float one = (row.v[j][k] - mean) * factor * w[k];
                row.v[j][k] = bias ? one + b[k] : one;
            }
        }
    };
    float up = 1.f;
    if (!again) normed(0);
    if (halves) {
        float largest = 0.f, back;
        for (int base = 0; base < n; base += span) {
            if (again) normed(base);
            row.each(base, n, [&](float v) { largest = fmaxf(largest, fabsf(v)); });
        }
        up = rounding_factor(over_block<true>(largest), back);
        if (threadIdx.x == 0) factors[blockIdx.x] = back;
    }
    for (int base = 0; base < n; base += span) {
        if (again) normed(base);
#pragma unroll
        for (int j = 0; j < ROW_FOURS; j++) {
            const int i = row.place(base, j);
            if (halves) store_halves(halves + blockIdx.x * half_step, row.v[j], up, i, n);
            if (out) {
                float* to = out + blockIdx.x * out_step;
                if (adds) {
                    float before[4];
                    load_four(before, (const float*)to, i, n, out_fours);
#pragma unroll
                    for (int k = 0; k < 4; k++) row.v[j][k] = before[k] + row.v[j][k];
                }
                store_four(to, row.v[j], i, n, out_fours);
            }
        }
    }
}

// x [T, n] *= factor. grid: x n by 1024, y T; 256 threads.
KERNEL __launch_bounds__(256) scale_stream(float* x, u64 step, int n, float factor) {
    WAIT;
    float* row = x + blockIdx.y * step;
    for (int k = 0; k < 4; k++) {
        const int i = blockIdx.x * 1024 + k * 256 + threadIdx.x;
        if (i < n) row[i] *= factor;
    }
}

// ---------------------------------------------------------------- hidden values

__device__ __forceinline__ float activated(float x, int kind, float threshold) {
    switch (kind) {
        case 0: case 1: return x <= 0.f ? 0.f : x;
        case 2: return x <= threshold ? 0.f : x;
        case 3: return __fdividef(x, 1.f + expf(-x));
        case 4: return 0.5f * x * (1.f + erff(x * 0.70710678118654752f));
        case 6: {
            const float least = x > threshold ? threshold : x;
            return __fdividef(least, 1.f + expf(-1.702f * least));
        }
        case 7: return x <= 0.f ? 0.f : x * x;
        default: return 0.5f * x * (1.f + tanhf(0.79788456080286536f * (x + 0.044715f * x * x * x)));
    }
}

#define HIDDEN_FOURS 2

// halves become the activation of first [T, n] times up [T, n] (0: without), and, if `keeps`, first too. kind: 0 relu,
// 1 drelu, 2 fatrelu, 3 silu, 4 gelu, 5 gelu-tanh, 6 clamped silu, 7 the square of relu. neuron_in [n]: slots with a
// negative number are empty (0: none is). counts [T, 2], incremented: values that passed the first activation, and that
// fired. One block per row. range [n_groups + 1]: only its rows from the first to the last number; then positions
// [rows]: which of counts a row adds to. holds: a row too long for the registers stays in shared memory, else in first.
KERNEL __launch_bounds__(512, 3) activate_rows(
    float* first, const float* up, u64 step, u64 up_step, int n, int kind, float threshold, const int* neuron_in, u16* halves,
    u64 half_step, float* factors, u32* counts, const int* range, int n_groups, const int* positions, int keeps, int holds) {
    WAIT;
    extern __shared__ __align__(16) float held[];
    const u64 t = blockIdx.x + (range ? range[0] : 0);
    if (range && (int)t >= range[n_groups]) return;
    float* row = first + t * step;
    const float* others = up + t * up_step;
    const bool fours = in_fours(first, step), up_fours = in_fours(up, up_step), id_fours = in_fours(neuron_in);
    Held<HIDDEN_FOURS> h, other;
    const int span = h.span();
    float largest = 0.f, opened = 0.f, fired = 0.f;
    const auto activate = [&](int kind) {
        for (int base = 0; base < n; base += span) {
            h.load(row, base, n, fours);
            if (up) other.load(others, base, n, up_fours);
#pragma unroll
            for (int j = 0; j < HIDDEN_FOURS; j++) {
                const int i = h.place(base, j);
                int ids[4] = {0, 0, 0, 0};
                if (neuron_in) load_four(ids, neuron_in, i, n, id_fours);
#pragma unroll
                for (int k = 0; k < 4; k++) {
                    float value = i + k >= n || ids[k] < 0 ? 0.f : activated(h.v[j][k], kind, threshold);
                    const bool passed = value != 0.f;
                    bool fires = passed;
                    if (up) {
                        float factor = other.v[j][k];
                        if (kind == 1) {
                            factor = activated(factor, 1, 0.f);
                            fires = fires && factor != 0.f;
                        }
                        if (kind == 6) factor = fminf(fmaxf(factor, -threshold), threshold) + 1.f;
                        value = passed ? value * factor : 0.f;
                    }
                    opened += passed ? 1.f : 0.f;
                    fired += fires ? 1.f : 0.f;
                    h.v[j][k] = value;
                    largest = fmaxf(largest, fabsf(value));
                }
                if (holds) store_four(held, h.v[j], i, n, true);
                if (keeps || (n > span && !holds)) store_four(row, h.v[j], i, n, fours);
            }
        }
    };
    if (kind == 3) activate(3);  // without a branch for every number
    else activate(kind);
    float back;
    const float factor = rounding_factor(over_block<true>(largest), back);
    opened = over_block<false>(opened);  // integers below 2^24: exact
    fired = over_block<false>(fired);
    if (threadIdx.x == 0) {
        factors[t] = back;
        u32* own = counts + 2 * (positions ? positions[t] : t);
        atomicAdd(own, (u32)opened);  // a position has several rows
        atomicAdd(own + 1, (u32)fired);
    }
    for (int base = 0; base < n; base += span) {
        if (n > span) h.load(holds ? held : row, base, n, holds || fours);
#pragma unroll
        for (int j = 0; j < HIDDEN_FOURS; j++)
            store_halves(halves + t * half_step, h.v[j], factor, h.place(base, j), n);
    }
}

// fired is incremented by the positions where h [T, n] is not 0; places [n]: where each is counted (0: in order), a
// negative place is skipped. Integers: their sum does not depend on the order. grid: x n by 128, y T by 32; 128
// threads.
KERNEL tally(const float* h, u64 step, int n_tokens, int n, u32* fired, const int* places) {
    WAIT;
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

#define MOST_HEAD 576  // numbers of a head

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

// A warp norms the numbers of its head in place; arguments as in place_heads.
__device__ __forceinline__ void norm_head(float* head, int dim, int kind, const float* norm, const float* bias, float eps) {
    const int lane = threadIdx.x & 31;
    float sum = 0.f, mean = 0.f;
    if (kind == 2) {
        for (int d = lane; d < dim; d += 32) sum += head[d];
        mean = warp_sum(sum) / (float)dim;
        sum = 0.f;
    }
    for (int d = lane; d < dim; d += 32) sum += (head[d] - mean) * (head[d] - mean);
    const float factor = 1.f / sqrtf(warp_sum(sum) / (float)dim + eps);
    for (int d = lane; d < dim; d += 32)
        head[d] = (head[d] - mean) * factor * (norm ? norm[d] : 1.f) + (bias ? bias[d] : 0.f);
    __syncwarp();
}

// A warp for each head of each of T positions: qkv [T, H + 2 H_kv, dim], or [T, H, dim] without k and v; dim up to 576.
// Norms over each head of q and k (kind as in round_rows, 0: none; weights 0: all 1) and of v (v_kind, without weights), then the
// first 2 n_angles values of q and k are rotated by cosines and sines [T, n_angles]; v_is_k: v is read where k is. q stays
// in place, keys and values go to position `start` + t of [H_kv, capacity, dim] in f32, f16 or bytes (codec 0, 1, 2; scales f16 [H_kv, capacity, dim / 32 rounded up]). norm_last: norms follow the rotation. strength
// 0: queries do not grow with their position, which is `start` + t, or own [t] if given. grid: x T, y heads by four; 128
// threads.
KERNEL __launch_bounds__(128) place_heads(
    float* qkv, u64 step, int n_heads, int n_kv_heads, int dim, int kind, const float* q_norm, const float* q_bias,
    const float* k_norm, const float* k_bias, float eps, int v_kind, float v_eps, int v_is_k, int n_all,
    const float* cosines, const float* sines, int n_angles, int interleaved, u8* keys, u8* values, u8* key_scales, u8* value_scales, int codec, int capacity, int start,
    const int* positions, int norm_last, float strength, int length, int offset, const int* own) {
    WAIT;
    __shared__ float heads[4][MOST_HEAD];
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, number = blockIdx.y * 4 + warp;
    if (number >= n_all) return;
    const bool is_q = number < n_heads, is_v = number >= n_heads + n_kv_heads;
    float* from = qkv + blockIdx.x * step + (is_v && v_is_k ? number - n_kv_heads : number) * dim;
    float* head = heads[warp];
    for (int d = lane; d < dim; d += 32) head[d] = from[d];
    __syncwarp();
    const float *norm = is_q ? q_norm : k_norm, *bias = is_q ? q_bias : k_bias;
    if (!is_v && kind && !norm_last) norm_head(head, dim, kind, norm, bias, eps);
    if (is_v && v_kind) norm_head(head, dim, v_kind, nullptr, nullptr, v_eps);
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
    if (!is_v && kind && norm_last) norm_head(head, dim, kind, norm, bias, eps);
    if (is_q) {
        const int position = own ? own[blockIdx.x] : start + (int)blockIdx.x;
        const float factor = strength == 0.f ? 1.f : 1.f + strength * log1pf((float)((position + offset) / length));
        for (int d = lane; d < dim; d += 32) from[d] = head[d] * factor;
        return;
    }
    const int kv_head = (number - n_heads) % n_kv_heads, width = codec == 0 ? 4 : codec == 1 ? 2 : 1;
    const u64 place = (u64)kv_head * capacity + (positions ? positions[blockIdx.x] : start + (int)blockIdx.x);
    u8* scales = (is_v ? value_scales : key_scales) + place * ((dim + 31) / 32) * 2;
    store_key((is_v ? values : keys) + place * dim * width, scales, head, dim, codec, lane);
}
