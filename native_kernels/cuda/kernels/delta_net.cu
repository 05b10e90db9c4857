// A gated delta net over consecutive positions of one or more sequences, and the gate of attention's output.
// Specification: gated_delta and gated of native_kernels/reference.py. All numbers are f32; all sums have a fixed order.
#include "recurrent.cuh"

#define COLUMNS 32                                      // of a head's matrix, for a block
#define PARTS 4                                         // threads per column
#define THREADS (PARTS * COLUMNS)
#define ROWS ((KEY_DIM + 4 * PARTS - 1) / (4 * PARTS))  // times four rows that each thread has in registers
#define PADDED (4 * PARTS * ROWS)
#define STEP_THREADS ((PARTS * VALUE_DIM + 31) / 32 * 32)
#define ALONE __launch_bounds__(STEP_THREADS, 1)        // one block per multiprocessor may have all registers
#define AT_ONCE 16                                      // positions whose inputs are in shared memory
#define UNIT_EPSILON 1e-6f

// The share of the state that is kept in a row, and how strongly its value is written.
DEVICE float2 kept_and_strength(const Net& of, int row, int value_head) {
    const u64 number = (u64)row * of.value_heads + value_head;
    return make_float2(expf(of.decay[value_head] * time_step(of, row, value_head)), 1.f / (1.f + expf(-of.beta[number])));
}

DEVICE float sum_of(float4 v) { return (v.x + v.y) + (v.z + v.w); }

// The sum over the threads of a column, in each of them.
DEVICE float column_sum(float v) {
#pragma unroll
    for (int o = 1; o < PARTS; o *= 2) v += __shfl_xor_sync(FULL_WARP, v, o);
    return v;
}

// A thread's part of a column of a head's matrix: rows 4 (PARTS i + part) to + 3 in s[i]; 0 beyond its end.
DEVICE void load_column(const float* matrix, int column, float4 (&s)[ROWS]) {
#pragma unroll
    for (int i = 0; i < ROWS; i++) {
        float* four = (float*)&s[i];
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const int row = 4 * (PARTS * i + threadIdx.x % PARTS) + j;
            four[j] = column < VALUE_DIM && row < KEY_DIM ? matrix[row * VALUE_DIM + column] : 0.f;
        }
    }
}

DEVICE void store_column(const float4 (&s)[ROWS], int column, float* matrix) {
#pragma unroll
    for (int i = 0; i < ROWS; i++) {
        const float* four = (const float*)&s[i];
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const int row = 4 * (PARTS * i + threadIdx.x % PARTS) + j;
            if (column < VALUE_DIM && row < KEY_DIM) matrix[row * VALUE_DIM + column] = four[j];
        }
    }
}

// What a key reads in a column.
DEVICE float read_column(const float4 (&s)[ROWS], const float4* key) {
    float4 sums = make_float4(0.f, 0.f, 0.f, 0.f);
#pragma unroll
    for (int i = 0; i < ROWS; i++) {
        const float4 k = key[PARTS * i + threadIdx.x % PARTS];
        sums.x = fmaf(s[i].x, k.x, sums.x);
        sums.y = fmaf(s[i].y, k.y, sums.y);
        sums.z = fmaf(s[i].z, k.z, sums.z);
        sums.w = fmaf(s[i].w, k.w, sums.w);
    }
    return column_sum(sum_of(sums));
}

// Keep a share of a column, add the change at the key, and return what the query reads there.
DEVICE float change_column(float4 (&s)[ROWS], float keep, const float4* key, float change, const float4* query) {
    float4 sums = make_float4(0.f, 0.f, 0.f, 0.f);
#pragma unroll
    for (int i = 0; i < ROWS; i++) {
        const float4 k = key[PARTS * i + threadIdx.x % PARTS], q = query[PARTS * i + threadIdx.x % PARTS];
        s[i].x = fmaf(k.x, change, s[i].x * keep);
        s[i].y = fmaf(k.y, change, s[i].y * keep);
        s[i].z = fmaf(k.z, change, s[i].z * keep);
        s[i].w = fmaf(k.w, change, s[i].w * keep);
        sums.x = fmaf(s[i].x, q.x, sums.x);
        sums.y = fmaf(s[i].y, q.y, sums.y);
        sums.z = fmaf(s[i].z, q.z, sums.z);
        sums.w = fmaf(s[i].w, q.w, sums.w);
    }
    return column_sum(sum_of(sums));
}

