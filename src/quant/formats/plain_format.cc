// Arrays of F32, F16 or BF16.
#include <cstring>
#include <string>

#include "quant/format_traits.h"

namespace moeflux {
namespace plain {
namespace {

std::string name_of(const QuantFormat& format) {
  std::string name(dtype_name(format.dtype));
  for (char& c : name) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  return name;
}

bool fits(const QuantFormat& format, int64_t) { return is_plain_float(format.dtype); }

void lay_out_parts(Weight& weight) {
  weight.parts.codes = unplaced({weight.rows, weight.cols}, weight.format.dtype);
}

void decode(const Weight& weight, int64_t row, std::span<float> out) {
  const std::byte* numbers = host_ptr<std::byte>(weight.parts.codes);
  const auto cols = static_cast<size_t>(weight.cols);
  if (weight.format.dtype == DType::kF32) {
    std::memcpy(out.data(), numbers + row * weight.cols * 4, cols * sizeof(float));
    return;
  }
  if (weight.format.dtype == DType::kBf16) {
    for (size_t c = 0; c < cols; ++c) {
      Bf16 number;
      std::memcpy(&number, numbers + (row * weight.cols + static_cast<int64_t>(c)) * 2, 2);
      out[c] = to_float(number);
    }
    return;
  }
  for (int64_t c = 0; c < weight.cols; ++c) {
    out[static_cast<size_t>(c)] = load_float(numbers, row * weight.cols + c, weight.format.dtype);
  }
}

}  // namespace
}  // namespace plain

const FormatTraits plain_format = {"plain", plain::name_of, plain::fits, plain::lay_out_parts,
                                   plain::decode};

}  // namespace moeflux
