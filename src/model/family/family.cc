#include "model/family/family.h"

#include <algorithm>

#include "base/format.h"

namespace moeflux {

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

std::string mlx_name(std::string_view canonical, const NameScheme& scheme, const MlxNames& names) {
  const std::string& prefix = canonical.starts_with("lm_head") ? names.head_prefix : names.prefix;
  return prefix + rename_parts(rename_parts(canonical, scheme.renamed), names.renamed);
}

}  // namespace moeflux
