// The router's choice: which experts a token uses, their weights, and the slots that hold them.
#include "weights.cuh"

#define MOST_OF_LANE 32  // experts per lane of the warp: 1024 in all

// choice: ids i32 [K], weights f32 [K + 1] (the last one the shared expert's), slots i32 [K], negative: not resident.
struct Choice {
    const float *scores, *shared_score;  // shared_score 0: the shared expert's weight is 1
    const float* bias;                   // by expert, added to the weights for the choice; 0: the scores choose
    const int* slot_of;                  // by expert
    int* ids;
    float* weights;
    int* slots;
    int n_experts, n_used;
    int sigmoid, adds_up;  // weights: the logistic function of the scores, else softmax over all; whether they sum to 1
    float factor;          // on the weights
};

DEVICE float logistic(float x) { return 0.5f + 0.5f * tanhf(0.5f * x); }

// Whether score a of expert i comes before score b of expert j: higher first, of equal ones the lower number, NaN last.
DEVICE bool before(float a, int i, float b, int j) {
    if (a > b || (b != b && a == a)) return true;
    return (a == b || (a != a && b != b)) && i < j;
}

// One warp per position, whose scores and choice follow the previous one's. Lane l has the experts l, l + 32 and so on.
KERNEL __launch_bounds__(32) choose(const Choice first) {
    const int lane = threadIdx.x, position = blockIdx.x;
    Choice job = first;
    job.scores += (u64)position * job.n_experts;
    if (job.shared_score) job.shared_score += position;
    job.ids += (u64)position * job.n_used;
    job.weights += (u64)position * (job.n_used + 1);
    if (job.slots) job.slots += (u64)position * job.n_used;
    float score[MOST_OF_LANE];
    float most = __int_as_float(0xff800000), total = 0.f, used = 0.f;
    u32 left = 0;
#pragma unroll
    for (int i = 0; i < MOST_OF_LANE; i++) {
        if (32 * i + lane >= job.n_experts) break;
        score[i] = job.scores[32 * i + lane];
        most = fmaxf(most, score[i]);
        left |= 1u << i;
    }
#pragma unroll
    for (int o = 16; o; o >>= 1) most = fmaxf(most, __shfl_xor_sync(FULL_WARP, most, o));
#pragma unroll
    for (int i = 0; i < MOST_OF_LANE; i++)
        if (left >> i & 1) total += expf(score[i] - most);
    total = warp_sum(total);
    if (job.bias) {
#pragma unroll
        for (int i = 0; i < MOST_OF_LANE; i++)
            if (left >> i & 1) {
                const float share = job.sigmoid ? logistic(score[i]) : expf(score[i] - most) / total;
                score[i] = share + job.bias[32 * i + lane];
            }
    }
    for (int k = 0; k < job.n_used; k++) {
        float best = __int_as_float(0x7fc00000);
        int expert = 1 << 30;
#pragma unroll
        for (int i = 0; i < MOST_OF_LANE; i++)
            if (left >> i & 1 && before(score[i], 32 * i + lane, best, expert)) best = score[i], expert = 32 * i + lane;
#pragma unroll
        for (int o = 16; o; o >>= 1) {
            const float other = __shfl_xor_sync(FULL_WARP, best, o);
            const int its = __shfl_xor_sync(FULL_WARP, expert, o);
            if (before(other, its, best, expert)) best = other, expert = its;
        }
        if (expert % 32 == lane) left &= ~(1u << expert / 32);
        if (job.bias) best = job.scores[expert];
        const float share = job.sigmoid ? logistic(best) : expf(best - most) / total;
        used += share;
        if (lane == 0) {
            job.ids[k] = expert;
            job.weights[k] = share;
            if (job.slots) job.slots[k] = job.slot_of[expert];
        }
    }
    __syncwarp();
    for (int k = lane; k < job.n_used; k += 32)
        job.weights[k] = (job.adds_up ? job.weights[k] / used : job.weights[k]) * job.factor;
    if (lane == 0) job.weights[job.n_used] = job.shared_score ? logistic(*job.shared_score) : 1.f;
}

#define MOST_PAIRS 2048  // of a position and an expert that it uses, in `group`

struct Group {
    int slot, first;
};

// Group pairs by the slots of their experts ids [n], ascending; those of experts that are not resident come first, as one
// group. order [n]: the pairs, group after group, ascending within. groups [n_groups + 1]: the slot and the first place
// in order of each; those behind the last one are empty. One block.
KERNEL __launch_bounds__(1024) group(const int* ids, const int* slot_of, int n, int n_groups, int* order,
                                     Group* groups) {
    __shared__ int slot[MOST_PAIRS];
    __shared__ u8 starts[MOST_PAIRS];
    int used = 0;
    for (int i = threadIdx.x; i < n; i += 1024) slot[i] = max(slot_of[ids[i]], -1);
    __syncthreads();
    for (int base = 0; base < n; base += 1024) {
        const int i = base + threadIdx.x;
        bool is_first = i < n;
        for (int j = 0; j < i && is_first; j++) is_first = slot[j] != slot[i];
        if (i < n) starts[i] = is_first;
        used += __syncthreads_count(is_first);
    }
    for (int i = threadIdx.x; i < n; i += 1024) {
        int place = 0, number = 0;
        for (int j = 0; j < n; j++) {
            const bool before = slot[j] < slot[i];
            place += before || (slot[j] == slot[i] && j < i);
            number += before && starts[j];
        }
        order[place] = i;
        if (starts[i]) groups[number] = {slot[i], place};
    }
    for (int i = used + threadIdx.x; i <= n_groups; i += 1024) groups[i] = {-1, n};
}
