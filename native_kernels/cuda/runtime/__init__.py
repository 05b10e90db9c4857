"""The runtime of the GPU kernels: CUDA's driver, the compiler, machine code, memory, uploads and cuBLAS."""
