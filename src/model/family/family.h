// Family: one architecture line, chosen at run time by config.json's model_type. A file in
// families/ defines `<name>::family`, where <name> is the file's; the build lists them in
// a generated table.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "model/blocks/decoder.h"
#include "model/model.h"
#include "model/weights/weight_store.h"

namespace moeflux {

class Config;

/// The names that mlx-lm has for the weights of a family, where NameScheme does not make them of
/// canonical names with the usual prefix, and the parts that it cannot read in groups.
struct MlxNames {
  std::string prefix = "model.";  // of all names but the head's
  std::string head_prefix = "";
  std::string experts = "switch_mlp";  // has the stacked experts of the module of their prefix
  std::vector<std::pair<std::string, std::string>> renamed = {};  // as NameScheme's, after it
  bool norms_hold_one = false;                                    // 1 + w where the publisher has w
  bool plain_router = false;                         // no linear module there: stays floats
  std::vector<std::string_view> plain_modules = {};  // last components of others that do
  /// The model_type that has this one's config.json as its "text_config"; empty: none.
  std::string outer_model_type = "";
};

/// mlx-lm's name of what a family calls `canonical`.
std::string mlx_name(std::string_view canonical, const NameScheme& scheme, const MlxNames& names);

/// The usual prefixes; layers behind the last one predict further tokens.
NameScheme usual_names(const ModelSpec& spec);
/// The same with parts renamed, as NameScheme::renamed says.
NameScheme usual_names(const ModelSpec& spec,
                       std::vector<std::pair<std::string, std::string>> renamed);

struct Family {
  /// Every model_type spelling this family answers to.
  std::vector<std::string_view> model_types;
  /// Contradictions and unsupported variants are errors that name the key.
  Result<ModelSpec> (*read_spec)(Config& config);
  NameScheme (*name_scheme)(const ModelSpec& spec) = usual_names;
  /// Claims every weight; the caller runs WeightStore::finish() afterwards and drops the model when
  /// that fails.
  std::unique_ptr<Model> (*create)(const ModelSpec& spec,
                                   WeightStore& weights) = blocks::make_decoder;
  /// Null: the defaults.
  MlxNames (*mlx_names)(std::string_view model_type) = nullptr;
  /// A text model's name in a wrapper of its own, and the one of `model_types` that it equals.
  std::vector<std::pair<std::string_view, std::string_view>> wrapped_types = {};
};

/// All families in the build.
std::span<const Family* const> families();

/// Fails with kUnsupported, listing the known types.
Result<const Family*> find_family(std::string_view model_type);
/// The same of a config whose model_type may be a publisher's own name: a known one with "_vl",
/// "_text" and the like behind it, that of what is around the text model, or a class in
/// `architectures`. Sets the config's model_type to the known one.
Result<const Family*> find_family(Config& config);

}  // namespace moeflux
