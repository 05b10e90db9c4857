// Products of many positions with a matrix of halves, on tensor cores: halves in, sums in f32.
//
// multiply_rows: out [T, N] = x [T, K] times the rows of w [N, K]. multiply_columns: out [T, N] = x [T, K] times w [K,
// N], for a down that is stored neuron by neuron. Both: out = product * factors[t] + bias[n], or added to out if `adds`
// is set. x and w: rows `x_step` and `w_step` halves apart, multiples of 8, 16-byte aligned; beyond their K (N) columns
// only the bytes up to the next 16 are read, and their values do not matter.
//
// A block of 256 threads computes 128 x 128 of the result in stages of 64 columns; while one is multiplied the next
// ones are being loaded (compute capability 7.5 copies through registers). Shared memory, dynamic: PIECES_BYTES of
// prefill_ops.py. grid: x over T, so that the blocks which read the same weights run side by side; y over N; z 2 if
// multiply_rows computes a second product of the same x and shape. The sums do not depend on the grid.
#include "async_copies.cuh"

#define SIDE 128
#define DEPTH 64
#if __CUDA_ARCH__ >= 800
#define STAGES 3
#else
#define STAGES 2
#endif
#if __CUDA_ARCH__ == 800 || __CUDA_ARCH__ == 900 || __CUDA_ARCH__ == 1000
#define BLOCKS 2  // per multiprocessor: the others' shared memory holds one
#else
#define BLOCKS 1
#endif
#define PIECE_BYTES (SIDE * DEPTH * 2)

// A thread's part in bringing SIDE rows, DEPTH halves of each at a time: 16 bytes of every 32nd row.
struct Narrow {
    const u16* at;
    u32 step;
    int rows, left;  // rows from its first on; columns from its own on
    u32 place;

    __device__ __forceinline__ Narrow(const u16* from, u64 row_step, int n_rows, int row0, int n_cols) {
        const int row = threadIdx.x / 8, chunk = threadIdx.x % 8;
        rows = n_rows - row0 - row;
        left = n_cols - 8 * chunk;
        at = from + (rows > 0 ? row0 + row : 0) * row_step + 8 * chunk;
        step = 32 * (u32)row_step;
        place = narrow_place(row, chunk);
    }

    __device__ __forceinline__ void fetch(u32 to) {
        const int n = min(16, 2 * left);
#pragma unroll
        for (int i = 0; i < SIDE / 32; i++) {
            const bool inside = n > 0 && 32 * i < rows;
            copy_16(to + place + i * 32 * 128, inside ? at + i * step : at, inside ? n : 0);
        }
        if (left > DEPTH) at += DEPTH;
        left -= DEPTH;
    }
};

// The same for DEPTH rows at a time, of SIDE halves: 16 bytes of every 16th row.
struct Wide {
    const u16* at;
    u32 step;
    int rows, n;
    u32 place;

    __device__ __forceinline__ Wide(const u16* from, u64 row_step, int n_rows, int n_cols, int col0) {
        const int row = threadIdx.x / 16, chunk = threadIdx.x % 16, column = col0 + 8 * chunk;
        rows = n_rows - row;
        n = max(0, min(16, 2 * (n_cols - column)));
        at = from + (rows > 0 ? row : 0) * row_step + (n ? column : 0);
        step = (u32)row_step;
        place = wide_place(row, chunk);
    }

    __device__ __forceinline__ void fetch(u32 to) {
#pragma unroll
        for (int i = 0; i < DEPTH / 16; i++) {
            const bool inside = 16 * i < rows;
            copy_16(to + place + i * 16 * 256, inside ? at + i * 16 * step : at, inside ? n : 0);
        }
        if (rows > DEPTH) at += DEPTH * step;
        rows -= DEPTH;
    }
};

template <bool COLUMNS>
struct Choice {
    using Weights = Narrow;
};
template <>
struct Choice<true> {
    using Weights = Wide;
};

// What a warp multiplies at once: 64 positions and 32 outputs, 16 columns deep.
struct Fragments {
    u32 x[4][4], w[2][4];
};

