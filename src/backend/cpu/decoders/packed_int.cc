// Matrices of this format that have no affine form: by the definition, row by row, since they are
// rare. quant/formats/packed_int_format.cc is that definition.
#include "backend/cpu/row_decoder.h"
#include "quant/formats/tensor_formats.h"

namespace moeflux::cpu {
namespace {

void decode(const Weight& weight, int64_t begin, int64_t count, float* out) {
  const auto cols = static_cast<size_t>(weight.cols);
  for (int64_t row = 0; row < count; ++row) {
    decode_row(weight, begin + row, {out + static_cast<size_t>(row) * cols, cols});
  }
}

}  // namespace

extern const RowDecoder packed_int_decoder;
const RowDecoder packed_int_decoder = {"packed_int", decode};

}  // namespace moeflux::cpu
