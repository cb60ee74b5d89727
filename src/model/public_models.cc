#include "model/public_models.h"

#include <algorithm>
#include <string>

#include "base/format.h"

namespace moeflux {

Result<PublicModel> find_public_model(std::string_view name) {
  const auto models = public_models();
  const auto found = std::find_if(models.begin(), models.end(),
                                  [&](const PublicModel& model) { return model.name == name; });
  if (found != models.end()) return *found;
  std::string known;
  for (const PublicModel& model : models) {
    known += (known.empty() ? "" : ", ") + std::string(model.name);
  }
  return make_error(ErrorCode::kNotFound, "no public model is called '{}'; known are {}", name,
                    known);
}

}  // namespace moeflux
