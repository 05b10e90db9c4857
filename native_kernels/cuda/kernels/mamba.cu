// A Mamba-2 layer over consecutive positions of one or more sequences. Specification: gated_delta of
// native_kernels/reference.py. B is the key, C the query and x the value. All numbers are f32; all sums have a fixed
// order. Unlike a delta net's, a position's change does not depend on the state, so positions overlap in `recur`.
#include "recurrent.cuh"

#define COLUMNS 32                                        // of a head's matrix, for a block
#define PARTS 16                                          // threads that share four columns
#define THREADS (PARTS * COLUMNS / 4)
#define ALONE __launch_bounds__(THREADS, 1)               // one block per multiprocessor may have all registers
#define FOURS ((KEY_DIM + 4 * PARTS - 1) / (4 * PARTS))   // times four rows that each thread has in registers
#define PADDED (4 * PARTS * FOURS)
#define AT_ONCE 8                                         // positions whose inputs are in shared memory
#define OF_THREAD (AT_ONCE * COLUMNS / THREADS)           // of their values, for a thread
#define MOST_GROUPS 1024                                  // that are normed apart, as in engine/layer_checks.py
#define IN_FOURS (VALUE_DIM % 4 == 0 && KEY_DIM % 2 == 0) // then all matrices are aligned to 16 bytes

// A thread's part of a head's matrix: rows 4 (PARTS i + part) + j in s[4 i + j], columns `column` to + 3; 0 beyond.
DEVICE void load_tile(const float* matrix, int column, float (&s)[4 * FOURS][4]) {
#pragma unroll
    for (int i = 0; i < 4 * FOURS; i++) {
        const int row = 4 * (PARTS * (i / 4) + threadIdx.x % PARTS) + i % 4;
        const float* at = matrix + row * VALUE_DIM + column;
        if constexpr (IN_FOURS) {
            const bool there = row < KEY_DIM && column < VALUE_DIM;
            const float4 v = there ? *(const float4*)at : make_float4(0.f, 0.f, 0.f, 0.f);
            s[i][0] = v.x, s[i][1] = v.y, s[i][2] = v.z, s[i][3] = v.w;
        } else {
#pragma unroll
            for (int c = 0; c < 4; c++) s[i][c] = row < KEY_DIM && column + c < VALUE_DIM ? at[c] : 0.f;
        }
    }
}

DEVICE void store_tile(const float (&s)[4 * FOURS][4], int column, float* matrix) {
#pragma unroll
    for (int i = 0; i < 4 * FOURS; i++) {
        const int row = 4 * (PARTS * (i / 4) + threadIdx.x % PARTS) + i % 4;
        float* at = matrix + row * VALUE_DIM + column;
        if constexpr (IN_FOURS) {
            if (row < KEY_DIM && column < VALUE_DIM) *(float4*)at = make_float4(s[i][0], s[i][1], s[i][2], s[i][3]);
        } else {
#pragma unroll
            for (int c = 0; c < 4; c++)
                if (row < KEY_DIM && column + c < VALUE_DIM) at[c] = s[i][c];
        }
    }
}

// Keep a share of the tile, add the changes at the key, and return what the query reads: of column part / 4 of the four,
// summed over their threads.
DEVICE float change_tile(float (&s)[4 * FOURS][4], float keep, const float4* key, float4 change, const float4* query) {
    const float changes[4] = {change.x, change.y, change.z, change.w};
    float sums[4] = {};
#pragma unroll
    for (int i = 0; i < FOURS; i++) {
        const float4 k = key[PARTS * i + threadIdx.x % PARTS], q = query[PARTS * i + threadIdx.x % PARTS];
        const float keys[4] = {k.x, k.y, k.z, k.w}, queries[4] = {q.x, q.y, q.z, q.w};
#pragma unroll
        for (int j = 0; j < 4; j++)
#pragma unroll
            for (int c = 0; c < 4; c++) {
                float& one = s[4 * i + j][c];
                one = fmaf(keys[j], changes[c], one * keep);
                sums[c] = fmaf(one, queries[j], sums[c]);
            }
    }
    const bool upper = threadIdx.x & 8, odd = threadIdx.x & 4;
    const float first = __shfl_xor_sync(FULL_WARP, upper ? sums[0] : sums[2], 8);
    const float second = __shfl_xor_sync(FULL_WARP, upper ? sums[1] : sums[3], 8);
    const float even_sum = (upper ? sums[2] : sums[0]) + first, odd_sum = (upper ? sums[3] : sums[1]) + second;
    float sum = (odd ? odd_sum : even_sum) + __shfl_xor_sync(FULL_WARP, odd ? even_sum : odd_sum, 4);
    sum += __shfl_xor_sync(FULL_WARP, sum, 2);
    return sum + __shfl_xor_sync(FULL_WARP, sum, 1);
}

