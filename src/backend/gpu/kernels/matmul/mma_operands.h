// The bindings of up to four matrices that are multiplied together, the first twelve of a kernel.
#pragma once

#define MF_MMA_MATRIX(i, j, k, n) \
  MF_CONST(i, u8, data##n), MF_CONST(j, u8, scales##n), MF_CONST(k, u8, biases##n)
#define MF_MMA_MATRICES                                                            \
  MF_MMA_MATRIX(0, 1, 2, 0), MF_MMA_MATRIX(3, 4, 5, 1), MF_MMA_MATRIX(6, 7, 8, 2), \
      MF_MMA_MATRIX(9, 10, 11, 3)
/// The operands behind names that end in 0 to 3.
#define MF_MMA_OF(which, name) \
  (which == 0u ? name##0 : which == 1u ? name##1 : which == 2u ? name##2 : name##3)