template <bool COLUMNS>
__device__ __forceinline__ void load_fragments(Fragments& f, u32 at, int k, int warp_token, int warp_out, int lane) {
#pragma unroll
    for (int i = 0; i < 4; i++)
        load_matrices(f.x[i], at + narrow_place(warp_token + 16 * i + (lane & 15), 2 * k + (lane >> 4)));
#pragma unroll
    for (int j = 0; j < 2; j++) {
        if (COLUMNS)
            load_matrices_transposed(f.w[j], at + PIECE_BYTES + wide_place(16 * k + (lane & 15),
                                                                       warp_out / 8 + 2 * j + (lane >> 4)));
        else
            load_matrices(f.w[j], at + PIECE_BYTES + narrow_place(warp_out + 16 * j + (lane & 7) + (lane >> 4) * 8,
                                                                  2 * k + (lane >> 3 & 1)));
    }
}

template <bool COLUMNS>
__device__ __forceinline__ void multiply(const u16* x, u64 x_step, const u16* w, u64 w_step, float* out, u64 out_step,
                                         const float* factors, const float* bias, int n_tokens, int n_out, int depth,
                                         int adds) {
    extern __shared__ __align__(128) u8 pieces[];
    const u32 start = shared_address(pieces);
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    const int token0 = blockIdx.x * SIDE, out0 = blockIdx.y * SIDE;
    const int warp_token = (warp & 1) * 64, warp_out = (warp >> 1) * 32;
    const int n_pieces = (depth + DEPTH - 1) / DEPTH;
    const bool works = token0 + warp_token < n_tokens;

    Narrow of_x(x, x_step, n_tokens, token0, depth);
    typename Choice<COLUMNS>::Weights of_w(w, w_step, COLUMNS ? depth : n_out, COLUMNS ? n_out : out0,
                                           COLUMNS ? out0 : depth);
    int fetched = 0;
    u32 to = start;
    const auto fetch = [&]() {
        if (fetched < n_pieces) {
            of_x.fetch(to);
            of_w.fetch(to + PIECE_BYTES);
        }
        fetched++;
        to = to + 2 * PIECE_BYTES == start + STAGES * 2 * PIECE_BYTES ? start : to + 2 * PIECE_BYTES;
        end_group();
    };

    float sums[4][4][4];
#pragma unroll
    for (int i = 0; i < 64; i++) sums[i / 16][i / 4 % 4][i % 4] = 0.f;
#pragma unroll
    for (int i = 0; i < STAGES - 1; i++) fetch();
    u32 at = start;
    Fragments fragments[2];
    for (int piece = 0; piece < n_pieces; piece++) {
        await_groups<STAGES - 2>();
        __syncthreads();
        if (works) load_fragments<COLUMNS>(fragments[0], at, 0, warp_token, warp_out, lane);
        fetch();
        if (works) {
#pragma unroll
            for (int k = 0; k < DEPTH / 16; k++) {
                if (k + 1 < DEPTH / 16)
                    load_fragments<COLUMNS>(fragments[(k + 1) & 1], at, k + 1, warp_token, warp_out, lane);
                const Fragments& f = fragments[k & 1];
#pragma unroll
                for (int i = 0; i < 4; i++)
#pragma unroll
                    for (int j = 0; j < 4; j++)
                        multiply_tile(sums[i][j], f.x[i], f.w[j / 2][j % 2 * 2], f.w[j / 2][j % 2 * 2 + 1]);
            }
        }
        at = at + 2 * PIECE_BYTES == start + STAGES * 2 * PIECE_BYTES ? start : at + 2 * PIECE_BYTES;
    }

#pragma unroll
    for (int i = 0; i < 8; i++) {
        const int token = token0 + warp_token + 8 * i + lane / 4;
        if (token >= n_tokens) continue;
        const float factor = factors ? factors[token] : 1.f;
#pragma unroll
        for (int j = 0; j < 8; j++) {
            const int column = out0 + warp_out + j / 2 * 8 + lane % 4 * 2 + j % 2;
            if (column >= n_out) continue;
            float* to = out + token * out_step + column;
            float value = sums[i / 2][j / 2][i % 2 * 2 + j % 2] * factor;
            if (bias) value += bias[column];
            *to = adds ? *to + value : value;
        }
    }
}

