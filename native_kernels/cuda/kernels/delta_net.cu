// A gated delta net over consecutive positions of one or more sequences, and the gate of attention's output.
// Specification: gated_delta and gated of native_kernels/reference.py. All numbers are f32; all sums have a fixed order.
#include "activations.cuh"
#include "vectors.cuh"

#ifndef KEY_DIM
#define KEY_DIM 128
#endif
#ifndef VALUE_DIM
#define VALUE_DIM 128
#endif

#define PARTS 4                                          // threads per column of a head's matrix
#define ROWS ((KEY_DIM + 4 * PARTS - 1) / (4 * PARTS))   // times four rows that each of them has in registers
#define PADDED (4 * PARTS * ROWS)
#define THREADS ((PARTS * VALUE_DIM + 31) / 32 * 32)
#define ALONE __launch_bounds__(THREADS, 1)              // one block per multiprocessor may have all registers
#define AT_ONCE 16                                       // positions whose inputs are in shared memory
#define UNIT_EPSILON 1e-6f

// The states of all sequences, `step` numbers apart: read from `first`, written to `second`, or the other way round
// where swap (0: nowhere) is set. Both may be the same. A state: matrices [H_v, KEY_DIM, VALUE_DIM], then the last
// inputs of the convolution [width - 1, channels].
struct States {
    float* first;
    float* second;
    const int* swap;
    u64 step;
};

DEVICE const float* state_before(const States& states, int sequence) {
    const bool swapped = states.swap && states.swap[sequence];
    return (swapped ? states.second : states.first) + states.step * sequence;
}

DEVICE float* state_after(const States& states, int sequence) {
    const bool swapped = states.swap && states.swap[sequence];
    return (swapped ? states.first : states.second) + states.step * sequence;
}

// mixed [S T, channels] = SiLU of the convolution of qkv [S T, channels] over the last `width` positions. conv
// [channels, width], the oldest position first. Blocks: channels x rows. matrices: numbers of a state before the inputs.
KERNEL __launch_bounds__(256) convolve(const float* qkv, int n_each, int channels, const float* conv, int width,
                                       States states, int matrices, float* mixed) {
    const int channel = blockIdx.x * 256 + threadIdx.x, row = blockIdx.y;
    if (channel >= channels) return;
    const int sequence = row / n_each, t = row % n_each;
    const float* last = state_before(states, sequence) + matrices;
    float sum = 0.f;
    for (int j = 0; j < width; j++) {
        const int place = t - width + 1 + j;
        const float input = place >= 0 ? qkv[(u64)(row - t + place) * channels + channel]
                                       : last[(u64)(place + width - 1) * channels + channel];
        sum = fmaf(input, conv[(u64)channel * width + j], sum);
    }
    mixed[(u64)row * channels + channel] = silu(sum);
}

// A warp writes n numbers, scaled so that their length as a vector is `length`, and zeros up to PADDED.
DEVICE void scale_to(const float* x, float length, float* to) {
    float squares = 0.f;
    for (int i = threadIdx.x % 32; i < KEY_DIM; i += 32) squares = fmaf(x[i], x[i], squares);
    const float factor = length * __frsqrt_rn(warp_sum(squares) + UNIT_EPSILON);
    for (int i = threadIdx.x % 32; i < PADDED; i += 32) to[i] = i < KEY_DIM ? x[i] * factor : 0.f;
}

struct Recurrence {
    const float* qkv;         // [S T, channels], inputs of the convolution
    const float* mixed;       // [S T, channels], its output
    const float* gate;        // [S T, H_v VALUE_DIM]
    const float* alpha;       // [S T, H_v]
    const float* beta;        // [S T, H_v]
    const float* decay;       // [H_v]
    const float* alpha_bias;  // [H_v]
    const float* norm;        // [VALUE_DIM]
    float* out;               // [S T, H_v VALUE_DIM]
    States states;
    float epsilon;
    int n_each, key_heads, value_heads, width, tiled;
};

