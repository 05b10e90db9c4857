// Matrices of one codec times 2, 4 or 8 vectors; the weights are read once. Each vector gets the same bits as in
// products.cu. 2 and 4 read as many units ahead as there; with 8, registers suffice for one.
#include "multiply.cuh"

#ifndef CODEC
#define CODEC Q4_0
#endif
#ifndef UNITS_AHEAD
#define UNITS_AHEAD 2
#endif

KERNEL __launch_bounds__(256, 2) multiply_2(const Products job) { START_NEXT; multiply<false, CODEC, 2, UNITS_AHEAD, 8, 2>(job); }
KERNEL __launch_bounds__(256, 2) multiply_4(const Products job) { START_NEXT; multiply<false, CODEC, 2, UNITS_AHEAD, 8, 4>(job); }
KERNEL __launch_bounds__(256, 2) multiply_8(const Products job) { START_NEXT; multiply<false, CODEC, 2, 1, 8, 8>(job); }
