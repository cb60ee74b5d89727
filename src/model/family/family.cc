#include "model/family/family.h"

#include <algorithm>
#include <utility>

#include "base/ascii.h"
#include "base/format.h"
#include "model/config/config.h"
#include "model/family/spec_fields.h"

namespace moeflux {
namespace {

/// The spelling of a known model_type that a config's own name means, or empty.
std::string_view known_type(std::string name) {
  const auto find = [](std::string_view wanted) -> std::string_view {
    for (const Family* family : families()) {
      for (const std::string_view type : family->model_types) {
        if (type == wanted) return type;
      }
      for (const auto& [wrapped, type] : family->wrapped_types) {
        if (wrapped == wanted) return type;
      }
    }
    return {};
  };
  // Names of wrappers: "qwen3_vl_text" is qwen3's text model in one that sees.
  constexpr std::string_view kEndings[] = {"_text", "_vl", "_mm", "_omni", "_vision"};
  while (true) {
    for (const std::string& own : {name, name + "_text"}) {
      if (const std::string_view found = find(own); !found.empty()) return found;
    }
    const auto* const ending =
        std::ranges::find_if(kEndings, [&](std::string_view end) { return name.ends_with(end); });
    if (ending == std::end(kEndings)) return {};
    name.resize(name.size() - ending->size());
  }
}

/// The same of a class: "Qwen3MoeForCausalLM" is qwen3_moe's.
std::string_view type_of_class(std::string_view name) {
  const std::string_view base = name.substr(0, name.rfind("For"));
  for (const Family* family : families()) {
    for (const std::string_view type : family->model_types) {
      std::string plain(type);
      std::erase(plain, '_');
      std::string wanted = lower_case(base);
      std::erase(wanted, '_');
      if (plain == wanted || plain == wanted + "text") return type;
    }
  }
  return {};
}

}  // namespace

Result<const Family*> find_family(std::string_view model_type) {
  std::vector<std::string_view> known;
  for (const Family* family : families()) {
    for (const std::string_view type : family->model_types) {
      if (type == model_type) return family;
      known.push_back(type);
    }
  }
  std::sort(known.begin(), known.end());
  std::string list;
  for (const std::string_view type : known) list += (list.empty() ? "" : ", ") + std::string(type);
  return make_error(ErrorCode::kUnsupported,
                    "config.json: model_type \"{}\" is not supported; known are {}", model_type,
                    list);
}

Result<const Family*> find_family(Config& config) {
  if (const auto exact = find_family(config.model_type()); exact.ok()) return exact;
  std::string_view found;
  for (const std::string& type : config.model_types()) {
    if (found.empty()) found = known_type(type);
  }
  for (const std::string& name : config.architectures()) {
    if (found.empty()) found = type_of_class(name);
  }
  if (!found.empty()) config.set_model_type(found);
  return find_family(config.model_type());
}

std::string mlx_name(std::string_view canonical, const NameScheme& scheme, const MlxNames& names) {
  const std::string& prefix = canonical.starts_with("lm_head") ? names.head_prefix : names.prefix;
  return prefix + rename_parts(rename_parts(canonical, scheme.renamed), names.renamed);
}

NameScheme usual_names(const ModelSpec& spec) { return usual_names(spec, {}); }

NameScheme usual_names(const ModelSpec& spec,
                       std::vector<std::pair<std::string, std::string>> renamed) {
  return {.prefixes = usual_prefixes(),
          .renamed = std::move(renamed),
          .ignored_prefixes = {},
          .first_draft_layer = spec.num_own_layers() - spec.draft_layers};
}

}  // namespace moeflux
