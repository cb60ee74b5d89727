// Activations to integers of 16 bits, in plain loops that compilers vectorise.
// Included inside the namespace of one ISA; see tile_table.h.

namespace unit {
// The words of unit_text.h.
#define MF_FN MF_INLINE
using u32 = uint32_t;
using f32 = float;
MF_FN u32 as_bits(f32 value) {
  u32 bits;
  __builtin_memcpy(&bits, &value, 4);
  return bits;
}
MF_FN f32 as_float(u32 bits) {
  f32 value;
  __builtin_memcpy(&value, &bits, 4);
  return value;
}
MF_FN f32 mf_fma(f32 a, f32 b, f32 c) { return __builtin_fmaf(a, b, c); }
#include "backend/unit_text.h"
#undef MF_FN
}  // namespace unit

constexpr int kUnitBlock = 64;  // columns of one factor
constexpr int kUnitSplitBlocks = 8;
constexpr int kUnitChunk = 16;  // columns whose 256s lie before their ones

static void q16_quantize_block(const float* x, int64_t group_size, uint8_t* values, float* scales,
                               float* sums) {
  int32_t largest = 0;
  for (int i = 0; i < kUnitBlock; ++i) {
    const auto size = static_cast<int32_t>(unit::size_bits(x[i]));
    largest = size > largest ? size : largest;
  }
  const unit::UnitFactor factor = unit::unit_factor(static_cast<uint32_t>(largest));
  uint32_t bits[kUnitBlock];
  for (int i = 0; i < kUnitBlock; ++i) bits[i] = unit::unit_bits(x[i], factor.into);
  for (int chunk = 0; chunk < kUnitBlock; chunk += kUnitChunk) {
    uint8_t* high = values + 2 * chunk;
    uint8_t* low = high + kUnitChunk;
    for (int i = 0; i < kUnitChunk; ++i) {
      high[i] = static_cast<uint8_t>(bits[chunk + i] >> 8);
      low[i] = static_cast<uint8_t>(bits[chunk + i] ^ 0x80u);
    }
  }
  for (int64_t k = 0, g = 0; k < kUnitBlock; k += group_size, ++g) {
    uint32_t sum = 0;
    for (int64_t i = 0; i < group_size; ++i) sum += bits[k + i] - unit::kUnitZero;
    scales[g] = factor.out_of;
    sums[g] = static_cast<float>(static_cast<int32_t>(sum));
  }
}

static void q16_prepare(const float* x, int64_t cols, int64_t group_size, void* values,
                        float* scales, float* sums) {
  uint8_t* bytes = static_cast<uint8_t*>(values);
  for (int64_t k = 0; k < cols; k += kUnitBlock) {
    const int64_t group = k / group_size;
    q16_quantize_block(x + k, group_size, bytes + 2 * k, scales + group, sums + group);
  }
}
