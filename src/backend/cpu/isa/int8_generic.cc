// Int8 kernels for any machine: portable C++.
#include "backend/cpu/kernels/int8_table.h"

#define MF_INLINE inline __attribute__((always_inline))

namespace moeflux::cpu {
namespace isa_int8_generic {
#include "backend/cpu/kernels/int8_quantize-inl.h"
//
#include "backend/cpu/kernels/vec_generic-inl.h"

static float element(const uint8_t* data, int64_t i, ElementType type) {
  float value[1];
  const uint8_t* p = data + i * (type == ElementType::kF32 ? 4 : 2);
  if (type == ElementType::kF32) {
    __builtin_memcpy(value, p, 4);
  } else {
    vstore_partial(
        value, type == ElementType::kBf16 ? vload_bf16_partial(p, 1) : vload_f16_partial(p, 1), 1);
  }
  return value[0];
}

/// One group's codes in the order of Int8Token.
static void unpack_group(const uint8_t* from, int64_t count, int32_t bits, int16_t* to) {
  for (int64_t i = 0; i < count; i += 8) {
    for (int64_t j = 0; j < 4; ++j) {
      if (bits == 4) {
        to[i + j] = from[i / 2 + j] & 0x0f;
        to[i + 4 + j] = from[i / 2 + j] >> 4;
      } else {
        to[i + j] = from[i + 2 * j];
        to[i + 4 + j] = from[i + 2 * j + 1];
      }
    }
  }
}

/// 16-bit factors: what compilers turn into multiply-and-add of pairs everywhere.
static int32_t dot(const int16_t* codes, const int8_t* x, int64_t count) {
  int16_t wide[kInt8GroupMax];
  for (int64_t i = 0; i < count; ++i) wide[i] = x[i];
  int32_t sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += codes[i] * wide[i];
  return sum;
}

static void panel(const Int8PanelArgs& args) {
  const MatrixArgs& w = args.w;
  const int64_t groups = w.cols / w.group_size;
  int16_t codes[kInt8GroupMax];
  for (int64_t r = 0; r < args.rows; ++r) {
    for (int64_t t = 0; t < args.tokens; ++t) args.out[t][r] = 0.0f;
    const int64_t row = args.row + r;
    for (int64_t g = 0; g < groups; ++g) {
      const int64_t at = row * w.cols + g * w.group_size;
      unpack_group(w.data + at / 8 * w.bits, w.group_size, w.bits, codes);
      const float scale = element(w.scales, row * groups + g, w.type);
      const float bias = element(w.biases, row * groups + g, w.type);
      for (int64_t t = 0; t < args.tokens; ++t) {
        const Int8Token& x = args.x[t];
        const auto sum = static_cast<float>(dot(codes, x.codes + g * w.group_size, w.group_size));
        const float acc = __builtin_fmaf(scale * x.scales[g], sum, args.out[t][r]);
        args.out[t][r] = __builtin_fmaf(bias, x.sums[g], acc);
      }
    }
  }
}

}  // namespace isa_int8_generic

const Int8Kernels kGenericInt8Kernels = {"generic", isa_int8_generic::int8_quantize,
                                         isa_int8_generic::panel};

}  // namespace moeflux::cpu