DEVICE float share_kept(const Net& of, int head, float step) { return expf(of.decay[head] * step); }

// prepared [S T, channels + 2 H_v]: SiLU of the convolution, then the share of the state that is kept, and the time
// step, of each value head. A thread per channel or head, AT_ONCE positions of a sequence in each block.
KERNEL __launch_bounds__(128) prepare(const Net of) {
    WAIT;
    const int channels = channels_of(of), number = blockIdx.x * 128 + threadIdx.x, head = number - channels;
    const int n_blocks = (of.n_each + AT_ONCE - 1) / AT_ONCE, sequence = blockIdx.y / n_blocks;
    const int start = blockIdx.y % n_blocks * AT_ONCE, end = min(of.n_each, start + AT_ONCE);
    if (head >= of.value_heads) return;
    const float* before = state_before(of.states, sequence);
    for (int t = start; t < end; t++) {
        const int row = sequence * of.n_each + t;
        float* to = of.prepared + (u64)row * (channels + 2 * of.value_heads);
        if (head < 0) {
            to[number] = convolved(of, before, sequence, t, number);
        } else {
            const float step = time_step(of, row, head);
            to[number] = share_kept(of, head, step);
            to[number + of.value_heads] = step;
        }
    }
}

// What a thread loads of AT_ONCE positions while the ones before are computed; 0 beyond the last.
struct Ahead {
    float keys[4 * FOURS], queries[4 * FOURS], values[OF_THREAD], steps[OF_THREAD], gates[OF_THREAD], kept;

    // row: the first position's. column: of the thread's values.
    __device__ __forceinline__ void load(const Net& of, u64 row, int n, int head, int column) {
        const int channels = channels_of(of), values_end = of.value_heads * VALUE_DIM;
        const u64 width = channels + 2 * of.value_heads;
        const float* first = of.prepared + row * width;
        const float* of_key = first + values_end + key_head_of(of, head) * KEY_DIM;
#pragma unroll
        for (int i = 0; i < 4 * FOURS; i++) {
            const int at = threadIdx.x + THREADS * i, t = at / PADDED, k = at % PADDED;
            const bool there = t < n && k < KEY_DIM;
            keys[i] = there ? of_key[t * width + k] : 0.f;
            queries[i] = there ? of_key[t * width + k + of.key_heads * KEY_DIM] : 0.f;
        }
#pragma unroll
        for (int i = 0; i < OF_THREAD; i++) {
            const int t = (threadIdx.x + THREADS * i) / COLUMNS, at = head * VALUE_DIM + column;
            const bool there = t < n && column < VALUE_DIM;
            values[i] = there ? first[t * width + at] : 0.f;
            steps[i] = there ? first[t * width + channels + of.value_heads + head] : 0.f;
            gates[i] = there ? of.gate[(row + t) * values_end + at] : 0.f;
        }
        kept = (int)threadIdx.x < n ? first[threadIdx.x * width + channels + head] : 0.f;
    }
};

