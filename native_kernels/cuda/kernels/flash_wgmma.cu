// Attention of many positions at once for compute capability 9.0: as flash_half.cu, by warpgroups out of shared memory.
//
// A block takes 128 queries of one head, 64 per warpgroup, and goes over their visible keys 128 (of heads above 128: 64)
// at a time. A third warpgroup loads tiles of keys and values into a ring, ahead of the others. While the tensor cores
// multiply the weights of a tile by its values, a warpgroup weighs the scores of the next one. dim: a multiple of 8 up to
// the number in the kernel's name. Shared memory: _wgmma_bytes of prefill_ops.py. grid: x queries by 128, y heads.
#include "flash_halves.cuh"
#include "async_copies.cuh"
#include "wgmma.cuh"

#define QUERIES 128
#define STAGES(DIM) (DIM == 256 ? 5 : 6)  // of the ring, each a tile of keys or of values

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

// Copy KEYS positions from `place` on into boxes of 64 columns; zeros from `count` positions on and beyond dim. 128 threads.
template <int DIM, int KEYS>
__device__ __forceinline__ void bring(u8* room, u32 at, const Kept& k, int codec, u64 place, int count, int dim) {
    constexpr int CHUNKS = DIM / 8, ROWS = 128 / CHUNKS, EACH = KEYS / ROWS;
    constexpr int AHEAD = 4;  // bytes of more positions in flight would spill registers
    const int thread = threadIdx.x % 128, chunk = thread % CHUNKS, row = thread / CHUNKS;
    const int left = 8 * chunk < dim ? count - row : 0;
    place += row;
    at += chunk / 8 * (KEYS * 128);
    if (codec == 1) {
        const u16* from = (const u16*)k.numbers + place * dim + 8 * chunk;
#pragma unroll
        for (int i = 0; i < EACH; i++)
            copy_16(at + narrow_place(row + ROWS * i, chunk % 8), from + (u64)(ROWS * i) * dim,
                    ROWS * i < left ? 16 : 0);
    } else {
        const Kept from = {k.numbers + place * dim + 8 * chunk, k.scales + 2 * (place * ((dim + 31) / 32) + chunk / 4)};
        uint4 some[AHEAD];
#pragma unroll
        for (int i = -AHEAD; i < EACH; i++) {
            uint4& one = some[(i + AHEAD) % AHEAD];
            if (i >= 0) *(uint4*)(room + at + narrow_place(row + ROWS * i, chunk % 8)) = as_halves(one, 2);
            if (i + AHEAD < EACH)
                one = ROWS * (i + AHEAD) < left ? eight_stored(from, 2, ROWS * (i + AHEAD), dim, 0)
                                                : make_uint4(0, 0, 0, 0);
        }
    }
}

template <int DIM, int KEYS>
__device__ __forceinline__ void attend(const float* q, u64 q_step, float* out, u64 out_step, const Kept keys,
                                       const Kept values, int codec, int dim, int n_tokens, int start, int group,
                                       int capacity, float scale, float softcap, int window, const float* sinks) {
    constexpr u32 BOX = KEYS * 128, TILE = DIM / 64 * BOX, OWN = 64 * DIM * 2;  // bytes; OWN: queries of a warpgroup
    constexpr int PART = DIM % 128 ? 64 : 128;                                  // numbers of values per product
    constexpr int N_STAGES = STAGES(DIM), BEHIND = N_STAGES / 2;  // BEHIND: copies in flight after the next was begun
    extern __shared__ __align__(1024) u8 room[];  // queries, ring, barriers
    const u32 start_at = shared_address(room), full = start_at + 2 * OWN + N_STAGES * TILE, empty = full + 8 * N_STAGES;
    const int lane = threadIdx.x & 31, warp = threadIdx.x / 32 % 4, head = blockIdx.y, third = threadIdx.x / 128;
    const int query0 = (gridDim.x - 1 - blockIdx.x) * QUERIES;  // the longest first
    const u64 base = (u64)(head / group) * capacity;
    const int last = start + min(query0 + QUERIES, n_tokens) - 1;
    const int first = window > 0 ? max(0, start + query0 - window + 1) : -window;
    const int n_tiles = (last - first) / KEYS + 1;
    if (threadIdx.x == 0)
        for (int i = 0; i < N_STAGES; i++) {
            make_barrier(full + 8 * i, 4);
            make_barrier(empty + 8 * i, 8);
        }
    __syncthreads();

    Turn turn;
    if (third == 2) {  // keys of tile 0, then of each next one with the values before it, at last the last values
        asm volatile("setmaxnreg.dec.sync.aligned.u32 56;");
        const auto show = [&](int behind) {
            const int stage = turn.stage - behind;
            show_stores();
            __syncwarp();
            if (lane == 0) arrive(full + 8 * (stage < 0 ? stage + N_STAGES : stage));
        };
        for (int i = 0; i < 2 * n_tiles; i++, turn.next(N_STAGES)) {
            const bool of_keys = i == 0 || (i % 2 && i < 2 * n_tiles - 1);
            const int tile = of_keys ? (i + 1) / 2 : (i - 1) / 2;
            const Kept from = {of_keys ? keys.numbers : values.numbers, of_keys ? keys.scales : values.scales};
            await(empty + 8 * turn.stage, turn.phase ^ 1);
            bring<DIM, KEYS>(room, 2 * OWN + turn.stage * TILE + (codec == 1 ? start_at : 0), from, codec,
                             base + first + tile * KEYS, last - first + 1 - tile * KEYS, dim);
            end_group();
            if (i < BEHIND) continue;
            await_groups<BEHIND>();
            show(BEHIND);
        }
        await_groups<0>();
        for (int i = min(BEHIND, 2 * n_tiles); i; i--) show(i);
        return;
    }

    asm volatile("setmaxnreg.inc.sync.aligned.u32 224;");
    const int row = 16 * warp + lane / 4, own = query0 + 64 * third + row;
    float back[2];
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const float* from = q + min(own + 8 * half, n_tokens - 1) * q_step + head * dim + 2 * (lane & 3);
        float most = 0.f;
#pragma unroll
        for (int i = 0; i < DIM / 8; i++)
            if (8 * i < dim) most = fmaxf(most, fmaxf(fabsf(from[8 * i]), fabsf(from[8 * i + 1])));
        const float factor = rounding_factor(row_largest(most), back[half]);
#pragma unroll
        for (int i = 0; i < DIM / 8; i++)
            *(u32*)(room + third * OWN + i / 8 * 8192 + narrow_place(row + 8 * half, i % 8) + lane % 4 * 4) =
                8 * i < dim ? two_halves(from[8 * i] * factor, from[8 * i + 1] * factor) : 0;
        back[half] *= softcap > 0.f ? scale : LOG2_E * scale;
    }
    show_stores();
    asm volatile("bar.sync 1,256;" ::: "memory");

    const float sink = sinks ? LOG2_E * __ldg(sinks + head) : NO_SCORE, of_sink = sinks && lane % 4 == 0 ? 1.f : 0.f;
    float largest[2] = {sink, sink}, total[2] = {of_sink, of_sink}, shrink[2];
    float scores[KEYS / 8][4], sums[DIM / PART][PART / 2];
    float(&flat)[KEYS / 2] = *(float(*)[KEYS / 2]) & scores;
    u32 weights[KEYS / 16][4];
