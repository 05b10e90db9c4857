// Attention of one position over a layer's keys and values. Each block takes some positions for the query heads that
// share a head of keys, so that keys are read once; a second kernel merges the blocks' results. Several sequences, each
// with one position of its own, run side by side: their keys and values begin `slot` positions apart.
//
// Compiled for one kind of cache: HEAD_DIM (at most 576; multiples of 8 are fast), VALUE_DIM (how many numbers of a row
// of values count), HEADS (query heads per block, at most 8) and CODEC (bytes per stored number: 4 f32, 2 f16, 1 bytes
// with a scale for every 32).
//
// Every party of a block, a warp or a team of its lanes, keeps its own highest score, sum and weighted values for each
// head. They are merged at the end, party by party and split by split, always in the same order. If heads are wide, a
// block of tensor cores is one party.
#include "vectors.cuh"

#ifndef HEAD_DIM
#define HEAD_DIM 128
#endif
#ifndef VALUE_DIM
#define VALUE_DIM HEAD_DIM
#endif
#ifndef HEADS
#define HEADS 8
#endif
#ifndef CODEC
#define CODEC 2
#endif

#define THREADS 128
#define ROW_DIM ((VALUE_DIM + 7) / 8 * 8)  // of a block's results
#define WIDE (HEAD_DIM > 256)
#define NOTHING (-1e30f)   // below every score, but finite: infinity minus itself is NaN
#define BEHIND (1 << 30)   // beyond every vector's end, a multiple of 4
#define MERGERS 8

// A block's task: q [n_heads, HEAD_DIM], the positions first to end - 1 of one head of keys, whose rows begin at number
// `rows` of the caches. scale and cap as in `attend`.
struct Task {
    const float* q;
    const u8 *keys, *values;
    const u16 *key_scales, *value_scales;
    u64 rows;
    int n_heads, first, end;
    float scale, cap;
};

#if CODEC == 4
#include "attention_teams.cuh"
#else
#include "attention_tiles.cuh"
#endif

// The visible positions, and how many of them a split takes. window: the last so many positions are visible; negative:
// positions are in chunks of so many, and those of the latest chunk are.
struct Span {
    int first, end, chunk;
};

DEVICE Span span_of(const int* state, int capacity, int window, int n_splits) {
    Span s;
    s.end = min(state[0] + 1, capacity);
    s.first = window < 0 ? (s.end - 1) / -window * -window : max(0, s.end - window);
    const int each = (s.end - s.first + n_splits - 1) / n_splits;
    s.chunk = (each + STEP - 1) / STEP * STEP;
    return s;
}

// Merge the results of a block's parties into parts [HEADS][n_splits][ROW_DIM] and tops [HEADS][n_splits].
DEVICE void put_together(const Found& found, int n_heads, float* parts, float2* tops, int n_splits) {
    for (int i = threadIdx.x; i < n_heads * ROW_DIM / 4; i += THREADS) {
        const int h = i / (ROW_DIM / 4), d = 4 * (i % (ROW_DIM / 4));
        float most = NOTHING, weights = 0.f;
        float4 v = make_float4(0.f, 0.f, 0.f, 0.f);
#pragma unroll 8
        for (int p = 0; p < PARTIES; p++) most = fmaxf(most, found.top[p][h]);
#pragma unroll 4
        for (int p = 0; p < PARTIES; p++) {
            const float by = exp2f(found.top[p][h] - most);
            const float4 one = *(const float4*)&found.mixed[p][h][d];
            weights = fmaf(by, found.sum[p][h], weights);
            v = make_float4(fmaf(by, one.x, v.x), fmaf(by, one.y, v.y), fmaf(by, one.z, v.z), fmaf(by, one.w, v.w));
        }
        *(float4*)(parts + (u64)h * n_splits * ROW_DIM + d) = v;
        if (d == 0) tops[(u64)h * n_splits] = make_float2(most, weights);
    }
}

