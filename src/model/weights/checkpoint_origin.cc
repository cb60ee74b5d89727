// The origin of weights in a checkpoint: module by module, in the tensors that hold them.
#include <utility>

#include "base/format.h"
#include "model/weights/expert_claims.h"
#include "model/weights/stored_formats.h"
#include "model/weights/weight_origin.h"
#include "quant/format_traits.h"

namespace moeflux {
namespace {

// The shape without extents of 1: [512, 4, 1] and [512, 1, 4] hold the same bytes as [512, 4].
Shape squeezed(const Shape& shape) {
  std::vector<int64_t> dims;
  for (int i = 0; i < shape.rank(); ++i) {
    if (shape[i] != 1) dims.push_back(shape[i]);
  }
  return Shape(dims);
}

/// Blocks that hold everything that is known of their numbers.
bool can_be_floats(const QuantFormat& format) {
  return format.kind->block.elements > 0 && !format.outer_scale;
}

class CheckpointOrigin : public WeightOrigin {
 public:
  CheckpointOrigin(TensorClaims& claims, const QuantConfig& quant, const Device& device)
      : claims_(claims), quant_(quant), device_(device) {}

  std::optional<StoredModule> module(std::string_view name, const Shape& shape, bool) override {
    // Stacks of some families are tensors themselves.
    const bool is_tensor = claims_.index().find(claims_.full_name(name)) != nullptr;
    const std::string_view weight = is_tensor ? "" : ".weight";
    const std::string module = full_module_name(claims_, std::string(name), weight);
    std::optional<StoredModule> found = find_module(claims_, quant_, module, weight, shape);
    if (found) claim_parts(claims_, *found);
    return found;
  }

  std::optional<StoredFloats> floats(std::string_view name, const Shape& shape) override {
    return small(name, shape, "floats", [](const TensorEntry& entry) {
      return entry.format ? can_be_floats(*entry.format) : is_plain_float(entry.dtype);
    });
  }
  std::optional<StoredFloats> ids(std::string_view name, const Shape& shape) override {
    return small(name, shape, "ids", [](const TensorEntry& entry) {
      return entry.dtype == DType::kI32 || entry.dtype == DType::kI64;
    });
  }

  std::optional<ExpertLayer> experts(LayerId id, std::string_view prefix, ExpertLayer layer,
                                     bool with_bias) override {
    if (claims_.index().has_expert_pack()) {
      return packed_experts(claims_, device_, id, std::move(layer), with_bias);
    }
    return stored_experts(claims_, quant_, device_, prefix, std::move(layer), with_bias);
  }

 private:
  std::optional<StoredFloats> small(std::string_view name, const Shape& shape,
                                    std::string_view kind,
                                    bool (*is_kind)(const TensorEntry& entry)) {
    std::string full = claims_.full_name(name);
    const TensorEntry* entry = claims_.claim(full);
    if (entry == nullptr) return std::nullopt;
    if (squeezed(entry->shape) != squeezed(shape) || !is_kind(*entry)) {
      claims_.fail(make_error(ErrorCode::kCorruption, "tensor {} is {} {}, expected {} {}", full,
                              entry->type_name(), entry->shape.to_string(), kind,
                              shape.to_string()));
      return std::nullopt;
    }
    return StoredFloats{std::move(full), entry, entry->size_bytes};
  }

  TensorClaims& claims_;
  const QuantConfig& quant_;
  const Device& device_;
};

}  // namespace

std::unique_ptr<WeightOrigin> make_checkpoint_origin(TensorClaims& claims, const QuantConfig& quant,
                                                     const Device& device) {
  return std::make_unique<CheckpointOrigin>(claims, quant, device);
}

}  // namespace moeflux
