// The router's choice: which experts a token uses, their weights, and the slots that hold them.
#include "vectors.cuh"

#define MOST_EXPERTS 1024

// choice: ids i32 [K], weights f32 [K + 1] (the last one the shared expert's), slots i32 [K], negative: not resident.
struct Choice {
    const float *scores, *shared_score;  // shared_score 0: the shared expert's weight is 1
    const float* bias;                   // by expert, added to the weights for the choice; 0: the scores choose
    const float* factors;                // by expert, on the weights; 0: none
    const int* slot_of;                  // by expert
    int* ids;
    float* weights;
    int* slots;
    int n_experts, n_used;
    int sigmoid, adds_up;  // weights: the logistic function of the scores, else softmax over all; whether they sum to 1
    float factor;          // on the weights
    // Equal groups of experts in order, and those used: of the highest scores, which are their best expert's, or by_two
    // the sum of their two best.
    int n_groups, groups_used, by_two;
    float margin;  // softmax: weights are shares of the experts near, without those chosen before; 0: of all
};

DEVICE float logistic(float x) { return 0.5f + 0.5f * tanhf(0.5f * x); }

// A number that is the higher, the earlier the expert is used: by its score, of equal ones the lower number, NaN last.
DEVICE u64 key_of(float score, int expert) {
    const u32 bits = __float_as_uint(score + 0.f);  // -0 becomes 0
    const u32 ordered = score != score ? 0 : bits >> 31 ? ~bits : bits | 0x80000000u;
    return (u64)ordered << 32 | ~(u32)expert;
}

// Whether the expert's group is one of those used; wanted: what the choice goes by, in `keys` too. best: for two numbers a
// group. The whole block.
DEVICE bool in_used_group(const Choice& job, const u64* keys, float* best, int expert, u64 key, float wanted) {
    const int size = job.n_experts / job.n_groups, group = expert / size;
    const bool there = expert < job.n_experts;
    int before = 0;
    if (there)
        for (int i = group * size; i < (group + 1) * size; i++) before += keys[i] > key;
    if (there && before < 2) best[2 * group + before] = wanted != wanted ? __int_as_float(0xff800000) : wanted;
    __syncthreads();
    if (!there) return false;
    const float own = job.by_two ? best[2 * group] + best[2 * group + 1] : best[2 * group];
    before = 0;
    for (int g = 0; g < job.n_groups; g++) {
        const float other = job.by_two ? best[2 * g] + best[2 * g + 1] : best[2 * g];
        before += other > own || (other == own && g < group);
    }
    return before < job.groups_used;
}

// The share of an expert of the experts near it whose keys are not higher.
DEVICE float share_of_near(const Choice& job, const u64* keys, u64 key, float score) {
    float sum = 0.f;
    for (int i = 0; i < job.n_experts; i++) {
        const float other = job.scores[i];
        const bool far = score - other > job.margin * fmaxf(fabsf(other), score);
        if (keys[i] <= key && !far) sum += expf(other - score);
    }
    return 1.f / sum;
}

// A block per position, whose scores and choice follow the previous one's; a thread per expert, of whole warps. Each
// thread counts the experts that come before its own.
KERNEL __launch_bounds__(1024) choose(const Choice first) {
    START_NEXT; WAIT;
    __shared__ __align__(16) u64 keys[MOST_EXPERTS];
    __shared__ float shares[MOST_EXPERTS], places[32];
    const int expert = threadIdx.x, position = blockIdx.x, n_warps = blockDim.x / 32;
    Choice job = first;
    job.scores += (u64)position * job.n_experts;
    if (job.shared_score) job.shared_score += position;
    job.ids += (u64)position * job.n_used;
    job.weights += (u64)position * (job.n_used + 1);
    if (job.slots) job.slots += (u64)position * job.n_used;
    const bool there = expert < job.n_experts;
    const float score = there ? job.scores[expert] : __int_as_float(0xff800000);
    float share;
    if (job.sigmoid) {
        share = logistic(score);
    } else {
        const float highest = warp_max(score);
        if (expert % 32 == 0) places[expert / 32] = highest;
        __syncthreads();
        float most = places[0];
        for (int i = 1; i < n_warps; i++) most = fmaxf(most, places[i]);
        __syncthreads();
        share = there ? expf(score - most) : 0.f;
        share /= block_sum(share, places);
    }
    const float wanted = job.bias && there ? share + job.bias[expert] : score;
    u64 key = there ? key_of(wanted, expert) : 0;
    keys[expert] = key;
    __syncthreads();
    if (job.n_groups > 1) {
        if (!in_used_group(job, keys, shares, expert, key, wanted)) key = 0;  // after all that are
        keys[expert] = key;
        __syncthreads();
    }
    int before = 0;
    const ulonglong2* pairs = (const ulonglong2*)keys;
#pragma unroll 8
    for (int i = 0; i < blockDim.x / 2; i++) {
        const ulonglong2 pair = pairs[i];
        before += (pair.x > key) + (pair.y > key);
    }
    const bool used = there && before < job.n_used;
    if (used) shares[before] = share = job.margin > 0.f ? share_of_near(job, keys, key, score) : share;
    __syncthreads();
    if (used) {
        float sum = 0.f;
        for (int k = 0; k < job.n_used; k++) sum += shares[k];
        job.ids[before] = expert;
        const float weight = (job.adds_up ? share / sum : share) * job.factor;
        job.weights[before] = job.factors ? weight * job.factors[expert] : weight;
        if (job.slots) job.slots[before] = job.slot_of[expert];
    }
    if (expert == 0) job.weights[job.n_used] = job.shared_score ? logistic(*job.shared_score) : 1.f;
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
    WAIT;
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
