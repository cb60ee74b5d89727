// Storage formats that kernels read number by number, by the names of their FormatTraits. The place
// in the list is the number that MatrixLayout::format has, from kFormatCoded on.
#pragma once

#define MF_CODED_FORMATS(X) X(mxfp4) X(fp8) X(nvfp4) X(grouped_int)

// GGML's types: name, numbers of a block, its bytes. Numbers from kFormatGgml on.
// clang-format off
#define MF_GGML_FORMATS(X) \
  X(q4_0, 32u, 18u) \
  X(q4_1, 32u, 20u) \
  X(q5_0, 32u, 22u) \
  X(q5_1, 32u, 24u) \
  X(q8_0, 32u, 34u) \
  X(q2_k, 256u, 84u) \
  X(q3_k, 256u, 110u) \
  X(q4_k, 256u, 144u) \
  X(q5_k, 256u, 176u) \
  X(q6_k, 256u, 210u) \
  X(iq2_xxs, 256u, 66u) \
  X(iq2_xs, 256u, 74u) \
  X(iq2_s, 256u, 82u) \
  X(iq3_xxs, 256u, 98u) \
  X(iq3_s, 256u, 110u) \
  X(iq1_s, 256u, 50u) \
  X(iq1_m, 256u, 56u) \
  X(iq4_nl, 32u, 18u) \
  X(iq4_xs, 256u, 136u) \
  X(mxfp4_gguf, 32u, 17u) \
  X(nvfp4_gguf, 64u, 36u) \
  X(q1_0, 128u, 18u) \
  X(q2_0, 64u, 18u) \
  X(q2_0_128, 128u, 34u) \
  X(tq1_0, 256u, 54u) \
  X(tq2_0, 256u, 66u)

// GGML's types whose codes matrix units multiply: small unsigned bytes, with a scale and a bias for
// 16, 32 or 64 columns. matmul/ggml_codes.h, ggml_low_codes.h and ggml_grid_codes.h have
// `GgmlCodes` of each.
#define MF_GGML_MMA_TYPES(X) \
  X(q4_0) X(q4_1) X(q5_0) X(q5_1) X(q8_0) X(q2_k) X(q3_k) X(q4_k) X(q5_k) X(q6_k) \
  X(iq4_nl) X(iq4_xs) X(mxfp4_gguf) X(nvfp4_gguf) X(q1_0) X(q2_0) X(q2_0_128) X(tq1_0) X(tq2_0) \
  X(iq1_s) X(iq1_m) X(iq2_xxs) X(iq2_xs) X(iq2_s) X(iq3_xxs) X(iq3_s)

// Affine groups of 4 and 8 bits that are too narrow for the kernels of blocks of 64 columns: bits,
// bytes of a scale. matmul/affine_codes.h has their `GgmlCodes`.
#define MF_AFFINE_MMA_TYPES(X) \
  X(w4_32, 4u, 2u) X(w8_32, 8u, 2u) X(w4_32f, 4u, 4u) X(w8_32f, 8u, 4u)

// Some of them have kernels of their own for single tokens. A kernel for any type takes more
// registers, and the ways of others lie between what it runs: an H200 then waits for instructions.
#define MF_GGML_ONE_TYPES(F, X) \
  F(X, q4_0) F(X, q4_k) F(X, q5_k) F(X, q6_k) F(X, q8_0) F(X, mxfp4_gguf) F(X, q2_0) \
  F(X, iq4_nl) F(X, iq4_xs) F(X, iq3_s) F(X, iq3_xxs) F(X, iq2_s) F(X, iq2_xs) F(X, iq2_xxs) \
  F(X, iq1_s) F(X, iq1_m) F(X, q1_0) F(X, tq2_0) F(X, w4_32)
// clang-format on