// A block has a value head of a sequence, whose matrix stays in registers. It also keeps a share of the convolution's
// last inputs; where the states are read and written in place, `convolve` has read them all before.
KERNEL ALONE recur(const Recurrence of) {
    __shared__ float4 queries[AT_ONCE][PADDED / 4], keys[AT_ONCE][PADDED / 4];
    __shared__ float values[AT_ONCE][VALUE_DIM], kept[AT_ONCE], strength[AT_ONCE];
    const int head = blockIdx.x, sequence = blockIdx.y, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int column = threadIdx.x / PARTS, part = threadIdx.x % PARTS;
    const int channels = 2 * of.key_heads * KEY_DIM + of.value_heads * VALUE_DIM;
    const int key_head = of.tiled ? head % of.key_heads : head / (of.value_heads / of.key_heads);
    const bool there = column < VALUE_DIM;
    const u64 matrix = (u64)head * KEY_DIM * VALUE_DIM;
    const float* before = state_before(of.states, sequence);
    float* after = state_after(of.states, sequence);
    float4 s[ROWS];
#pragma unroll
    for (int i = 0; i < ROWS; i++) {
        float* four = (float*)&s[i];
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const int row = 4 * (PARTS * i + part) + j;
            four[j] = there && row < KEY_DIM ? before[matrix + (u64)row * VALUE_DIM + column] : 0.f;
        }
    }
    for (int start = 0; start < of.n_each; start += AT_ONCE) {
        const int n = min(AT_ONCE, of.n_each - start);
        const u64 first = (u64)sequence * of.n_each + start;
        __syncthreads();
        for (int t = warp; t < n; t += THREADS / 32) {
            const float* row = of.mixed + (first + t) * channels;
            scale_to(row + key_head * KEY_DIM, rsqrtf((float)KEY_DIM), (float*)queries[t]);
            scale_to(row + (of.key_heads + key_head) * KEY_DIM, 1.f, (float*)keys[t]);
            const float* value = row + 2 * of.key_heads * KEY_DIM + head * VALUE_DIM;
            for (int i = lane; i < VALUE_DIM; i += 32) values[t][i] = value[i];
            if (lane == 0) {
                const u64 at = (first + t) * of.value_heads + head;
                const float x = of.alpha[at] + of.alpha_bias[head];
                kept[t] = expf(of.decay[head] * (x > 20.f ? x : log1pf(expf(x))));
                strength[t] = 1.f / (1.f + expf(-of.beta[at]));
            }
        }
        __syncthreads();
        for (int t = 0; t < n; t++) {
            const float keep = kept[t];
            float known = 0.f, found = 0.f;
#pragma unroll
            for (int i = 0; i < ROWS; i++) {
                const float4 k = keys[t][PARTS * i + part];
                known = fmaf(s[i].x, k.x, fmaf(s[i].y, k.y, fmaf(s[i].z, k.z, fmaf(s[i].w, k.w, known))));
            }
#pragma unroll
            for (int o = 1; o < PARTS; o *= 2) known += __shfl_xor_sync(FULL_WARP, known, o);
            const float change = ((there ? values[t][column] : 0.f) - known * keep) * strength[t];
#pragma unroll
            for (int i = 0; i < ROWS; i++) {
                const float4 k = keys[t][PARTS * i + part], q = queries[t][PARTS * i + part];
                s[i].x = fmaf(k.x, change, s[i].x * keep);
                s[i].y = fmaf(k.y, change, s[i].y * keep);
                s[i].z = fmaf(k.z, change, s[i].z * keep);
                s[i].w = fmaf(k.w, change, s[i].w * keep);
                found = fmaf(s[i].x, q.x, fmaf(s[i].y, q.y, fmaf(s[i].z, q.z, fmaf(s[i].w, q.w, found))));
            }
#pragma unroll
            for (int o = 1; o < PARTS; o *= 2) found += __shfl_xor_sync(FULL_WARP, found, o);
            if (there && part == 0) values[t][column] = found;  // its warp has read the value
        }
        __syncthreads();
        for (int t = warp; t < n; t += THREADS / 32) {
            float squares = 0.f;
            for (int i = lane; i < VALUE_DIM; i += 32) squares = fmaf(values[t][i], values[t][i], squares);
            const float factor = __frsqrt_rn(warp_sum(squares) / VALUE_DIM + of.epsilon);
            const u64 at = ((first + t) * of.value_heads + head) * VALUE_DIM;
            for (int i = lane; i < VALUE_DIM; i += 32)
                of.out[at + i] = values[t][i] * factor * of.norm[i] * silu(of.gate[at + i]);
        }
    }
#pragma unroll
    for (int i = 0; i < ROWS; i++) {
        const float* four = (const float*)&s[i];
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const int row = 4 * (PARTS * i + part) + j;
            if (there && row < KEY_DIM) after[matrix + (u64)row * VALUE_DIM + column] = four[j];
        }
    }
    const u64 inputs = (u64)of.value_heads * KEY_DIM * VALUE_DIM;
    for (int channel = head * THREADS + threadIdx.x; channel < channels; channel += of.value_heads * THREADS) {
        for (int j = 0; j < of.width - 1; j++) {
            const int place = of.n_each - of.width + 1 + j;
            after[inputs + (u64)j * channels + channel] =
                place >= 0 ? of.qkv[((u64)sequence * of.n_each + place) * channels + channel]
                           : before[inputs + (u64)(place + of.width - 1) * channels + channel];
        }
    }
}

// x [n] times the logistic function of gate [n], in place, and its 8-bit form if bytes are given. Four per thread.
KERNEL __launch_bounds__(128) gate(float* x, const float* gate, int n, u8* bytes, float2* scales) {
    const int first = 4 * (blockIdx.x * 128 + threadIdx.x);
    float v[4];
#pragma unroll
    for (int j = 0; j < 4; j++) {
        v[j] = first + j < n ? x[first + j] / (1.f + expf(-gate[first + j])) : 0.f;
        if (first + j < n) x[first + j] = v[j];
    }
    if (bytes) round_four({x, x, bytes, scales, n}, first, v);
}