// Grid: splits, heads of keys, and for each sequence as many groups of HEADS query heads as a head of keys has.
// q [n_kv_heads * group, HEAD_DIM] of each sequence, q_step numbers apart; state: position of each sequence,
// contiguous; parts [T, H, n_splits, ROW_DIM], tops [T, H, n_splits]: highest score and sum of weights.
// scale: factor of the scores, in powers of 2, divided by cap if there is one; cap: in powers of 2, 0 for none.
// Splits that see no position write nothing, and `merge` does not read them.
KERNEL __launch_bounds__(128, BLOCKS) attend(
    const float* q, u64 q_step, int group, const u8* keys, const u8* values, const u16* key_scales,
    const u16* value_scales, const int* state, int slot, int capacity, int window, float scale, float cap, float* parts,
    float2* tops) {
    START_NEXT; WAIT;
    __shared__ Found found;
    const int split = blockIdx.x, n_splits = gridDim.x, tiles = (group + HEADS - 1) / HEADS;
    const int sequence = blockIdx.z / tiles, tile = blockIdx.z % tiles;
    const Span span = span_of(state + sequence, capacity, window, n_splits);
    const int first = span.first + split * span.chunk, end = min(span.end, first + span.chunk);
    if (first >= end) return;
    const int n_heads = min(HEADS, group - tile * HEADS), head = blockIdx.y * group + tile * HEADS;
    find({q + sequence * q_step + (u64)head * HEAD_DIM, keys, values, key_scales, value_scales,
          (u64)blockIdx.y * capacity + (u64)sequence * slot, n_heads, first, end, scale, cap}, found);
    __syncthreads();
    const u64 place = ((u64)sequence * gridDim.y * group + head) * n_splits + split;
    put_together(found, n_heads, parts + place * ROW_DIM, tops + place, n_splits);
}

// Merge the splits into to [n_heads * VALUE_DIM] of each sequence, to_step numbers apart, and its 8-bit form if bytes
// are given (for one sequence). sinks [n_heads]: an extra score per head, without a value; 0: none. Blocks of 32 columns x MERGERS rows that share the splits; grid: y sequences.
KERNEL __launch_bounds__(256) merge(const float* parts, const float2* tops, int n, int n_splits, const int* state,
                                    int capacity, int window, const float* sinks, float* to, u64 to_step, u8* bytes,
                                    float2* scales) {
    START_NEXT; WAIT;
    __shared__ float highest[MERGERS][32], sums[MERGERS][32], mixed[MERGERS][32];
    const int lane = threadIdx.x, row = threadIdx.y, column = min(blockIdx.x * 32 + lane, n - 1);
    const u64 head = (u64)blockIdx.y * (n / VALUE_DIM) + column / VALUE_DIM;
    const Span span = span_of(state + blockIdx.y, capacity, window, n_splits);
    const int used = (span.end - span.first + span.chunk - 1) / span.chunk;
    const float2* my_tops = tops + head * n_splits;
    const float* my_parts = parts + head * n_splits * ROW_DIM + column % VALUE_DIM;
    float top = NOTHING, sum = 0.f, v = 0.f;
#pragma unroll 4
    for (int s = row; s < used; s += MERGERS) {
        const float2 one = my_tops[s];
        const float found = my_parts[(u64)s * ROW_DIM], higher = fmaxf(top, one.x);
        const float fade = exp2f(top - higher), by = exp2f(one.x - higher);
        top = higher;
        sum = fmaf(by, one.y, sum * fade);
        v = fmaf(by, found, v * fade);
    }
    highest[row][lane] = top;
    sums[row][lane] = sum;
    mixed[row][lane] = v;
    __syncthreads();
    if (row) return;
    for (int r = 1; r < MERGERS; r++) top = fmaxf(top, highest[r][lane]);
    sum = v = 0.f;
    for (int r = 0; r < MERGERS; r++) {
        const float by = exp2f(highest[r][lane] - top);
        sum = fmaf(by, sums[r][lane], sum);
        v = fmaf(by, mixed[r][lane], v);
    }
    if (sinks) {
        const float sink = __ldg(sinks + column / VALUE_DIM) * 1.44269504f, higher = fmaxf(top, sink);
        const float fade = exp2f(top - higher);
        sum = fmaf(sum, fade, exp2f(sink - higher));
        v *= fade;
    }
    v = __fdiv_rn(v, sum);
    const bool there = (int)blockIdx.x * 32 + lane < n;
    if (there) to[blockIdx.y * to_step + column] = v;
    if (!bytes) return;
    float four[4];  // the first eight lanes hold the 32 numbers
#pragma unroll
    for (int j = 0; j < 4; j++) four[j] = __shfl_sync(FULL_WARP, there ? v : 0.f, 4 * (lane % 8) + j);
    round_four({to, to, bytes, scales, n}, lane < 8 ? blockIdx.x * 32 + 4 * lane : BEHIND, four);
}
