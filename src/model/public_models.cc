#include "model/public_models.h"

#include <string>

#include "base/format.h"

namespace moeflux {

Result<PublicModel> find_public_model(std::string_view name) {
  std::string known;
  for (const auto models : {public_models(), tiny_models()}) {
    for (const PublicModel& model : models) {
      if (model.name == name) return model;
      known += (known.empty() ? "" : ", ") + std::string(model.name);
    }
  }
  return make_error(ErrorCode::kNotFound, "no model is called '{}'; known are {}", name, known);
}

}  // namespace moeflux
