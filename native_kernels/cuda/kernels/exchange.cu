// The GPU's side of the exchange with the CPU: results to host memory, followed by a flag.
//
// Every thread of a block writes its share; one thread's release after the block's barrier then orders all of it, for
// the CPU too: a barrier and a release at system scope are cumulative.
#include "common.cuh"

// values f32 [n] and bits & ~without u32 [n_words] to the host, then epoch + 1 into epoch and into the flag. Any grid:
// the block that increments `done` (0 before and after) last posts the flag.
KERNEL __launch_bounds__(1024) publish(u64* flag, u64* epoch, const float* values, float* to_values, int n,
                                       const u32* bits, const u32* without, u32* to_bits, int n_words, u32* done) {
    START_NEXT; WAIT;
    const int step = gridDim.x * blockDim.x, first = blockIdx.x * blockDim.x + threadIdx.x;
    const int lines = (((u64)values | (u64)to_values) & 15) == 0 ? n / 4 : 0;
    u64 now = 0;
    if (threadIdx.x == 0) now = *epoch + 1;
    for (int i = first; i < lines; i += step) ((float4*)to_values)[i] = ((const float4*)values)[i];
    for (int i = 4 * lines + first; i < n; i += step) to_values[i] = values[i];
    for (int i = first; i < n_words; i += step) to_bits[i] = without ? bits[i] & ~without[i] : bits[i];
    __syncthreads();
    if (threadIdx.x) return;
    if (gridDim.x > 1) {
        __threadfence_system();
        if (atomicInc(done, gridDim.x - 1) != gridDim.x - 1) return;
        __threadfence_system();
    }
    *epoch = now;
    store_flag(flag, now);
}
