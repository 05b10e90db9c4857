// Products of several parts of a matrix, each with its own part of a vector: those of latent attention's heads.
#include "multiply.cuh"

KERNEL __launch_bounds__(256, 4) multiply_each_f32(const Products job) { START_NEXT; multiply<true, F32, 2, 2, 8>(job); }
KERNEL __launch_bounds__(256, 4) multiply_each_f16(const Products job) { START_NEXT; multiply<true, F16, 2, 2, 8>(job); }
KERNEL __launch_bounds__(256, 4) multiply_each_bf16(const Products job) { START_NEXT; multiply<true, BF16, 2, 2, 8>(job); }
KERNEL __launch_bounds__(256, 4) multiply_each_q8_0(const Products job) { START_NEXT; multiply<true, Q8_0, 2, 2, 8>(job); }
KERNEL __launch_bounds__(256, 4) multiply_each_q4_0(const Products job) { START_NEXT; multiply<true, Q4_0, 2, 2, 8>(job); }
KERNEL __launch_bounds__(256, 4) multiply_each_q4_k(const Products job) { START_NEXT; multiply<true, Q4_K, 2, 1, 8>(job); }
KERNEL __launch_bounds__(256, 3) multiply_each_q6_k(const Products job) { START_NEXT; multiply<true, Q6_K, 2, 1, 8>(job); }
KERNEL __launch_bounds__(256, 4) multiply_each_mxfp4(const Products job) { START_NEXT; multiply<true, MXFP4, 2, 2, 8>(job); }
KERNEL __launch_bounds__(256, 4) multiply_each_q5_k(const Products job) { START_NEXT; multiply<true, Q5_K, 2, 1, 8>(job); }
KERNEL __launch_bounds__(256, 4) multiply_each_iq4_nl(const Products job) { START_NEXT; multiply<true, IQ4_NL, 2, 2, 8>(job); }
KERNEL __launch_bounds__(256, 4) multiply_each_iq4_xs(const Products job) { START_NEXT; multiply<true, IQ4_XS, 2, 1, 8>(job); }
KERNEL __launch_bounds__(256, 4) multiply_each_q5_0(const Products job) { START_NEXT; multiply<true, Q5_0, 2, 2, 8>(job); }
KERNEL __launch_bounds__(256, 4) multiply_each_q4_1(const Products job) { START_NEXT; multiply<true, Q4_1, 2, 2, 8>(job); }
KERNEL __launch_bounds__(256, 4) multiply_each_q5_1(const Products job) { START_NEXT; multiply<true, Q5_1, 2, 2, 8>(job); }
KERNEL __launch_bounds__(256, 4) multiply_each_q3_k(const Products job) { START_NEXT; multiply<true, Q3_K, 2, 1, 8>(job); }
KERNEL __launch_bounds__(256, 3) multiply_each_q2_k(const Products job) { START_NEXT; multiply<true, Q2_K, 2, 2, 8>(job); }
