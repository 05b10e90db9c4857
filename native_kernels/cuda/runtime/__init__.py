"""What the kernels run on: CUDA's driver, the compiler, machine code, memory, uploads and cuBLAS."""
