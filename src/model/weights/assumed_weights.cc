// Weights without a checkpoint: claims succeed and count what they would take.
#include <array>
#include <string>
#include <utility>

#include "base/format.h"
#include "model/weights/expert_claims.h"
#include "model/weights/weight_origin.h"
#include "quant/ggml_file_types.h"

namespace moeflux {
namespace {

class AssumedOrigin : public WeightOrigin {
 public:
  AssumedOrigin(const NameScheme& scheme, const QuantConfig& quant, const Device& device,
                const AssumedFormat& assumed)
      : scheme_(scheme), quant_(quant), device_(device), assumed_(assumed) {}

  std::optional<StoredModule> module(std::string_view name, const Shape& shape,
                                     bool is_router) override {
    if (assumed_.type != nullptr) {
      return StoredModule{std::string(name), file_format_of(name, shape, is_router), {}};
    }
    const int bits = is_router ? assumed_.router_bits : assumed_.bits;
    return StoredModule{std::string(name), format_of(name, shape.back(), bits), {}};
  }

  std::optional<StoredFloats> floats(std::string_view name, const Shape& shape) override {
    const auto elements = static_cast<uint64_t>(shape.num_elements());
    const size_t bytes = assumed_.type == nullptr ? sizeof(Bf16) : sizeof(float);
    return StoredFloats{std::string(name), nullptr, elements * bytes};
  }
  std::optional<StoredFloats> ids(std::string_view name, const Shape& shape) override {
    const auto elements = static_cast<uint64_t>(shape.num_elements());
    return StoredFloats{std::string(name), nullptr, elements * sizeof(int32_t)};
  }

  std::optional<ExpertLayer> experts(LayerId, std::string_view prefix, ExpertLayer layer,
                                     bool with_bias) override {
    const std::array<std::pair<Weight*, ExpertBias*>, 3> parts = {
        {{&layer.gate, &layer.gate_bias},
         {&layer.up, &layer.up_bias},
         {&layer.down, &layer.down_bias}}};
    constexpr std::array<std::string_view, 3> kProjections = {"gate_proj", "up_proj", "down_proj"};
    for (size_t m = layer.first_matrix(); m < parts.size(); ++m) {
      Weight& matrix = *parts[m].first;
      const std::string module = formatted("{}.switch_mlp.{}", prefix, kProjections[m]);
      matrix.format = assumed_.type == nullptr
                          ? format_of(module, matrix.cols, assumed_.bits)
                          : file_format({.is_expert = true, .cols = matrix.cols});
      const DType dtype = is_plain_float(matrix.format.dtype) ? matrix.format.dtype : DType::kBf16;
      if (with_bias) *parts[m].second = {dtype, matrix.rows, 0};
    }
    choose_orders_of_stored(layer, device_);
    lay_out_slot(layer);
    return layer;
  }

 private:
  QuantFormat file_format(const GgufMatrix& matrix) const {
    return *type_of_matrix(*assumed_.type, matrix).format;
  }
  QuantFormat file_format_of(std::string_view name, const Shape& shape, bool is_router) const {
    // Gates of one row too.
    if (is_router || shape[shape.rank() - 2] == 1) return QuantFormat::plain(DType::kF32);
    const bool is_embedding = name == "embed_tokens";
    return file_format({.is_embedding = is_embedding,
                        .is_head = name == "lm_head" || (is_embedding && assumed_.ties_embedding),
                        .cols = shape.back()});
  }
  QuantFormat format_of(std::string_view module, int64_t cols, int bits) const {
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
    const QuantFormat format = quant.format(DType::kBf16);
    return is_valid(format, cols) ? format : QuantFormat::plain(DType::kBf16);
  }

  const NameScheme& scheme_;
  const QuantConfig& quant_;
  const Device& device_;
  AssumedFormat assumed_;
};

}  // namespace

std::string AssumedFormat::to_string() const {
  return type != nullptr ? std::string(type->name) : ModuleQuant{bits, group_size}.to_string();
}

std::unique_ptr<WeightOrigin> make_assumed_origin(const NameScheme& scheme,
                                                  const QuantConfig& quant, const Device& device,
                                                  const AssumedFormat& assumed) {
  return std::make_unique<AssumedOrigin>(scheme, quant, device, assumed);
}

}  // namespace moeflux
