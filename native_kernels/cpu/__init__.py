"""Operators compiled on the user's machine for its instruction set. Importing this package alone loads nothing heavy.

isa: which instruction set; simd: its vectors; jit: compiling and the cache; call: work for the threads; the other
modules hold the kernels. native_kernels.reference is the specification of them all.
"""
