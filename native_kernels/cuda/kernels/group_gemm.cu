// Products of groups of positions with a quantised matrix each, on tensor cores: those of experts, of which a prompt gives
// each a few positions. The weights become halves on their way to shared memory, so that they are read once and as small
// as they are stored. With many positions per group, converting them once beforehand (dequantise.cu, gemm.cu) is faster.
//
// out [T, N] = (x [T, K] times the rows of the group's w [N, K]) * factors[t] + bias[n]. CODEC is the codec of the matrices
// (weights.cuh), DEPTH 64 or 128: columns that are multiplied at a time and consist of whole units, UNITS_AHEAD 1 or 2:
// pieces whose units a thread has in flight. x: halves, rows x_step apart, a multiple of 8, 16-byte aligned. Group g has the rows from starts[g] to starts[g + 1] of x and out, and the
// matrix number g of each stack.
//
// A block of 256 threads computes 64 x 128 of the result; while one piece is multiplied, the next two are being loaded. A
// sum does not depend on the grid, and is that of gemm.cu. grid: x as many positions as a group can have by 64, y N by
// 128, z groups, twice with a second matrix. Shared memory, dynamic: X_STAGES * X_BYTES + 2 * W_BYTES.
#include "async_copies.cuh"
#include "weight_halves.cuh"

#ifndef CODEC
#define CODEC Q4_0
#define DEPTH 64
#define UNITS_AHEAD 2
#endif

#define TOKENS 64
#define OUTPUTS 128
#define UNITS_OF_ROW (DEPTH / CODEC::COLUMNS)       // in a piece
#define UNITS (OUTPUTS * UNITS_OF_ROW / 256)        // of a thread
#define X_BYTES (TOKENS * DEPTH * 2)
#define W_BYTES (OUTPUTS * DEPTH * 2)
#define X_STAGES (DEPTH == 64 ? 3 : 2)  // with more, a block of some GPUs has no room

struct Given {
    Planes planes;
    float* out;
    const float* bias;  // [groups, N]; 0: none
};

struct Job {
    Given given[2];
    const u16* x;
    const float* factors;
    const int* starts;
    u64 x_step, out_step;
    int n_groups, n_out, depth;
};

DEVICE u32 place(int row, int chunk) { return DEPTH == 64 ? narrow_place(row, chunk) : wide_place(row, chunk); }

