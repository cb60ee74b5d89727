// Configs for tests of families: a public or a golden model's with one key changed, as its family
// reads it.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "model/family.h"
#include "model/public_models.h"
#include "tests/support/golden_file.h"
#include "tests/support/temp_folder.h"

namespace moeflux::testing {

/// A name in kebab case is a public model's, any other a golden folder's.
inline Json config_of(const std::string& model) {
  const bool is_public = model.find('-') != std::string::npos;
  const auto found = is_public ? find_public_model(model) : PublicModel{};
  EXPECT_TRUE(found.ok()) << model;
  const std::string path = tests_directory() + "/golden/models/" + model + "/config.json";
  const auto json =
      parse_json(is_public ? std::string(found->config_json) : read_bytes(path), model);
  EXPECT_TRUE(json.ok());
  return json.ok() ? *json : Json::object();
}

/// The object that holds the text model's keys.
inline Json& text_of(Json& json) {
  Json& thinker = json.contains("thinker_config") ? json["thinker_config"] : json;
  return thinker.contains("text_config") ? thinker["text_config"] : thinker;
}

inline Result<ModelSpec> read(const Json& json) {
  auto config = Config::parse(json.dump());
  if (!config.ok()) return config.error();
  const auto family = find_family(config->model_type());
  if (!family.ok()) return family.error();
  return (*family)->read_spec(*config);
}

inline Result<ModelSpec> read_with(const std::string& model, const std::string& key,
                                   const Json& value) {
  Json json = config_of(model);
  text_of(json)[key] = value;
  return read(json);
}

}  // namespace moeflux::testing
