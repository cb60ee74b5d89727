#include "model/family/public_models.h"

#include <vector>

#include "base/ascii.h"
#include "base/format.h"
#include "base/nearest.h"

namespace moeflux {

Result<PublicModel> find_public_model(std::string_view name) {
  std::vector<std::string_view> known;
  for (const auto models : {public_models(), tiny_models()}) {
    for (const PublicModel& model : models) {
      if (equal_without_case(model.name, name)) return model;
      known.push_back(model.name);
    }
  }
  return make_error(ErrorCode::kNotFound, "no model is called '{}'{} (moeflux synth --list)", name,
                    did_you_mean(name, known));
}

}  // namespace moeflux