KERNEL __launch_bounds__(256, 2) multiply_groups(const Job job) {
    WAIT;
    extern __shared__ __align__(128) u8 room[];  // X_STAGES pieces of x, then two of the weights
    const int group = blockIdx.z % job.n_groups, start = job.starts[group];
    const int token0 = blockIdx.x * TOKENS, n_tokens = job.starts[group + 1] - start - token0;
    if (n_tokens <= 0) return;
    const Given& given = job.given[blockIdx.z / job.n_groups];
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, out0 = blockIdx.y * OUTPUTS;
    const int tiles = (min(n_tokens, TOKENS) + 15) / 16, n_units = CODEC::units(job.depth);
    const int n_pieces = (job.depth + DEPTH - 1) / DEPTH;

    CODEC::Row rows[UNITS];
    CODEC::Unit units[UNITS], next[UNITS];
#pragma unroll
    for (int j = 0; j < UNITS; j++) {
        const int row = (threadIdx.x + 256 * j) / UNITS_OF_ROW;
        rows[j] = CODEC::row(given.planes, job.depth, group * job.n_out + min(out0 + row, job.n_out - 1));
    }
    const auto load = [&](int piece, CODEC::Unit(&to)[UNITS]) {
#pragma unroll
        for (int j = 0; j < UNITS; j++)
            to[j] = CODEC::load(rows[j], min(piece * UNITS_OF_ROW + (int)threadIdx.x % UNITS_OF_ROW, n_units - 1));
    };
    const auto convert = [&](int piece) {
        u8* to = room + X_STAGES * X_BYTES + piece % 2 * W_BYTES;
        const int unit = piece * UNITS_OF_ROW + threadIdx.x % UNITS_OF_ROW;
#pragma unroll
        for (int j = 0; j < UNITS; j++) {
            const int row = (threadIdx.x + 256 * j) / UNITS_OF_ROW;
            u32 words[CODEC::COLUMNS / 2];
            Halves<CODEC>::of(units[j], words);
#pragma unroll
            for (int i = 0; i < CODEC::COLUMNS; i += 8) {
                const u32* at = words + i / 2;
                *(uint4*)(to + place(row, CODEC::column(unit, i) / 8 % (DEPTH / 8))) =
                    unit < n_units ? make_uint4(at[0], at[1], at[2], at[3]) : make_uint4(0, 0, 0, 0);
            }
        }
    };
    const auto fetch = [&](int piece) {
        const u32 to = shared_address(room) + piece % X_STAGES * X_BYTES;
#pragma unroll
        for (int j = 0; j < TOKENS * DEPTH / 8 / 256; j++) {
            const int i = threadIdx.x + 256 * j, row = i / (DEPTH / 8), chunk = i % (DEPTH / 8);
            const int column = piece * DEPTH + 8 * chunk, n = row < n_tokens ? max(0, min(16, 2 * (job.depth - column))) : 0;
            copy_16(to + place(row, chunk), job.x + (n ? (u64)(start + token0 + row) * job.x_step + column : 0), n);
        }
    };

    float sums[4][2][4];
#pragma unroll
    for (int i = 0; i < 32; i++) sums[i / 8][i / 4 % 2][i % 4] = 0.f;
    load(0, units);
    if (UNITS_AHEAD > 1) load(1, next);
#pragma unroll
    for (int i = 0; i < X_STAGES - 1; i++) {
        if (i < n_pieces) fetch(i);
        end_group();
    }
    for (int piece = 0; piece < n_pieces; piece++) {
        convert(piece);
        await_groups<X_STAGES - 2>();
        __syncthreads();
        if (UNITS_AHEAD > 1) {
#pragma unroll
            for (int j = 0; j < UNITS; j++) units[j] = next[j];
            load(piece + 2, next);
        } else {
            load(piece + 1, units);
        }
        if (piece + X_STAGES - 1 < n_pieces) fetch(piece + X_STAGES - 1);
        end_group();
        const u32 x_at = shared_address(room) + piece % X_STAGES * X_BYTES;
        const u32 w_at = shared_address(room) + X_STAGES * X_BYTES + piece % 2 * W_BYTES;
#pragma unroll
        for (int k = 0; k < DEPTH / 16; k++) {
            u32 w[4];
            load_matrices(w, w_at + place(16 * warp + (lane & 7) + (lane >> 4) * 8, 2 * k + (lane >> 3 & 1)));
#pragma unroll
            for (int i = 0; i < 4; i++) {
                if (i >= tiles) continue;
                u32 x[4];
                load_matrices(x, x_at + place(16 * i + (lane & 15), 2 * k + (lane >> 4)));
                multiply_tile(sums[i][0], x, w[0], w[1]);
                multiply_tile(sums[i][1], x, w[2], w[3]);
            }
        }
    }
#pragma unroll
    for (int i = 0; i < 8; i++) {
        const int token = 8 * i + lane / 4, row = start + token0 + token;
        if (token >= n_tokens) continue;
        const float factor = job.factors[row];
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const int column = out0 + 16 * warp + j / 2 * 8 + lane % 4 * 2 + j % 2;
            if (column >= job.n_out) continue;
            const float value = sums[i / 2][j / 2][i % 2 * 2 + j % 2] * factor;
            given.out[row * job.out_step + column] =
                given.bias ? value + __ldg(given.bias + (u64)group * job.n_out + column) : value;
        }
    }
}
