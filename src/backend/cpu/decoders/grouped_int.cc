// Matrices of whole numbers that have no affine form: by their definition, row by row, since they
// are rare.
#include "backend/cpu/row_decoder.h"

namespace moeflux::cpu {
namespace decoder_grouped_int {
namespace {

void decode(const Weight& weight, int64_t begin, int64_t count, float* out) {
  const auto cols = static_cast<size_t>(weight.cols);
  for (int64_t row = 0; row < count; ++row) {
    decode_row(weight, begin + row, {out + static_cast<size_t>(row) * cols, cols});
  }
}

}  // namespace
}  // namespace decoder_grouped_int

extern const RowDecoder grouped_int_decoder = {"grouped_int", decoder_grouped_int::decode};

}  // namespace moeflux::cpu
