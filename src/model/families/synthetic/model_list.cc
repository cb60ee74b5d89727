// The list of synthetic models over all families that have shapes.
#include <algorithm>
#include <array>

#include "base/format.h"
#include "model/families/synthetic/family_shapes.h"

namespace moeflux {
namespace {

constexpr std::array kFamilies = {&synthetic::qwen3_5_moe_shapes,
                                  &synthetic::latent_attention_shapes};

Status check_options(const SyntheticModelShape& shape, const SyntheticModelOptions& options) {
  if (options.num_layers < 0 || options.num_layers > shape.num_layers) {
    return make_error(ErrorCode::kInvalidArgument, "{} layers; {} has {}", options.num_layers,
                      shape.name, shape.num_layers);
  }
  if (options.bits != 4 && options.bits != 8) {
    return make_error(ErrorCode::kInvalidArgument, "{} bits, expected 4 or 8", options.bits);
  }
  if (options.group_size != 32 && options.group_size != 64 && options.group_size != 128) {
    return make_error(ErrorCode::kInvalidArgument, "groups of {}, expected 32, 64 or 128",
                      options.group_size);
  }
  return {};
}

}  // namespace

std::vector<SyntheticModelShape> synthetic_model_shapes() {
  std::vector<SyntheticModelShape> shapes;
  for (const synthetic::FamilyShapes* family : kFamilies) {
    for (const SyntheticModelShape& shape : family->list()) shapes.push_back(shape);
  }
  return shapes;
}

Result<SyntheticCheckpoint> make_synthetic_model(std::string_view name,
                                                 const SyntheticModelOptions& options) {
  std::string known;
  for (const synthetic::FamilyShapes* family : kFamilies) {
    for (const SyntheticModelShape& shape : family->list()) {
      if (shape.name != name) {
        known += (known.empty() ? "" : ", ") + std::string(shape.name);
        continue;
      }
      MF_RETURN_IF_ERROR(check_options(shape, options));
      return family->make(name, options);
    }
  }
  return make_error(ErrorCode::kNotFound, "no shape is called '{}'; known are {}", name, known);
}

}  // namespace moeflux
