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

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

// Begin to copy KEYS halved positions from `place` on into boxes of 64 columns; zeros from `count` positions on and beyond
// dim. 128 threads.
template <int DIM, int KEYS>
__device__ __forceinline__ void bring_halves(u32 at, const u8* numbers, u64 place, int count, int dim) {
    constexpr int CHUNKS = DIM / 8, ROWS = 128 / CHUNKS;
    const int thread = threadIdx.x % 128, chunk = thread % CHUNKS, row = thread / CHUNKS;
    const int left = 8 * chunk < dim ? count - row : 0;
    const u16* from = (const u16*)numbers + (place + row) * dim + 8 * chunk;
    at += chunk / 8 * (KEYS * 128);
#pragma unroll
    for (int i = 0; i < KEYS / ROWS; i++)
        copy_16(at + narrow_place(row + ROWS * i, chunk % 8), from + (u64)(ROWS * i) * dim, ROWS * i < left ? 16 : 0);
}

// The part of a tile of bytes that a warp copies and converts: KEYS / 4 rows, sixteen numbers a lane at a time.
template <int DIM, int KEYS>
struct Share {
    static constexpr int CHUNKS = DIM / 16, ROWS = 32 / CHUNKS, EACH = KEYS / 4 / ROWS, SCALES = KEYS * DIM;
    static constexpr u32 BYTES = SCALES + SCALES / 16;  // of a tile as it is stored, its scales at the end
    const int lane = threadIdx.x & 31, row0 = threadIdx.x / 32 % 4 * (KEYS / 4);
    const int chunk = lane % CHUNKS, row = row0 + lane / CHUNKS;

    // Begin to copy it as it is stored; zeros as above.
    __device__ __forceinline__ void bring(u32 at, const Kept& k, u64 place, int count, int dim) const {
        const u8* from = k.numbers + (place + row) * dim + 16 * chunk;
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            const u32 to = at + (row + ROWS * i) * DIM + 16 * chunk;
            const int n = row + ROWS * i < count ? min(max(dim - 16 * chunk, 0), 16) : 0;
            const u8* own = from + (u64)(ROWS * i) * dim;
            if (dim % 16) {
                copy_small<8>(to, own, min(n, 8));
                copy_small<8>(to + 8, own + 8, n - min(n, 8));
            } else {
                copy_16(to, (const u16*)own, n);
            }
        }
        const int own = row0 + lane, groups = (dim + 31) / 32;
        if (lane >= KEYS / 4) return;
        const u8* scales = k.scales + 2 * (place + own) * groups;
        at += SCALES + own * (DIM / 16);
#pragma unroll
        for (int i = 0; i < DIM / 64; i++, at += 4, scales += 4) {
            const bool low = own < count && 2 * i < groups, high = own < count && 2 * i + 1 < groups;
            if (groups % 2 == 0)
                copy_small<4>(at, scales, low ? 4 : 0);
            else
                asm volatile("st.shared.v2.u16 [%0],{%1,%2};" ::"r"(at), "h"(low ? *(const u16*)scales : (u16)0),
                             "h"(high ? *(const u16*)(scales + 2) : (u16)0) : "memory");
        }
    }

    // Convert what was copied to halves in boxes of 64 columns.
    __device__ __forceinline__ void convert(u8* to, const u8* from) const {
        const int swap = chunk >> 2 & 1;  // so that eight lanes store to different banks
        to += chunk / 4 * (KEYS * 128);
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            const int at = row + ROWS * i;
            const uint4 all = *(const uint4*)(from + at * DIM + 16 * chunk);
            const u32 scale = *(const u16*)(from + SCALES + at * (DIM / 16) + chunk / 2 * 2);
            const uint4 one = make_uint4(swap ? all.z : all.x, swap ? all.w : all.y, scale, 0);
            const uint4 other = make_uint4(swap ? all.x : all.z, swap ? all.y : all.w, scale, 0);
            *(uint4*)(to + narrow_place(at, (2 * chunk + swap) % 8)) = as_halves(one, 2);
            *(uint4*)(to + narrow_place(at, (2 * chunk + 1 - swap) % 8)) = as_halves(other, 2);
        }
    }
};

