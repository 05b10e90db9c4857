// How a block of `attend` reads a cache of f32: a row of keys by a team of lanes, 8 numbers per lane, with float units.
// Every team is a party. Included by attention.cu.
#pragma once

#define PIECES (ROW_DIM / 8)
#define LANES (PIECES > 16 ? 32 : PIECES > 8 ? 16 : PIECES > 4 ? 8 : PIECES > 2 ? 4 : PIECES)
#define PARTIES (THREADS / LANES)
#define ROWS 2                     // that a team has in flight at a time
#define STEP (PARTIES * ROWS)      // positions that a block reads at a time
#define BLOCKS (HEADS > 4 ? 2 : 3) // on a multiprocessor at the same time

// Results of the parties: highest scores (in powers of 2), sums of weights, weighted values.
struct Found {
    float top[PARTIES][HEADS], sum[PARTIES][HEADS];
    __align__(16) float mixed[PARTIES][HEADS][ROW_DIM];
};

// The same of one team: its lane's eight dimensions.
struct Mine {
    float top[HEADS], sum[HEADS], mixed[HEADS][8];
};

// Eight numbers of a row, 0 beyond its end.
DEVICE void load_piece(const u8* cache, u64 row, int lane, float (&out)[8]) {
#if HEAD_DIM % 8
    const float* at = (const float*)cache + row * HEAD_DIM;
#pragma unroll
    for (int j = 0; j < 8; j++) out[j] = 8 * lane + j < HEAD_DIM ? __ldg(at + 8 * lane + j) : 0.f;
#else
    const float4* at = (const float4*)cache + row * (HEAD_DIM / 4) + 2 * lane;
    const float4 none = make_float4(0.f, 0.f, 0.f, 0.f);
    const float4 a = lane < PIECES ? __ldg(at) : none, b = lane < PIECES ? __ldg(at + 1) : none;
    out[0] = a.x; out[1] = a.y; out[2] = a.z; out[3] = a.w;
    out[4] = b.x; out[5] = b.y; out[6] = b.z; out[7] = b.w;
#endif
}

// Scores of ROWS rows of keys, of which the first `valid` exist; the same in every lane of the team.
DEVICE void score(const float (*keys)[8], const float (*q)[8], int valid, float cap, float (*scores)[ROWS]) {
#pragma unroll
    for (int h = 0; h < HEADS; h++)
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            float s = 0.f;
#pragma unroll
            for (int j = 0; j < 8; j++) s = fmaf(q[h][j], keys[r][j], s);
#pragma unroll
            for (int o = LANES / 2; o; o >>= 1) s += __shfl_xor_sync(FULL_WARP, s, o);
            if (cap > 0.f) s = cap * tanhf(s);
            scores[h][r] = r < valid ? s : __int_as_float(0xff800000);
        }
}

DEVICE void mix(const float (*values)[8], float (*scores)[ROWS], Mine& mine) {
#pragma unroll
    for (int h = 0; h < HEADS; h++) {
        float top = mine.top[h];
#pragma unroll
        for (int r = 0; r < ROWS; r++) top = fmaxf(top, scores[h][r]);
        const float fade = exp2f(mine.top[h] - top);
        mine.top[h] = top;
        mine.sum[h] *= fade;
#pragma unroll
        for (int j = 0; j < 8; j++) mine.mixed[h][j] *= fade;
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            const float weight = exp2f(scores[h][r] - top);
            mine.sum[h] += weight;
#pragma unroll
            for (int j = 0; j < 8; j++) mine.mixed[h][j] = fmaf(weight, values[r][j], mine.mixed[h][j]);
        }
    }
}

DEVICE void leave(const Mine& mine, int team, int lane, Found& found) {
#pragma unroll
    for (int h = 0; h < HEADS; h++) {
        if (lane == 0) {
            found.top[team][h] = mine.top[h];
            found.sum[team][h] = mine.sum[h];
        }
        if (lane < PIECES) {
            const float* v = mine.mixed[h];
            float4* at = (float4*)&found.mixed[team][h][8 * lane];
            at[0] = make_float4(v[0], v[1], v[2], v[3]);
            at[1] = make_float4(v[4], v[5], v[6], v[7]);
        }
    }
}

DEVICE void find(const Task& task, Found& found) {
    const int team = threadIdx.x / LANES, lane = threadIdx.x % LANES;
    float k[ROWS][8], v[ROWS][8], q[HEADS][8];
    Mine mine;
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        const u64 row = task.rows + min(task.first + r * PARTIES + team, task.end - 1);
        load_piece(task.keys, row, lane, k[r]);
        load_piece(task.values, row, lane, v[r]);
    }
#pragma unroll
    for (int h = 0; h < HEADS; h++) {
        load_piece((const u8*)task.q, min(h, task.n_heads - 1), lane, q[h]);
        mine.top[h] = NOTHING;
        mine.sum[h] = 0.f;
#pragma unroll
        for (int j = 0; j < 8; j++) {
            q[h][j] *= task.scale;
            mine.mixed[h][j] = 0.f;
        }
    }
    for (int base = task.first; base < task.end; base += STEP) {
        float scores[HEADS][ROWS];
        const bool more = base + STEP < task.end;
        const int left = task.end - base - team;  // rows of this team that exist: every PARTIES-th
        score(k, q, left > 0 ? (left + PARTIES - 1) / PARTIES : 0, task.cap, scores);
#pragma unroll
        for (int r = 0; r < ROWS; r++)
            if (more) load_piece(task.keys, task.rows + min(base + STEP + r * PARTIES + team, task.end - 1), lane, k[r]);
        mix(v, scores, mine);
#pragma unroll
        for (int r = 0; r < ROWS; r++)
            if (more)
                load_piece(task.values, task.rows + min(base + STEP + r * PARTIES + team, task.end - 1), lane, v[r]);
    }
    leave(mine, team, lane, found);
}
