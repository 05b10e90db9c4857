// The chosen experts of one position of each of several sequences: rows of an expert are read once for all that use it.
//
// CODEC is the codec of the matrices (weights.cuh), UNITS_AHEAD the units of a row that a lane has in flight. A pair is a
// position and one of the K experts that it uses; router.cu groups pairs by slot. Pairs of the group with a negative slot,
// whose expert is not resident, get 0.
#include "weights.cuh"

#ifndef CODEC
#define CODEC Q4_0
#endif
#ifndef UNITS_AHEAD
#define UNITS_AHEAD 2
#endif

#define WARPS_OF_BLOCK 8
#define ROWS_OF_WARP 2  // at a time
#define PAIRS_AT_ONCE 8
#define SUMMED_AT_ONCE 2

struct Group {
    int slot, first;
};

struct Product {
    Planes planes;
    float* out;
    const float* bias;  // [S, n_rows]; 0: none
    int weighed;        // whether the weights multiply it
};

// Where numbers of a pair of position t and its k-th expert begin: t * position + k * choice.
struct Steps {
    int position, choice;
};

DEVICE u64 place_of(const Steps& steps, int pair, int n_used) {
    return (u64)(pair / n_used) * steps.position + (u64)(pair % n_used) * steps.choice;
}

// The pairs, and where their vectors, results and weights are. weights 0: all 1.
struct Pairs {
    const int* order;
    const Group* groups;
    const float* weights;
    Steps x, out, weight;
    int n_used;
};

// out of a pair [n_rows] = weight (of products that are weighed) * (the slot's rows times x + bias), of one or two matrices. split: warps that share a
// row, a power of two.
struct Products {
    Product products[2];
    Vector x;
    Pairs pairs;
    int n_rows, split;
};

// Grid: blocks of rows, groups, matrices.
KERNEL __launch_bounds__(32 * WARPS_OF_BLOCK, 2) multiply_groups(const Products job) {
    WAIT;
    __shared__ float sums[WARPS_OF_BLOCK][ROWS_OF_WARP * PAIRS_AT_ONCE];
    const Product& product = job.products[blockIdx.z];
    const Pairs& pairs = job.pairs;
    const Group group = pairs.groups[blockIdx.y];
    const int end = pairs.groups[blockIdx.y + 1].first, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int teams = WARPS_OF_BLOCK / job.split, share = warp % job.split, rows_of_block = teams * ROWS_OF_WARP;
    const int first = blockIdx.x * rows_of_block + warp / job.split * ROWS_OF_WARP, n_units = CODEC::units(job.x.n);
    for (int start = group.first; start < end; start += PAIRS_AT_ONCE) {
        const int n = min(PAIRS_AT_ONCE, end - start);
        float found[ROWS_OF_WARP * PAIRS_AT_ONCE] = {};
        if (group.slot >= 0 && first < job.n_rows) {
            CODEC::Row rows[ROWS_OF_WARP];
            u32 at[PAIRS_AT_ONCE];
#pragma unroll
            for (int i = 0; i < ROWS_OF_WARP; i++)
                rows[i] = CODEC::row(product.planes, job.x.n, group.slot * job.n_rows + min(first + i, job.n_rows - 1));
#pragma unroll
            for (int p = 0; p < PAIRS_AT_ONCE; p++)
                at[p] = (u32)place_of(pairs.x, pairs.order[start + min(p, n - 1)], pairs.n_used);
#pragma unroll 1
            for (int unit = 32 * share + lane; unit < n_units; unit += 32 * job.split * UNITS_AHEAD) {
                CODEC::Unit w[UNITS_AHEAD][ROWS_OF_WARP];
#pragma unroll
                for (int a = 0; a < UNITS_AHEAD; a++)
                    if (unit + a * 32 * job.split < n_units) {
#pragma unroll
                        for (int i = 0; i < ROWS_OF_WARP; i++) w[a][i] = CODEC::load(rows[i], unit + a * 32 * job.split);
                    }
#pragma unroll
                for (int p = 0; p < PAIRS_AT_ONCE; p++) {
                    if (p >= n) break;
                    const Vector x = {job.x.values + at[p], job.x.bytes + at[p], job.x.scales + at[p] / 32, job.x.n};
#pragma unroll
                    for (int a = 0; a < UNITS_AHEAD; a++)
                        if (unit + a * 32 * job.split < n_units) {
                            const CODEC::Input v = CODEC::input(x, unit + a * 32 * job.split);
#pragma unroll
                            for (int i = 0; i < ROWS_OF_WARP; i++)
                                found[i * PAIRS_AT_ONCE + p] = CODEC::dot(w[a][i], v, found[i * PAIRS_AT_ONCE + p]);
                        }
                }
            }
        }
        const float whole = warp_sums(found);
        if (lane % 2 == 0) sums[warp][lane / 2] = whole;
        __syncthreads();
        const int pair = threadIdx.x / rows_of_block, mine = threadIdx.x % rows_of_block;
        const int row = blockIdx.x * rows_of_block + mine;
        if (pair < n && row < job.n_rows) {
            float sum = 0.f;
            for (int k = 0; k < job.split; k++)
                sum += sums[mine / ROWS_OF_WARP * job.split + k][mine % ROWS_OF_WARP * PAIRS_AT_ONCE + pair];
            const int of = pairs.order[start + pair];
            if (product.bias && group.slot >= 0) sum += __ldg(product.bias + (u64)group.slot * job.n_rows + row);
            if (product.weighed && group.slot >= 0) sum *= pairs.weights[place_of(pairs.weight, of, pairs.n_used)];
            product.out[place_of(pairs.out, of, pairs.n_used) + row] = sum;
        }
        __syncthreads();
    }
}

