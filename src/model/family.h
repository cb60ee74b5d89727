// Family: one architecture line, chosen at run time by config.json's model_type. A file in
// families/ defines one object `<name>_family`, where <name> is the file's; the build lists them in
// a generated table.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model/config.h"
#include "model/model.h"
#include "model/weight_store.h"

namespace moeflux {

struct Family {
  /// Every model_type spelling this family answers to.
  std::vector<std::string_view> model_types;
  /// Contradictions and unsupported variants are errors that name the key.
  Result<ModelSpec> (*read_spec)(Config& config);
  NameScheme (*name_scheme)(const ModelSpec& spec);
  /// Claims every weight; the caller runs WeightStore::finish() afterwards and drops the model when
  /// that fails.
  std::unique_ptr<Model> (*create)(const ModelSpec& spec, WeightStore& weights);
};

/// All families in the build.
std::span<const Family* const> families();

/// Fails with kUnsupported, listing the known types.
Result<const Family*> find_family(std::string_view model_type);

}  // namespace moeflux
