#include "load/expert_tensors.h"

#include <cstdint>
#include <map>
#include <utility>

namespace moeflux {

std::set<std::string> names_of_expert_tensors(const TensorIndex& index, const ExpertTable& table) {
  std::map<std::pair<int32_t, uint64_t>, const std::string*> by_place;  // by the end
  for (const auto& [name, entry] : index.entries()) {
    if (entry.size_bytes > 0) by_place[{entry.file, entry.offset_bytes + entry.size_bytes}] = &name;
  }
  std::set<std::string> names;
  for (const ExpertLayer& layer : table.layers) {
    names.insert(layer.tensors_beside.begin(), layer.tensors_beside.end());
    for (const ExpertExtent& extent : layer.extents) {
      // The files of a pack hold no tensors.
      const auto found = by_place.upper_bound({extent.file, extent.offset});
      if (found != by_place.end() && found->first.first == extent.file) {
        names.insert(*found->second);
      }
    }
  }
  return names;
}

}  // namespace moeflux
