// Matrices of whole numbers that have no affine form: by their definitions, row by row, since they
// are rare. quant/formats/awq_format.cc, gptq_format.cc and packed_int_format.cc are these.
#include "backend/cpu/row_decoder.h"

namespace moeflux::cpu {
namespace integers {
namespace {

void decode(const Weight& weight, int64_t begin, int64_t count, float* out) {
  const auto cols = static_cast<size_t>(weight.cols);
  for (int64_t row = 0; row < count; ++row) {
    decode_row(weight, begin + row, {out + static_cast<size_t>(row) * cols, cols});
  }
}

}  // namespace
}  // namespace integers

std::span<const RowDecoder> integer_decoders() {
  static constexpr RowDecoder kDecoders[] = {
      {"awq", integers::decode}, {"gptq", integers::decode}, {"packed_int", integers::decode}};
  return kDecoders;
}

}  // namespace moeflux::cpu
