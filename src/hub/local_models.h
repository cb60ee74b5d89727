// Models that are on this machine already: in the cache of downloads and in the folders of other
// programs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "hub/hub_cache.h"
#include "hub/settings.h"

namespace moeflux::hub {

struct LocalModel {
  std::string name;    // "ORG/NAME:QUANT"; for -hf where `source` is the cache
  std::string path;    // for -m
  std::string source;  // the program whose folder it is in
  std::string format;  // "GGUF Q4_K_M", "safetensors"
  uint64_t bytes = 0;
};

/// By source, then by name. Folders that are absent or unreadable have none.
std::vector<LocalModel> find_local_models(const HubCache& cache, const Variables& variable);

}  // namespace moeflux::hub
