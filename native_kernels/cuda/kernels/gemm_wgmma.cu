// The products of gemm.cu for compute capability 9.0: halves in, sums in f32, by warpgroups out of shared memory.
//
// multiply_rows_N: out [T, N] = x [T, K] times the rows of w [N, K]. multiply_columns_N: x times w [K, N]. Both: out =
// product * factors[t] + bias[n], or added to out if `adds` is set. A block computes 128 positions and the number of
// outputs in its name, in stages of 64 columns: two warpgroups multiply, while a thread of a ninth warp lets the GPU
// load `stages` stages ahead, in boxes of 64 x 64 halves (tensor maps, which know the shapes; zeros beyond the edges).
// Blocks of a cluster that need the same box get it from one of them: neighbours in x share weights, neighbours in y
// positions. Shared memory, dynamic: stage_bytes of wgmma_products.py, 1024-byte aligned.
//
// grid: x over T, y over N, both padded to whole clusters (of 1 or 2 each way); z 2 if multiply_rows computes a second
// product of the same x and shape. 288 threads. Sums run through K by sixteens in order, independent of the grid, the
// cluster and the width of a block.
#include "wgmma.cuh"

#define BOX 64
#define BOX_BYTES (BOX * BOX * 2)
#define WORKERS 256  // threads that multiply

struct Result {
    float* out;
    u64 step;
    const float *factors, *bias;
    int n_tokens, n_out, adds;
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

// A thread's sums: pairs of columns, eight apart, of two rows eight apart. The previous values are read for many pairs
// at once before any result is written: the compiler must assume that a write could change the next read.
template <int N>
__device__ __forceinline__ void store(const float (&sums)[N / 2], const Result& r, int token0, int out0) {
    const int lane = threadIdx.x & 31, column0 = out0 + lane % 4 * 2;
    const bool whole = ((u64)r.out % 8 | r.step % 2) == 0 && out0 + N <= r.n_out;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int token = token0 + threadIdx.x / 32 * 16 + 8 * i + lane / 4;
        if (token >= r.n_tokens) continue;
        const float factor = r.factors ? __ldg(r.factors + token) : 1.f;
        float* row = r.out + token * r.step + column0;
        const float* bias = r.bias + column0;
        if (whole) {
#pragma unroll
            for (int first = 0; first < N / 8; first += 8) {
                float2 before[8];
                if (r.adds) {
#pragma unroll
                    for (int j = 0; j < 8; j++) before[j] = *(const float2*)(row + 8 * (first + j));
                }
#pragma unroll
                for (int j = 0; j < 8; j++) {
                    const float* pair = sums + 4 * (first + j) + 2 * i;
                    float2 v = make_float2(pair[0] * factor, pair[1] * factor);
                    if (r.bias) {
                        v.x += __ldg(bias + 8 * (first + j));
                        v.y += __ldg(bias + 8 * (first + j) + 1);
                    }
                    if (r.adds) {
                        v.x = before[j].x + v.x;
                        v.y = before[j].y + v.y;
                    }
                    *(float2*)(row + 8 * (first + j)) = v;
                }
            }
        } else {
#pragma unroll
            for (int j = 0; j < N / 4; j++) {
                const int column = j / 2 * 8 + j % 2;
                if (column0 + column >= r.n_out) continue;
                float value = sums[j / 2 * 4 + 2 * i + j % 2] * factor;
                if (r.bias) value += __ldg(bias + column);
                row[column] = r.adds ? row[column] + value : value;
            }
        }
    }
}

