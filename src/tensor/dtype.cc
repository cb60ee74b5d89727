#include "tensor/dtype.h"

#include <array>
#include <cstddef>
#include <cstring>

#include "base/check.h"

namespace moeflux {
namespace {

struct Info {
  DType dtype;
  std::string_view name;
  int bits;
};

constexpr std::array<Info, kDTypeCount> kInfo = {{
    {DType::kF64, "F64", 64},       {DType::kF32, "F32", 32},       {DType::kF16, "F16", 16},
    {DType::kBf16, "BF16", 16},     {DType::kI64, "I64", 64},       {DType::kI32, "I32", 32},
    {DType::kI16, "I16", 16},       {DType::kI8, "I8", 8},          {DType::kU64, "U64", 64},
    {DType::kU32, "U32", 32},       {DType::kU16, "U16", 16},       {DType::kU8, "U8", 8},
    {DType::kBool, "BOOL", 8},      {DType::kF8E4M3, "F8_E4M3", 8}, {DType::kF8E5M2, "F8_E5M2", 8},
    {DType::kF8E8M0, "F8_E8M0", 8}, {DType::kF6E2M3, "F6_E2M3", 6}, {DType::kF6E3M2, "F6_E3M2", 6},
    {DType::kF4, "F4", 4},          {DType::kC64, "C64", 64},
}};

constexpr bool table_is_in_enum_order() {
  for (size_t i = 0; i < kInfo.size(); ++i) {
    if (static_cast<size_t>(kInfo[i].dtype) != i) return false;
  }
  return true;
}
static_assert(table_is_in_enum_order());

}  // namespace

int dtype_bits(DType dtype) { return kInfo[static_cast<size_t>(dtype)].bits; }

std::string_view dtype_name(DType dtype) { return kInfo[static_cast<size_t>(dtype)].name; }

std::optional<DType> parse_dtype(std::string_view name) {
  for (const Info& info : kInfo) {
    if (info.name == name) return info.dtype;
  }
  return std::nullopt;
}

bool is_plain_float(DType dtype) {
  return dtype == DType::kF64 || dtype == DType::kF32 || dtype == DType::kF16 ||
         dtype == DType::kBf16;
}

float to_float(F16 value) {
  const uint32_t sign = static_cast<uint32_t>(value.bits & 0x8000u) << 16;
  const uint32_t exponent = (value.bits >> 10) & 0x1fu;
  uint32_t mantissa = value.bits & 0x3ffu;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000u | (mantissa << 13));
  if (exponent != 0) {
    return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
  }
  // Subnormal halves are multiples of 2^-24, all of them exact in f32.
  const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
  return sign != 0 ? -magnitude : magnitude;
}

Bf16 to_bf16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) {
    return {static_cast<uint16_t>((bits >> 16) | 0x40u)};  // keep NaN a NaN
  }
  return {static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16)};
}

F16 to_f16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>((bits >> 16) & 0x8000u);
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return {static_cast<uint16_t>(sign | 0x7e00u)};
  if (magnitude >= 0x477ff000u) return {static_cast<uint16_t>(sign | 0x7c00u)};  // rounds past max
  if (magnitude < 0x38800000u) {  // below 2^-14: subnormal half
    // Adding 0.5 aligns the 2^-24 grid with the last mantissa bit, so the FPU does the rounding.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return {static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3f000000u))};
  }
  const uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u) - (112u << 23);
  return {static_cast<uint16_t>(sign | (rounded >> 13))};
}

float load_float(const std::byte* data, int64_t i, DType dtype) {
  const auto load = [&](auto value) {
    std::memcpy(&value, data + i * static_cast<int64_t>(sizeof(value)), sizeof(value));
    return to_float(value);
  };
  if (dtype == DType::kF32) return load(float{});
  if (dtype == DType::kBf16) return load(Bf16{});
  if (dtype == DType::kF16) return load(F16{});
  MF_CHECK(dtype == DType::kF64);
  return load(double{});
}

}  // namespace moeflux
