// Products of at most 32 positions with matrices of one codec, on tensor cores, for batched decode, which is bound by
// reading weights: they are read once, as they are stored, and become halves in registers. CODEC is the codec of the
// matrices (weights.cuh), UNITS_AHEAD the units of a row that a lane has in flight, one with 32 positions.
//
// A warp computes 16 rows of a matrix times all positions, or `split` warps of a block do, which take turns along the
// columns. Four lanes take four adjacent units of a row each, and the same columns of the positions, so that columns are
// permuted, but alike in both factors. The warps' sums are added in order. grid: x over the most rows, y matrices.
#include "tensor_cores.cuh"
#include "weight_halves.cuh"

#ifndef CODEC
#define CODEC Q4_0
#endif
#ifndef UNITS_AHEAD
#define UNITS_AHEAD 2
#endif

#define ROWS 16
#define WARPS 8
#define RUN (CODEC::COLUMNS < 8 ? 4 : 8)  // adjacent columns of a position that are read at a time

// A product: its weights [n_out, depth], result and bias.
struct Product {
    Planes planes;
    float* out;
    const float* bias;
    u64 n_out;
};

// Up to three products of one x; the row strides of their results are the same.
struct Products {
    Product of[3];
    const u16* x;
    u64 x_step, out_step;
    const float* factors;
    int n_tokens, depth, adds, split;
};

struct Pair {
    CODEC::Unit low, high;  // of rows 0 to 7 and of rows 8 to 15 of a warp
};

// RUN halves, of which `left` exist; the others become 0.
DEVICE uint4 take(const u16* from, int left) {
    if (RUN == 8 && left >= 8) return *(const uint4*)from;
    u32 v[4] = {0, 0, 0, 0};
#pragma unroll
    for (int i = 0; i < RUN; i++)
        if (i < left) v[i / 2] |= (u32)from[i] << (16 * (i & 1));
    return make_uint4(v[0], v[1], v[2], v[3]);
}

// TILES: of eight positions.
template <int TILES, int AHEAD>
DEVICE void multiply_few(const Products& job) {
    __shared__ float all[WARPS][8 * TILES][ROWS + 1];
    const Product& mine = job.of[blockIdx.y];
    const int depth = job.depth, n_out = (int)mine.n_out, teams = WARPS / job.split;
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, group = lane >> 2, n_units = CODEC::units(depth);
    const int first_row = blockIdx.x * teams * ROWS, row0 = first_row + warp / job.split * ROWS;
    if (first_row >= n_out) return;

    float sums[TILES][4];
#pragma unroll
    for (int i = 0; i < 4 * TILES; i++) sums[i / 4][i % 4] = 0.f;
    if (row0 < n_out) {
        const CODEC::Row low = CODEC::row(mine.planes, depth, min(row0 + group, n_out - 1));
        const CODEC::Row high = CODEC::row(mine.planes, depth, min(row0 + group + 8, n_out - 1));
        const u16* from[TILES];
#pragma unroll
        for (int t = 0; t < TILES; t++) from[t] = job.x + (u64)min(8 * t + group, job.n_tokens - 1) * job.x_step;
        const int step = 4 * job.split;
        int unit = 4 * (warp % job.split) + (lane & 3);  // lanes of a warp are at most three units apart
        const auto load = [&](Pair(&to)[AHEAD], int at) {
#pragma unroll
            for (int a = 0; a < AHEAD; a++, at += step) {
                to[a] = Pair();
                if (at < n_units) to[a].low = CODEC::load(low, at), to[a].high = CODEC::load(high, at);
            }
        };
        Pair w[AHEAD], next[AHEAD];
        load(w, unit);
#pragma unroll 1
        for (; unit - (lane & 3) < n_units; unit += AHEAD * step) {
            load(next, unit + AHEAD * step);
#pragma unroll
            for (int a = 0; a < AHEAD; a++) {
                u32 upper[CODEC::COLUMNS / 2], lower[CODEC::COLUMNS / 2];
                Halves<CODEC>::of(w[a].low, upper);
                Halves<CODEC>::of(w[a].high, lower);
#pragma unroll
                for (int i = 0; i < CODEC::COLUMNS; i += RUN) {
                    const int column = CODEC::column(unit + a * step, i);
                    const u32 *u = upper + i / 2, *l = lower + i / 2;
#pragma unroll
                    for (int t = 0; t < TILES; t++) {
                        const uint4 x = take(from[t] + column, depth - column);
                        multiply_tile(sums[t], {u[0], l[0], u[1], l[1]}, x.x, x.y);
                        if (RUN == 8) multiply_tile(sums[t], {u[2], l[2], u[3], l[3]}, x.z, x.w);
                    }
                }
                w[a] = next[a];
            }
        }
    }
#pragma unroll
    for (int t = 0; t < TILES; t++)
#pragma unroll
        for (int i = 0; i < 4; i++) all[warp][8 * t + 2 * (lane & 3) + (i & 1)][group + 8 * (i >> 1)] = sums[t][i];
    __syncthreads();
    for (int i = threadIdx.x; i < 8 * TILES * ROWS * teams; i += 32 * WARPS) {
        const int team = i / (8 * TILES * ROWS), token = i / ROWS % (8 * TILES), row = first_row + team * ROWS + i % ROWS;
        if (token >= job.n_tokens || row >= n_out) continue;
        float value = 0.f;
        for (int k = 0; k < job.split; k++) value += all[team * job.split + k][token][i % ROWS];
        value *= job.factors ? job.factors[token] : 1.f;
        if (mine.bias) value += mine.bias[row];
        float* to = mine.out + token * job.out_step + row;
        *to = job.adds ? *to + value : value;
    }
}

KERNEL __launch_bounds__(256, 2) multiply_few_8(const Products job) { WAIT; multiply_few<1, UNITS_AHEAD>(job); }
KERNEL __launch_bounds__(256, 2) multiply_few_16(const Products job) { WAIT; multiply_few<2, UNITS_AHEAD>(job); }
KERNEL __launch_bounds__(256, 2) multiply_few_32(const Products job) { WAIT; multiply_few<4, 1>(job); }