#pragma unroll
    for (int i = 0; i < DIM / 2; i++) sums[i / (PART / 2)][i % (PART / 2)] = 0.f;

    const auto multiply_keys = [&] {
        const u64 a = matrix_at(start_at + third * OWN), b = matrix_at(start_at + 2 * OWN + turn.stage * TILE);
        await(full + 8 * turn.stage, turn.phase);
        begin_products();
#pragma unroll
        for (int k = 0; k < DIM / 16; k++)
            multiply_group<false>(flat, a + k / 4 * (8192 / 16) + k % 4 * 2, b + k / 4 * (BOX / 16) + k % 4 * 2, k > 0);
        end_products();
        turn.next(N_STAGES);
    };
    const auto multiply_values = [&] {
        const u64 b = matrix_at(start_at + 2 * OWN + turn.stage * TILE, BOX);
        await(full + 8 * turn.stage, turn.phase);
        begin_products();
#pragma unroll
        for (int k = 0; k < KEYS / 16; k++)
#pragma unroll
            for (int p = 0; p < DIM / PART; p++)
                multiply_group(sums[p], weights[k], b + p * (PART / 64) * (BOX / 16) + 128 * k);
        end_products();
        turn.next(N_STAGES);
    };
    const auto release = [&](int stage) {
        if (lane == 0) arrive(empty + 8 * stage);
    };
    const auto weigh_tile = [&](int key0) {
        // The same for the whole block: products in flight must not meet a branch that warps take apart.
        if (key0 + KEYS - 1 <= start + query0 && (window <= 0 || key0 > start + query0 + QUERIES - 1 - window))
            weigh<KEYS, true>(scores, key0, start + own, lane, back, softcap, window, largest, total, shrink);
        else
            weigh<KEYS, false>(scores, key0, start + own, lane, back, softcap, window, largest, total, shrink);
    };
    const auto pack_tile = [&] {
#pragma unroll
        for (int k = 0; k < KEYS / 16; k++) pack(scores[2 * k], scores[2 * k + 1], weights[k]);
    };

    multiply_keys();
    await_products<0>();
    pin(flat);
    release(0);
    weigh_tile(first);
    pack_tile();
    for (int tile = 1; tile < n_tiles; tile++) {
        const int of_keys = turn.stage;
        multiply_keys();
        const int of_values = turn.stage;
        multiply_values();
        await_products<1>();
        pin(flat);
        release(of_keys);
        weigh_tile(first + tile * KEYS);
        await_products<0>();
#pragma unroll
        for (int p = 0; p < DIM / PART; p++) pin(sums[p]);
        release(of_values);
#pragma unroll
        for (int i = 0; i < DIM / 2; i++) sums[i / (PART / 2)][i % (PART / 2)] *= shrink[i / 2 % 2];
        pack_tile();
    }
    multiply_values();
    await_products<0>();
#pragma unroll
    for (int p = 0; p < DIM / PART; p++) pin(sums[p]);
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int query = own + 8 * half;
        const float sum = row_sum(total[half]);
        if (query >= n_tokens) continue;
        float* to = out + query * out_step + head * dim + 2 * (lane & 3);
#pragma unroll
        for (int i = 0; i < DIM / 8; i++)
            if (8 * i < dim) {
                const float* pair = &sums[i / (PART / 8)][i % (PART / 8) * 4 + 2 * half];
                to[8 * i] = pair[0] / sum;
                to[8 * i + 1] = pair[1] / sum;
            }
    }
}

#define ATTEND(DIM, KEYS) attend<DIM, KEYS>(PASSED)
#else
#define ATTEND(DIM, KEYS)
#endif

KERNEL __launch_bounds__(384, 1) attend_wgmma_64(ARGUMENTS) { WAIT; ATTEND(64, 128); }
KERNEL __launch_bounds__(384, 1) attend_wgmma_128(ARGUMENTS) { WAIT; ATTEND(128, 128); }
KERNEL __launch_bounds__(384, 1) attend_wgmma_256(ARGUMENTS) { WAIT; ATTEND(256, 64); }