// prepared [S T, channels + 2 H_v]: what `recur` reads of each position. Queries, keys and values are SiLU of the
// convolution of qkv; queries and keys are scaled to the length of a unit vector, queries by KEY_DIM ^ -0.5 too. Then the
// share of the state that is kept, and how strongly the value is written, of each value head. A warp per head and row.
KERNEL __launch_bounds__(128) prepare(const Net of) {
    WAIT;
    const int lane = threadIdx.x % 32, head = blockIdx.x * 4 + threadIdx.x / 32, row = blockIdx.y;
    const int key_channels = 2 * of.key_heads * KEY_DIM, channels = channels_of(of);
    const int value_head = head - 2 * of.key_heads, sequence = row / of.n_each, t = row % of.n_each;
    if (value_head >= of.value_heads) return;
    const bool is_value = value_head >= 0;
    const int first = is_value ? key_channels + value_head * VALUE_DIM : head * KEY_DIM;
    const int n = is_value ? VALUE_DIM : KEY_DIM;
    const float* before = state_before(of.states, sequence);
    float* to = of.prepared + (u64)row * (channels + 2 * of.value_heads);
    float squares = 0.f;
    for (int i = lane; i < n; i += 32) {
        const float x = convolved(of, before, sequence, t, first + i);
        to[first + i] = x;
        squares = fmaf(x, x, squares);
    }
    if (is_value) {
        if (lane) return;
        const float2 how = kept_and_strength(of, row, value_head);
        to[channels + value_head] = how.x;
        to[channels + of.value_heads + value_head] = how.y;
        return;
    }
    const float length = head < of.key_heads ? rsqrtf((float)KEY_DIM) : 1.f;
    const float factor = length * __frsqrt_rn(warp_sum(squares) + UNIT_EPSILON);
    for (int i = lane; i < n; i += 32) to[first + i] *= factor;
}

// A block has COLUMNS columns of the matrix of a value head of a sequence, which stay in registers. It writes what the
// queries read there; `finish` follows.
KERNEL __launch_bounds__(128) recur(const Net of) {
    WAIT;
    __shared__ float4 queries[AT_ONCE][PADDED / 4], keys[AT_ONCE][PADDED / 4];
    __shared__ float values[AT_ONCE][COLUMNS], kept[AT_ONCE], strength[AT_ONCE];
    const int head = blockIdx.x, sequence = blockIdx.z;
    const u64 width = channels_of(of) + 2 * of.value_heads;  // of a prepared row
    const int own = threadIdx.x / PARTS, column = COLUMNS * blockIdx.y + own;
    const int key_head = key_head_of(of, head);
    const bool writes = column < VALUE_DIM && threadIdx.x % PARTS == 0;
    const u64 matrix = (u64)head * KEY_DIM * VALUE_DIM;
    const float* before = state_before(of.states, sequence);
    float4 s[ROWS];
    load_column(before + matrix, column, s);
    for (int start = 0; start < of.n_each; start += AT_ONCE) {
        const int n = min(AT_ONCE, of.n_each - start);
        const u64 first = (u64)sequence * of.n_each + start;
        __syncthreads();
#pragma unroll 4
        for (int i = threadIdx.x; i < n * PADDED; i += THREADS) {
            const int t = i / PADDED, row = i % PADDED;
            const float* prepared = of.prepared + (first + t) * width + key_head * KEY_DIM + row;
            ((float*)queries[t])[row] = row < KEY_DIM ? prepared[0] : 0.f;
            ((float*)keys[t])[row] = row < KEY_DIM ? prepared[of.key_heads * KEY_DIM] : 0.f;
        }
        for (int i = threadIdx.x; i < n * COLUMNS; i += THREADS) {
            const int t = i / COLUMNS, at = COLUMNS * blockIdx.y + i % COLUMNS;
            const float* prepared = of.prepared + (first + t) * width + 2 * of.key_heads * KEY_DIM + head * VALUE_DIM;
            values[t][i % COLUMNS] = at < VALUE_DIM ? prepared[at] : 0.f;
        }
        if (threadIdx.x < n) {
            const float* prepared = of.prepared + (first + threadIdx.x) * width + channels_of(of) + head;
            kept[threadIdx.x] = prepared[0];
            strength[threadIdx.x] = prepared[of.value_heads];
        }
        __syncthreads();
        for (int t = 0; t < n; t++) {
            const float known = read_column(s, keys[t]);
            const float change = (values[t][own] - known * kept[t]) * strength[t];
            const float found = change_column(s, kept[t], keys[t], change, queries[t]);
            if (writes) of.out[((first + t) * of.value_heads + head) * VALUE_DIM + column] = found;
        }
    }
    store_column(s, column, state_after(of.states, sequence) + matrix);
}