template <int DIM, int KEYS>
__device__ __forceinline__ void attend(const float* q, u64 q_step, float* out, u64 out_step, const Kept keys,
                                       const Kept values, int codec, int dim, int n_tokens, int start, int group,
                                       int capacity, float scale, float softcap, int window, const float* sinks) {
    constexpr u32 BOX = KEYS * 128, TILE = DIM / 64 * BOX, OWN = 64 * DIM * 2;  // bytes; OWN: queries of a warpgroup
    constexpr int PART = DIM % 128 ? 64 : 128;                                  // numbers of values per product
    constexpr int N_STAGES = DIM == 256 ? 5 : 6;  // of the ring, each a tile of keys or of values
    constexpr int BEHIND = N_STAGES / 2;  // copies in flight after the next was begun
    extern __shared__ __align__(1024) u8 room[];  // queries, ring, barriers
    const u32 start_at = shared_address(room), full = start_at + 2 * OWN + N_STAGES * TILE, empty = full + 8 * N_STAGES;
    const int lane = threadIdx.x & 31, warp = threadIdx.x / 32 % 4, third = threadIdx.x / 128;
    const int linear = blockIdx.x + gridDim.x * blockIdx.y, head = linear % gridDim.y;
    const int query0 = (gridDim.x - 1 - linear / gridDim.y) * QUERIES;  // the longest first
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
    // Of bytes, tiles as they are stored lie in the room of the last two stages.
    const int stages = codec == 1 ? N_STAGES : N_STAGES - 2;
    if (third == 2) {  // keys of tile 0, then of each next one with the values before it, at last the last values
        asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(DIM == 256 ? 72 : 56));
        const auto show = [&](int behind) {
            const int stage = turn.stage - behind;
            show_stores();
            __syncwarp();
            if (lane == 0) arrive(full + 8 * (stage < 0 ? stage + stages : stage));
        };
        const auto is_keys = [&](int i) { return i == 0 || (i % 2 && i < 2 * n_tiles - 1); };
        const auto tile_of = [&](int i) { return is_keys(i) ? (i + 1) / 2 : (i - 1) / 2; };
        if (codec == 1) {
            for (int i = 0; i < 2 * n_tiles; i++, turn.next(stages)) {
                const int key = first + tile_of(i) * KEYS;
                await(empty + 8 * turn.stage, turn.phase ^ 1);
                bring_halves<DIM, KEYS>(start_at + 2 * OWN + turn.stage * TILE, is_keys(i) ? keys.numbers : values.numbers,
                                        base + key, last + 1 - key, dim);
                end_group();
                if (i < BEHIND) continue;
                await_groups<BEHIND>();
                show(BEHIND);
            }
            await_groups<0>();
            for (int i = min(BEHIND, 2 * n_tiles); i; i--) show(i);
            return;
        }
        const Share<DIM, KEYS> share;
        const u32 stored = 2 * OWN + stages * TILE;
        u32 next = 0, now = 0;
        const auto bring = [&](int i) {
            const int key = first + tile_of(i) * KEYS;
            const Kept from = {is_keys(i) ? keys.numbers : values.numbers, is_keys(i) ? keys.scales : values.scales};
            if (i < 2 * n_tiles) share.bring(start_at + stored + next, from, base + key, last + 1 - key, dim);
            end_group();
            next = next == 2 * share.BYTES ? 0 : next + share.BYTES;
        };
        bring(0);
        bring(1);
        for (int i = 0; i < 2 * n_tiles; i++, turn.next(stages)) {
            bring(i + 2);
            await_groups<2>();
            __syncwarp();
            await(empty + 8 * turn.stage, turn.phase ^ 1);
            share.convert(room + 2 * OWN + turn.stage * TILE, room + stored + now);
            show(0);
            now = now == 2 * share.BYTES ? 0 : now + share.BYTES;
        }
        return;
    }

    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(DIM == 256 ? 216 : 224));
    const int row = 16 * warp + lane / 4, own = query0 + 64 * third + row;
    float back[2];
    float2 pairs[2][DIM / 8];
    const auto load = [&](int half) {
        const float* from = q + min(own + 8 * half, n_tokens - 1) * q_step + head * dim + 2 * (lane & 3);
#pragma unroll
        for (int i = 0; i < DIM / 8; i++)
            pairs[half][i] = 8 * i < dim ? *(const float2*)(from + 8 * i) : make_float2(0.f, 0.f);
    };
    load(0);
    if (DIM < 256) load(1);  // otherwise both need too many registers
#pragma unroll
    for (int half = 0; half < 2; half++) {
        if (DIM == 256 && half) load(1);
        float most = 0.f;
#pragma unroll
        for (int i = 0; i < DIM / 8; i++) most = fmaxf(most, fmaxf(fabsf(pairs[half][i].x), fabsf(pairs[half][i].y)));
        const float factor = rounding_factor(row_largest(most), back[half]);
#pragma unroll
        for (int i = 0; i < DIM / 8; i++)
            *(u32*)(room + third * OWN + i / 8 * 8192 + narrow_place(row + 8 * half, i % 8) + lane % 4 * 4) =
                two_halves(pairs[half][i].x * factor, pairs[half][i].y * factor);
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
        turn.next(stages);
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
        turn.next(stages);
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
        if (__any_sync(0xffffffffu, shrink[0] != 1.f || shrink[1] != 1.f))
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
        const float share = 1.f / row_sum(total[half]);
        if (query >= n_tokens) continue;
        float* to = out + query * out_step + head * dim + 2 * (lane & 3);
#pragma unroll
        for (int i = 0; i < DIM / 8; i++)
            if (8 * i < dim) {
                const float* pair = &sums[i / (PART / 8)][i % (PART / 8) * 4 + 2 * half];
                *(float2*)(to + 8 * i) = make_float2(pair[0] * share, pair[1] * share);
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