// A block has COLUMNS columns of the matrix of a value head of a sequence, which stay in registers. It writes the
// layer's output before its norm, which `finish` computes.
KERNEL ALONE recur(const Net of) {
    WAIT;
    __shared__ float4 keys[AT_ONCE][PADDED / 4], queries[AT_ONCE][PADDED / 4], changes[AT_ONCE][COLUMNS / 4];
    __shared__ float found[AT_ONCE][COLUMNS], kept[AT_ONCE];
    const int head = blockIdx.x, sequence = blockIdx.z, four = threadIdx.x / PARTS, part = threadIdx.x % PARTS;
    const int column = COLUMNS * blockIdx.y + 4 * four, own = COLUMNS * blockIdx.y + threadIdx.x % COLUMNS;
    const u64 matrix = (u64)head * KEY_DIM * VALUE_DIM, first = (u64)sequence * of.n_each;
    const float skip = of.skip[head];
    float s[4 * FOURS][4];
    load_tile(state_before(of.states, sequence) + matrix, column, s);
    Ahead ahead;
    ahead.load(of, first, min(AT_ONCE, of.n_each), head, own);
    for (int start = 0; start < of.n_each; start += AT_ONCE) {
        const int n = min(AT_ONCE, of.n_each - start);
        float values[OF_THREAD], gates[OF_THREAD];
#pragma unroll
        for (int i = 0; i < 4 * FOURS; i++) {
            ((float*)keys)[threadIdx.x + THREADS * i] = ahead.keys[i];
            ((float*)queries)[threadIdx.x + THREADS * i] = ahead.queries[i];
        }
#pragma unroll
        for (int i = 0; i < OF_THREAD; i++) {
            values[i] = ahead.values[i], gates[i] = ahead.gates[i];
            ((float*)changes)[threadIdx.x + THREADS * i] = values[i] * ahead.steps[i];
        }
        if (threadIdx.x < AT_ONCE) kept[threadIdx.x] = ahead.kept;
        __syncthreads();
        const int following = start + AT_ONCE;
        ahead.load(of, first + following, min(AT_ONCE, of.n_each - following), head, own);
#pragma unroll 2
        for (int t = 0; t < n; t++) {
            const float sum = change_tile(s, kept[t], keys[t], changes[t][four], queries[t]);
            if (part % 4 == 0) found[t][4 * four + part / 4] = sum;
        }
        __syncthreads();
#pragma unroll
        for (int i = 0; i < OF_THREAD; i++) {
            const int t = (threadIdx.x + THREADS * i) / COLUMNS;
            if (t < n && own < VALUE_DIM)
                of.out[((first + start + t) * of.value_heads + head) * VALUE_DIM + own] =
                    fmaf(skip, values[i], found[t][threadIdx.x % COLUMNS]) * silu(gates[i]);
        }
    }
    store_tile(s, column, state_after(of.states, sequence) + matrix);
}

// Norm a group of a position in place, and keep the convolution's last inputs: not earlier, because blocks of `prepare`
// read those of before where the states are read and written in place.
KERNEL __launch_bounds__(256) finish(const Net of) {
    WAIT;
    __shared__ float places[32];
    const int group = blockIdx.x, row = blockIdx.y;
    float* x = of.out + (u64)row * of.value_heads * VALUE_DIM + (u64)group * of.norm_size;
    const float* weight = of.norm + (u64)group * of.norm_size;
    float squares = 0.f;
    for (int i = threadIdx.x; i < of.norm_size; i += 256) squares = fmaf(x[i], x[i], squares);
    const float factor = __frsqrt_rn(block_sum(squares, places) / of.norm_size + of.epsilon);
    for (int i = threadIdx.x; i < of.norm_size; i += 256) x[i] = x[i] * factor * weight[i];
    if (row % of.n_each == 0) keep_inputs(of, row / of.n_each, group * 256 + threadIdx.x, gridDim.x * 256);
}

// Four numbers that other blocks have written, from x[i] on; 0 from `end` on.
DEVICE float4 four_of(const float* x, int i, int end) {
    if (i + 3 < end && (u64)(x + i) % 16 == 0) return load_fresh((const float4*)(x + i));
    float4 v = make_float4(0.f, 0.f, 0.f, 0.f);
    if (i < end) v.x = load_fresh(x + i);
    if (i + 1 < end) v.y = load_fresh(x + i + 1);
    if (i + 2 < end) v.z = load_fresh(x + i + 2);
    if (i + 3 < end) v.w = load_fresh(x + i + 3);
    return v;
}

