"""Operators on an NVIDIA GPU. Importing this package loads nothing: no driver, no compiler, no context.

runtime.driver binds CUDA's driver by ctypes, runtime.nvrtc the compiler; runtime.modules compiles and caches machine
code. The .cu files hold the kernels, and native_kernels.reference specifies them.
"""
