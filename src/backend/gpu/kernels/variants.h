// Variants of matrix products: of 1, 4 and 8 tokens a group, for every storage format, and for
// those that say theirs in MatrixLayout::format alone. Plans choose
// with matrix_kernel(), which counts on this order.
#pragma once

#define MF_TILES(X, name, bindings, Params) \
  X(name##_t1, bindings, Params, kWaits)    \
  X(name##_t4, bindings, Params, kWaits)    \
  X(name##_t8, bindings, Params, kWaits)
#define MF_FORMATS(X, name, bindings, Params) \
  MF_TILES(X, name##_f32, bindings, Params)   \
  MF_TILES(X, name##_f16, bindings, Params)   \
  MF_TILES(X, name##_bf16, bindings, Params)  \
  MF_TILES(X, name##_w2, bindings, Params)    \
  MF_TILES(X, name##_w3, bindings, Params)    \
  MF_TILES(X, name##_w4, bindings, Params)    \
  MF_TILES(X, name##_w5, bindings, Params)    \
  MF_TILES(X, name##_w6, bindings, Params)    \
  MF_TILES(X, name##_w8, bindings, Params)    \
  MF_TILES(X, name##_fp8, bindings, Params)   \
  MF_TILES(X, name##_any, bindings, Params)

// Large tiles of the formats that have them; large_tile_kernel() counts on the order.
#define MF_LARGE_TILES(X, name, bindings, Params) \
  X(name##_f32_t16, bindings, Params, kWaits)     \
  X(name##_f16_t16, bindings, Params, kWaits)     \
  X(name##_bf16_t16, bindings, Params, kWaits)    \
  X(name##_fp8_t16, bindings, Params, kWaits)