// out of a pair and a segment of the expert's neurons [n_cols] = weight * (the sum of h times its row of down), where
// down is stored by neuron, [S * width, n_cols]; segments are `segment_step` apart. x of the pairs: h. The bias belongs
// to the first segment.
struct Sums {
    Planes planes;
    const float *h, *bias;
    float* out;
    Pairs pairs;
    u64 segment_step;
    int width, n_cols;
};

// Grid: blocks of 32 units of columns, segments, groups. A block's warps take turns with the rows.
KERNEL __launch_bounds__(128) sum_groups(const Sums job) {
    WAIT;
    __shared__ float sums[4][32 * CODEC::COLUMNS];
    const Pairs& pairs = job.pairs;
    const Group group = pairs.groups[blockIdx.z];
    const int end = pairs.groups[blockIdx.z + 1].first, segment = blockIdx.y, segments = gridDim.y;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int n_units = CODEC::units(job.n_cols), unit = blockIdx.x * 32 + lane;
    const int first = (int)((u64)job.width * segment / segments);
    const int last = (int)((u64)job.width * (segment + 1) / segments);
    for (int start = group.first; start < end; start += SUMMED_AT_ONCE) {
        const int n = min(SUMMED_AT_ONCE, end - start);
        float sum[SUMMED_AT_ONCE][CODEC::COLUMNS] = {};
        const float* h[SUMMED_AT_ONCE];
#pragma unroll
        for (int p = 0; p < SUMMED_AT_ONCE; p++)
            h[p] = job.h + place_of(pairs.x, pairs.order[start + min(p, n - 1)], pairs.n_used);
        if (group.slot >= 0 && unit < n_units) {
            for (int j = first + warp; j < last; j += 4) {
                float by[SUMMED_AT_ONCE], v[CODEC::COLUMNS];
                bool any = false;
#pragma unroll
                for (int p = 0; p < SUMMED_AT_ONCE; p++) {
                    by[p] = h[p][j];
                    any = any || by[p] != 0.f;
                }
                if (!any) continue;
                CODEC::values(CODEC::load(CODEC::row(job.planes, job.n_cols, group.slot * job.width + j), unit), v);
#pragma unroll
                for (int p = 0; p < SUMMED_AT_ONCE; p++)
#pragma unroll
                    for (int i = 0; i < CODEC::COLUMNS; i++) sum[p][i] = fmaf(by[p], v[i], sum[p][i]);
            }
        }
#pragma unroll
        for (int p = 0; p < SUMMED_AT_ONCE; p++) {
            if (p >= n) break;
#pragma unroll
            for (int i = 0; i < CODEC::COLUMNS; i++) sums[warp][i * 32 + lane] = sum[p][i];
            __syncthreads();
            const int of = pairs.order[start + p];
            float* out = job.out + place_of(pairs.out, of, pairs.n_used) + segment * job.segment_step;
            const float weight = pairs.weights ? pairs.weights[place_of(pairs.weight, of, pairs.n_used)] : 1.f;
            for (int at = threadIdx.x; at < 32 * CODEC::COLUMNS; at += 128) {
                const int from = blockIdx.x * 32 + at % 32, column = CODEC::column(from, at / 32);
                if (from >= n_units || column >= job.n_cols) continue;
                float value = 0.f;
#pragma unroll
                for (int w = 0; w < 4; w++) value += sums[w][at];
                if (job.bias && segment == 0 && group.slot >= 0)
                    value += __ldg(job.bias + (u64)group.slot * job.n_cols + column);
                out[column] = group.slot < 0 ? 0.f : weight * value;
            }
            __syncthreads();
        }
    }
}
