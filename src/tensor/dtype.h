// Element types of tensors in memory and in files, and the two 16-bit floats as storage types.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace moeflux {

/// Every element type of the safetensors format. Compute uses a few of them; the rest are named in
/// errors.
enum class DType : uint8_t {
  kF64,
  kF32,
  kF16,
  kBf16,
  kI64,
  kI32,
  kI16,
  kI8,
  kU64,
  kU32,
  kU16,
  kU8,
  kBool,
  kF8E4M3,
  kF8E5M2,
  kF8E8M0,
  kF6E2M3,
  kF6E3M2,
  kF4,
  kC64,
};

constexpr int kDTypeCount = 20;

/// Bits of one element; sub-byte types are packed.
int dtype_bits(DType dtype);
/// The safetensors spelling: "BF16", "U32".
std::string_view dtype_name(DType dtype);
/// The inverse of dtype_name; nullopt for an unknown spelling.
std::optional<DType> parse_dtype(std::string_view name);
/// F64, F32, F16 and BF16: what a float tensor of a checkpoint may be stored as.
bool is_plain_float(DType dtype);

/// bfloat16 storage: the upper half of an f32.
struct Bf16 {
  uint16_t bits;
};

/// IEEE half storage.
struct F16 {
  uint16_t bits;
};

inline float to_float(Bf16 value) {
  return std::bit_cast<float>(static_cast<uint32_t>(value.bits) << 16);
}
inline float to_float(float value) { return value; }
inline float to_float(double value) { return static_cast<float>(value); }
float to_float(F16 value);

/// Rounds to nearest even; NaN stays NaN.
Bf16 to_bf16(float value);
F16 to_f16(float value);

/// Element i of an array of F64, F32, F16 or BF16; any alignment. Other dtypes abort: formats are
/// validated first.
float load_float(const std::byte* data, int64_t i, DType dtype);

}  // namespace moeflux
