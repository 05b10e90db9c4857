// Matrices of one codec times 2, 4, 8 or 16 vectors; the weights are read once. Each vector gets the same bits as in
// products.cu. 2 and 4 read as many units ahead as there; with more, registers suffice for one. ROWS_4 and ROWS_8: rows
// that a warp multiplies at a time with as many vectors.
#include "multiply.cuh"

#ifndef CODEC
#define CODEC Q4_0
#endif
#ifndef UNITS_AHEAD
#define UNITS_AHEAD 2
#endif
#ifndef ROWS_4
#define ROWS_4 2
#define ROWS_8 2
#endif

#define AHEAD_4 (ROWS_4 > 2 ? 1 : UNITS_AHEAD)

KERNEL __launch_bounds__(256, 2) multiply_2(const Products job) { multiply<false, CODEC, 2, UNITS_AHEAD, 8, 2>(job); }
KERNEL __launch_bounds__(256, 2) multiply_4(const Products job) { multiply<false, CODEC, ROWS_4, AHEAD_4, 8, 4>(job); }
KERNEL __launch_bounds__(256, 2) multiply_8(const Products job) { multiply<false, CODEC, ROWS_8, 1, 8, 8>(job); }
KERNEL __launch_bounds__(256, 2) multiply_16(const Products job) { multiply<false, CODEC, 2, 1, 8, 16>(job); }
