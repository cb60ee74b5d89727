#include "quant/q8_rows.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "tensor/dtype.h"

namespace moeflux::q8_rows {
namespace {

constexpr float kPerCode = 1.0f / 127.0f;
constexpr uint16_t kInfinity = 0x7c00;
constexpr uint16_t kNaN = 0x7e00;

F16 scale_of(std::span<const float> block) {
  uint32_t largest = 0;  // as bits, among which those of NaN are the largest
  for (const float x : block) {
    largest = std::max(largest, std::bit_cast<uint32_t>(x) & 0x7fffffffu);
  }
  const F16 scale = to_f16(std::bit_cast<float>(largest) * kPerCode);
  return scale.bits < kInfinity ? scale : F16{kNaN};
}

int8_t code_of(float x, float inverse) {
  const float code = std::nearbyint(x * inverse);
  // A scale below 2^-14 has few digits and may be too small by a third.
  return static_cast<int8_t>(std::clamp(code, -127.0f, 127.0f));
}

}  // namespace

void encode(std::span<std::byte> row, std::span<const float> numbers) {
  const auto cols = static_cast<int64_t>(numbers.size());
  MF_CHECK(cols % kBlock == 0 && static_cast<int64_t>(row.size()) == row_bytes(cols));
  std::ranges::fill(row, std::byte{0});
  for (size_t begin = 0; begin < numbers.size(); begin += kBlock) {
    const std::span<const float> block = numbers.subspan(begin, kBlock);
    const F16 scale = scale_of(block);
    std::memcpy(&row[numbers.size() + begin / kBlock * sizeof(scale)], &scale, sizeof(scale));
    if (scale.bits == 0 || scale.bits == kNaN) continue;
    const float inverse = 1.0f / to_float(scale);
    for (size_t i = 0; i < block.size(); ++i) {
      row[begin + i] = static_cast<std::byte>(code_of(block[i], inverse));
    }
  }
}

void decode(std::span<float> numbers, const std::byte* row, int64_t cols) {
  for (size_t i = 0; i < numbers.size(); ++i) {
    F16 scale;
    std::memcpy(&scale, row + cols + static_cast<int64_t>(i) / kBlock * 2, sizeof(scale));
    const auto code = static_cast<float>(static_cast<int8_t>(row[i]));
    numbers[i] = code * to_float(scale);
  }
}

}  // namespace moeflux::q8_rows