// Norm and gate what `recur` found, in place, a warp per head and position, and keep the convolution's last inputs: not
// earlier, because its blocks read those of before where the states are read and written in place.
KERNEL __launch_bounds__(128) finish(const Net of) {
    WAIT;
    const int row = blockIdx.y, head = blockIdx.x * 4 + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (head < of.value_heads) {
        const u64 at = ((u64)row * of.value_heads + head) * VALUE_DIM;
        float squares = 0.f;
        for (int i = lane; i < VALUE_DIM; i += 32) squares = fmaf(of.out[at + i], of.out[at + i], squares);
        const float factor = __frsqrt_rn(warp_sum(squares) / VALUE_DIM + of.epsilon);
        for (int i = lane; i < VALUE_DIM; i += 32)
            of.out[at + i] = of.out[at + i] * factor * of.norm[i] * silu(of.gate[at + i]);
    }
    if (row % of.n_each) return;
    keep_inputs(of, row / of.n_each, blockIdx.x * 128 + threadIdx.x, gridDim.x * 128);
}

// All of it for one position of each sequence, whose states are not written in place: a block per value head.
KERNEL ALONE step(const Net of) {
    WAIT;
    __shared__ float4 query[PADDED / 4], key[PADDED / 4];
    __shared__ float value[VALUE_DIM], places[32];
    const int head = blockIdx.x, sequence = blockIdx.y, column = threadIdx.x / PARTS, lane = threadIdx.x % 32;
    const int key_head = key_head_of(of, head), channels = channels_of(of);
    const bool keeps_key = has_key(of, head);
    const float* before = state_before(of.states, sequence);
    float* after = state_after(of.states, sequence);
    const u64 matrix = (u64)head * KEY_DIM * VALUE_DIM, inputs = (u64)of.value_heads * KEY_DIM * VALUE_DIM;
    float4 s[ROWS];
    load_column(before + matrix, column, s);
    const float2 how = kept_and_strength(of, sequence, head);
    for (int i = threadIdx.x; i < 2 * PADDED + VALUE_DIM; i += STEP_THREADS) {
        const int what = i / PADDED < 2 ? i / PADDED : 2, row = i - what * PADDED;
        const int channel = what == 2 ? 2 * of.key_heads * KEY_DIM + head * VALUE_DIM + row
                                      : (what * of.key_heads + key_head) * KEY_DIM + row;
        float* to = what == 2 ? value : what ? (float*)key : (float*)query;
        if (what < 2 && row >= KEY_DIM) {
            to[row] = 0.f;
            continue;
        }
        to[row] = convolved(of, before, sequence, 0, channel);
        if (what < 2 && !keeps_key) continue;
        for (int j = 0; j < of.width - 1; j++)
            after[inputs + (u64)j * channels + channel] = input_of(of, before, sequence, j + 2 - of.width, channel);
    }
    __syncthreads();
    for (int w = threadIdx.x / 32; w < 2; w += STEP_THREADS / 32) {
        const float* x = w ? (const float*)key : (const float*)query;
        float squares = 0.f;
        for (int i = lane; i < PADDED; i += 32) squares = fmaf(x[i], x[i], squares);
        const float factor = __frsqrt_rn(warp_sum(squares) + UNIT_EPSILON);
        if (lane == 0) places[w] = w ? factor : factor * rsqrtf((float)KEY_DIM);
    }
    __syncthreads();
    const float of_query = places[0], of_key = places[1], own = column < VALUE_DIM ? value[column] : 0.f;
    const float known = of_key * read_column(s, key);
    const float change = of_key * (own - known * how.x) * how.y;
    const float found = of_query * change_column(s, how.x, key, change, query);
    store_column(s, column, after + matrix);
    __syncthreads();
    if (column < VALUE_DIM && threadIdx.x % PARTS == 0) value[column] = found;
    __syncthreads();
    float squares = 0.f;
    for (int i = threadIdx.x; i < VALUE_DIM; i += STEP_THREADS) squares = fmaf(value[i], value[i], squares);
    const float factor = __frsqrt_rn(block_sum(squares, places) / VALUE_DIM + of.epsilon);
    const u64 at = ((u64)sequence * of.value_heads + head) * VALUE_DIM;
    for (int i = threadIdx.x; i < VALUE_DIM; i += STEP_THREADS)
        of.out[at + i] = value[i] * factor * of.norm[i] * silu(of.gate[at + i]);
}

// x [n] times the logistic function of gate [n], in place, and its 8-bit form if bytes are given. Four per thread.
KERNEL __launch_bounds__(128) gate(float* x, const float* gate, int n, u8* bytes, float2* scales) {
    WAIT;
    const int first = 4 * (blockIdx.x * 128 + threadIdx.x);
    float v[4];
#pragma unroll
    for (int j = 0; j < 4; j++) {
        v[j] = first + j < n ? x[first + j] / (1.f + expf(-gate[first + j])) : 0.f;
        if (first + j < n) x[first + j] = v[j];
    }
    if (bytes) round_four({x, x, bytes, scales, n}, first, v);
}
