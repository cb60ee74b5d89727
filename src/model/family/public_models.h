// Published models by name, as their config.json describes them: for planning and counting without
// a download. The files are in families/configs.
#pragma once

#include <span>
#include <string_view>

#include "base/result.h"

namespace moeflux {

struct PublicModel {
  std::string_view name;  // as the file
  std::string_view config_json;
};

/// All there are, by name.
std::span<const PublicModel> public_models();
/// Small ones that nobody published, for tests: families/synthetic.
std::span<const PublicModel> tiny_models();

/// Looks in both lists, whatever the case of letters. Fails with kNotFound, naming the nearest.
Result<PublicModel> find_public_model(std::string_view name);

}  // namespace moeflux