KERNEL __launch_bounds__(256, BLOCKS) multiply_rows(
    const u16* x, u64 x_step, const u16* w, u64 w_step, float* out, u64 out_step, const float* factors,
    const float* bias, int n_tokens, int n_out, int depth, int adds, const u16* other_w, float* other_out,
    const float* other_bias) {
    WAIT;
    if (blockIdx.z) {
        w = other_w;
        out = other_out;
        bias = other_bias;
    }
    multiply<false>(x, x_step, w, w_step, out, out_step, factors, bias, n_tokens, n_out, depth, adds);
}

// Each blockIdx.z has its own n_out rows of w, and its own columns of x and out.
KERNEL __launch_bounds__(256, BLOCKS) multiply_each_rows(
    const u16* x, u64 x_step, const u16* w, u64 w_step, float* out, u64 out_step, const float* factors, int n_tokens,
    int n_out, int depth, int x_apart, int out_apart) {
    WAIT;
    multiply<false>(x + (u64)blockIdx.z * x_apart, x_step, w + (u64)blockIdx.z * n_out * w_step, w_step,
                    out + (u64)blockIdx.z * out_apart, out_step, factors, nullptr, n_tokens, n_out, depth, 0);
}

KERNEL __launch_bounds__(256, BLOCKS) multiply_columns(
    const u16* x, u64 x_step, const u16* w, u64 w_step, float* out, u64 out_step, const float* factors,
    const float* bias, int n_tokens, int n_out, int depth, int adds) {
    WAIT;
    multiply<true>(x, x_step, w, w_step, out, out_step, factors, bias, n_tokens, n_out, depth, adds);
}

// Products of groups of positions, each with a matrix of its own: those of experts. Group g has the rows from starts[g]
// to starts[g + 1] of x and out, and the matrix, bias and other matrix number g. grid: z groups, twice with a second
// product; x over as many rows as a group can have.
template <bool COLUMNS>
__device__ __forceinline__ void multiply_group(
    const u16* x, u64 x_step, const u16* w, u64 w_step, float* out, u64 out_step, const float* factors,
    const float* bias, const int* starts, int n_groups, int n_out, int depth, const u16* other_w, float* other_out,
    const float* other_bias) {
    const int group = blockIdx.z % n_groups, start = starts[group], n_tokens = starts[group + 1] - start;
    if ((int)blockIdx.x * SIDE >= n_tokens) return;
    if ((int)blockIdx.z >= n_groups) {
        w = other_w;
        out = other_out;
        bias = other_bias;
    }
    multiply<COLUMNS>(x + start * x_step, x_step, w + (u64)group * (COLUMNS ? depth : n_out) * w_step, w_step,
                      out + start * out_step, out_step, factors + start, bias ? bias + (u64)group * n_out : nullptr,
                      n_tokens, n_out, depth, 0);
}

KERNEL __launch_bounds__(256, BLOCKS) multiply_group_rows(
    const u16* x, u64 x_step, const u16* w, u64 w_step, float* out, u64 out_step, const float* factors,
    const float* bias, const int* starts, int n_groups, int n_out, int depth, const u16* other_w, float* other_out,
    const float* other_bias) {
    WAIT;
    multiply_group<false>(x, x_step, w, w_step, out, out_step, factors, bias, starts, n_groups, n_out, depth, other_w,
                          other_out, other_bias);
}

KERNEL __launch_bounds__(256, BLOCKS) multiply_group_columns(
    const u16* x, u64 x_step, const u16* w, u64 w_step, float* out, u64 out_step, const float* factors,
    const float* bias, const int* starts, int n_groups, int n_out, int depth) {
    WAIT;
    multiply_group<true>(x, x_step, w, w_step, out, out_step, factors, bias, starts, n_groups, n_out, depth, nullptr,
                         nullptr, nullptr);
}
