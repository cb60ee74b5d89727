// WeightStore without a checkpoint: claims succeed and count what they would take.
#include <string>

#include "model/weight_store.h"

namespace moeflux {

QuantFormat WeightStore::assumed_format(std::string_view module, int64_t cols, int bits) const {
  ModuleQuant quant = {bits, assumed_.group_size};
  if (const std::optional<ModuleQuant> stated = quant_.lookup(""); stated) {
    quant = *stated;
    // The prefix of a checkpoint that is not there is not known either.
    for (const std::string& prefix : scheme_.prefixes) {
      const std::optional<ModuleQuant> own = quant_.lookup(prefix + std::string(module));
      if (own == stated) continue;
      if (!own) return QuantFormat::plain(DType::kBf16);
      quant = *own;
    }
  }
  const QuantFormat affine = QuantFormat::affine(quant.bits, quant.group_size, DType::kBf16);
  return is_valid(affine, cols) ? affine : QuantFormat::plain(DType::kBf16);
}

Weight WeightStore::assume_module(std::string_view name, const Shape& shape, int bits,
                                  Placement placement) {
  Weight weight;
  weight.cols = shape.back();
  weight.rows = shape.num_elements() / weight.cols;
  weight.format = assumed_format(name, weight.cols, bits);
  if (placement == Placement::kPreferred) {
    weight.format = placed(weight.format, weight.rows, weight.cols);
  }
  const WeightBytes bytes = weight_bytes(weight.format, weight.rows, weight.cols);
  if (weight.format.order == WeightOrder::kTiled) {
    weight.data = place(bytes.data, {static_cast<int64_t>(bytes.data)}, DType::kU8);
  } else if (weight.format.kind == QuantKind::kAffine) {
    const int64_t words = weight.cols * weight.format.bits / 32;
    const Shape groups{weight.rows, weight.cols / weight.format.group_size};
    weight.data = place(bytes.data, {weight.rows, words}, DType::kU32);
    weight.scales = place(bytes.scales, groups, weight.format.dtype);
    weight.biases = place(bytes.biases, groups, weight.format.dtype);
  } else {
    weight.data = place(bytes.data, {weight.rows, weight.cols}, weight.format.dtype);
  }
  sizes_.parameters += static_cast<uint64_t>(shape.num_elements());
  sizes_.stored_bytes += bytes.total();
  sizes_.bytes += bytes.total();
  return weight;
}

}  // namespace moeflux
