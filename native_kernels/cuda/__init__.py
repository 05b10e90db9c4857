"""Operators on an NVIDIA GPU. Importing this package alone loads nothing: no driver, no compiler, no context.

driver: CUDA's driver by ctypes; nvrtc: the compiler; modules: machine code for the GPU at hand, and where it is kept;
the .cu files hold the kernels. native_kernels.reference is the specification of them all.
"""
