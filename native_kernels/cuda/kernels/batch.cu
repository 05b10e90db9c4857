// Which sequences of a batch need which neurons: one word per neuron, bit t for sequence t. Numbers are f32 [T, n],
// rows `step` numbers apart; T is at most 32.
#include "common.cuh"

// words u32 [n]: bit t set where logits [T, n] reach the threshold; cold: the same, but 0 for neurons whose bit in
// `hot` (0: none) is set. One thread per neuron.
KERNEL __launch_bounds__(128) needed_words(const float* logits, u64 step, int n_tokens, int n, float threshold,
                                           const u32* hot, u32* words, u32* cold) {
    WAIT;
    const int f = blockIdx.x * 128 + threadIdx.x;
    if (f >= n) return;
    u32 word = 0;
    for (int t = 0; t < n_tokens; t++) word |= (logits[t * step + f] >= threshold ? 1u : 0u) << t;
    words[f] = word;
    cold[f] = hot && (hot[f / 32] >> (f % 32) & 1) ? 0 : word;
}

// first [T, n] of the neurons in slots: set to 0 if the sequence does not need the neuron, or the slot is empty
// (neuron_in negative). computed u32, incremented by the remaining values. One thread per slot.
KERNEL __launch_bounds__(128) keep_needed(float* first, u64 step, int n_tokens, int n, const int* neuron_in,
                                          const u32* words, u32* computed) {
    WAIT;
    const int s = blockIdx.x * 128 + threadIdx.x;
    const int neuron = s < n ? neuron_in[s] : -1;
    const u32 word = neuron < 0 ? 0 : words[neuron];
    if (s < n)
        for (int t = 0; t < n_tokens; t++)
            if (!(word >> t & 1)) first[t * step + s] = 0.f;
    u32 kept = __popc(word);
#pragma unroll
    for (int o = 16; o; o >>= 1) kept += __shfl_xor_sync(0xffffffffu, kept, o);
    if (threadIdx.x % 32 == 0 && kept) atomicAdd(computed, kept);
}

// used u32, incremented by the slots in which h [T, n] is not 0 for any sequence. One thread per slot.
KERNEL __launch_bounds__(128) count_used(const float* h, u64 step, int n_tokens, int n, u32* used) {
    WAIT;
    const int s = blockIdx.x * 128 + threadIdx.x;
    bool any = false;
    if (s < n)
        for (int t = 0; t < n_tokens; t++) any = any || h[t * step + s] != 0.f;
    const u32 found = __popc(__ballot_sync(0xffffffffu, any));
    if (threadIdx.x % 32 == 0 && found) atomicAdd(used, found);
}