// Norm `unit` numbers of a sequence's output, whose groups they hold whole, and round them if there is one sequence.
DEVICE void norm_unit(const Net& of, float* out, int first, float* factors, float* places) {
    const int n_groups = of.unit / of.norm_size, last = first + of.unit;
    for (int g = 0; g < n_groups; g++) {
        const int end = first + (g + 1) * of.norm_size;
        float4 squares = make_float4(0.f, 0.f, 0.f, 0.f);
#pragma unroll 8
        for (int i = end - of.norm_size + 4 * threadIdx.x; i < end; i += 4 * THREADS) {
            const float4 v = four_of(out, i, end);
            squares.x = fmaf(v.x, v.x, squares.x);
            squares.y = fmaf(v.y, v.y, squares.y);
            squares.z = fmaf(v.z, v.z, squares.z);
            squares.w = fmaf(v.w, v.w, squares.w);
        }
        const float sum = block_sum((squares.x + squares.y) + (squares.z + squares.w), places);
        if (threadIdx.x == 0) factors[g] = __frsqrt_rn(sum / of.norm_size + of.epsilon);
    }
    __syncthreads();
    const Rounded to = {out, out, of.bytes, of.scales, last};
    for (int base = first; base < (last + 63) / 64 * 64; base += 4 * THREADS) {
        const int i = base + 4 * threadIdx.x;
        const float4 x = four_of(out, i, last);
        float v[4] = {x.x, x.y, x.z, x.w};
#pragma unroll
        for (int j = 0; j < 4; j++)
            if (i + j < last) {
                v[j] *= factors[(i + j - first) / of.norm_size] * of.norm[i + j];
                out[i + j] = v[j];
            }
        if (of.bytes) round_four(to, i, v);
    }
}

// All of it for one position of each sequence, whose states are not written in place: a block per COLUMNS columns of a
// value head. The last block of those of a unit norms it.
KERNEL ALONE step(const Net of) {
    WAIT;
    __shared__ float4 key[PADDED / 4], query[PADDED / 4], value[COLUMNS / 4];
    __shared__ float factors[MOST_GROUPS], places[32];
    __shared__ bool is_last;
    const int head = blockIdx.x, part = threadIdx.x % PARTS, channels = channels_of(of);
    const int here = COLUMNS * blockIdx.y, four = threadIdx.x / PARTS, column = here + 4 * four, sequence = blockIdx.z;
    const int values_end = of.value_heads * VALUE_DIM, key_first = values_end + key_head_of(of, head) * KEY_DIM;
    const bool keeps_key = has_key(of, head) && blockIdx.y == 0;
    const float* before = state_before(of.states, sequence);
    float* after = state_after(of.states, sequence);
    float* out = of.out + (u64)sequence * values_end;
    const u64 matrix = (u64)head * KEY_DIM * VALUE_DIM, inputs = (u64)values_end * KEY_DIM;
    float s[4 * FOURS][4];
    load_tile(before + matrix, column, s);
    for (int i = threadIdx.x; i < 2 * PADDED + COLUMNS; i += THREADS) {
        const int what = i / PADDED < 2 ? i / PADDED : 2, k = i - what * PADDED;
        float* to = what == 2 ? (float*)value : what ? (float*)key : (float*)query;
        if (what == 2 ? here + k >= VALUE_DIM : k >= KEY_DIM) {
            to[k] = 0.f;
            continue;
        }
        const int channel = what == 2 ? head * VALUE_DIM + here + k : key_first + k + (what ? 0 : of.key_heads * KEY_DIM);
        to[k] = convolved(of, before, sequence, 0, channel);
        if (what < 2 && !keeps_key) continue;
        for (int j = 0; j < of.width - 1; j++)
            after[inputs + (u64)j * channels + channel] = input_of(of, before, sequence, j + 2 - of.width, channel);
    }
    __syncthreads();
    const float step = time_step(of, sequence, head);
    const float4 x = value[four], change = make_float4(x.x * step, x.y * step, x.z * step, x.w * step);
    const float found = change_tile(s, share_kept(of, head, step), key, change, query);
    store_tile(s, column, after + matrix);
    const int own = column + part / 4;
    if (part % 4 == 0 && own < VALUE_DIM) {
        const u64 at = (u64)head * VALUE_DIM + own;
        const float gate = of.gate[(u64)sequence * values_end + at];
        out[at] = fmaf(of.skip[head], ((const float*)value)[own - here], found) * silu(gate);
    }
    __threadfence();
    __syncthreads();
    const int unit = head * VALUE_DIM / of.unit;
    const u32 n_blocks = of.unit / VALUE_DIM * gridDim.y;
    u32* done = of.done + sequence * (values_end / of.unit) + unit;
    if (threadIdx.x == 0) is_last = atomicInc(done, n_blocks - 1) == n_blocks - 1;
    __syncthreads();
    if (!is_last) return;
    __threadfence();
    norm_unit(of, out, unit * of.unit, factors, places);
}