template <bool COLUMNS, int N>
__device__ __forceinline__ void multiply(const TensorMap* x, const TensorMap* w, const Result& result, int depth,
                                         int stages) {
    constexpr int STAGE_BYTES = (2 + N / BOX) * BOX_BYTES;
    extern __shared__ __align__(1024) u8 pieces[];
    const u32 start = shared_address(pieces);
    const u32 full = start + stages * STAGE_BYTES, empty = full + 8 * stages;
    const int warp = threadIdx.x / 32, lane = threadIdx.x & 31;
    const int token0 = blockIdx.x * 2 * BOX, out0 = blockIdx.y * N, n_pieces = (depth + BOX - 1) / BOX;
    const Cluster cluster;

    if (threadIdx.x == 0) {
        for (int i = 0; i < stages; i++) {
            make_barrier(full + 8 * i, 1);
            make_barrier(empty + 8 * i, WORKERS / 32 * (cluster.width + cluster.height - 1));
        }
        publish_barriers();
    }
    __syncthreads();
    if (cluster.size() > 1) {
        cluster_arrive();
        cluster_wait();
    }

    Turn turn;
    if (warp == WORKERS / 32) {
        if (lane == 0)
            for (int piece = 0; piece < n_pieces; piece++, turn.next(stages)) {
                const u32 at = start + turn.stage * STAGE_BYTES, barrier = full + 8 * turn.stage;
                await(empty + 8 * turn.stage, turn.phase ^ 1);
                arrive_expecting(barrier, STAGE_BYTES);
#pragma unroll
                for (int i = 0; i < 2; i++)
                    if (i % cluster.height == cluster.y)
                        copy_box(at + i * BOX_BYTES, x, BOX * piece, token0 + BOX * i, barrier, cluster.column(),
                                 cluster.height > 1);
#pragma unroll
                for (int i = 0; i < N / BOX; i++)
                    if (i % cluster.width == cluster.x)
                        copy_box(at + (2 + i) * BOX_BYTES, w, COLUMNS ? out0 + BOX * i : BOX * piece,
                                 COLUMNS ? BOX * piece : out0 + BOX * i, barrier, cluster.row(), cluster.width > 1);
            }
        __syncwarp();
        if (cluster.size() > 1) {
            cluster_arrive();
            cluster_wait();
        }
        return;
    }

    // A writer into this block's memory must know that a stage is free: the blocks of its row and column.
    const bool tells = lane < cluster.size() && (lane % cluster.width == cluster.x || lane / cluster.width == cluster.y);
    const auto release = [&](int stage) {
        if (!tells) return;
        if (cluster.size() == 1) arrive(empty + 8 * stage);
        else arrive_at(empty + 8 * stage, lane);
    };
    const int half = warp / 4;
    const bool works = token0 + BOX * half < result.n_tokens && out0 < result.n_out;
    if (works) {
        float sums[N / 2];
#pragma unroll
        for (int i = 0; i < N / 2; i++) sums[i] = 0.f;
        int before = 0;
        for (int piece = 0; piece < n_pieces; piece++) {
            await(full + 8 * turn.stage, turn.phase);
            const u32 at = start + turn.stage * STAGE_BYTES;
            const u64 a = matrix_at(at + half * BOX_BYTES), b = matrix_at(at + 2 * BOX_BYTES);
            begin_products();
#pragma unroll
            for (int k = 0; k < BOX / 16; k++) multiply_group<COLUMNS>(sums, a + 2 * k, b + (COLUMNS ? 128 : 2) * k);
            end_products();
            await_products<1>();
            if (piece) release(before);
            before = turn.stage;
            turn.next(stages);
        }
        await_products<0>();
        if (cluster.size() > 1) cluster_arrive();
        store<N>(sums, result, token0, out0);
    } else {
        for (int piece = 0; piece < n_pieces; piece++, turn.next(stages)) {
            await(full + 8 * turn.stage, turn.phase);
            __syncwarp();
            release(turn.stage);
        }
        if (cluster.size() > 1) cluster_arrive();
    }
    if (cluster.size() > 1) cluster_wait();
}

#define MULTIPLY(COLUMNS, N)                                                                                         \
    const Result result = {blockIdx.z ? other_out : out, out_step, factors, blockIdx.z ? other_bias : bias, n_tokens, \
                           n_out, adds};                                                                             \
    multiply<COLUMNS, N>(&x, blockIdx.z ? &other_w : &w, result, depth, stages)

#else
#define MULTIPLY(COLUMNS, N)
#endif

#define PARAMETERS                                                                                                 \
    const __grid_constant__ TensorMap x, const __grid_constant__ TensorMap w,                                      \
        const __grid_constant__ TensorMap other_w, float *out, u64 out_step, const float *factors, const float *bias, \
        int n_tokens, int n_out, int depth, int adds, float *other_out, const float *other_bias, int stages

// 512: limits the registers to 128, so that a block which gathers (gather.cu) fits beside one.
KERNEL __launch_bounds__(288, 2) multiply_rows_64(PARAMETERS) { WAIT; MULTIPLY(false, 64); }
KERNEL __launch_bounds__(288, 2) multiply_rows_128(PARAMETERS) { WAIT; MULTIPLY(false, 128); }
KERNEL __launch_bounds__(512, 1) multiply_rows_192(PARAMETERS) { WAIT; MULTIPLY(false, 192); }
KERNEL __launch_bounds__(288, 2) multiply_columns_64(PARAMETERS) { WAIT; MULTIPLY(true, 64); }
KERNEL __launch_bounds__(288, 2) multiply_columns_128(PARAMETERS) { WAIT; MULTIPLY(true, 128); }
KERNEL __launch_bounds__(512, 1) multiply_columns_192(PARAMETERS) { WAIT; MULTIPLY(true, 192); }
