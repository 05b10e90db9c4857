"""CPU operators compiled on the user's machine for its instruction set. Importing this package loads nothing heavy.

runtime.isa chooses the instruction set, runtime.simd has its vectors, runtime.jit compiles and caches, runtime.call
describes work for the threads; the other modules hold the kernels. native_kernels.reference specifies all of them.
"""
