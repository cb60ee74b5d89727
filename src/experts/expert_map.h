// The places of a model's experts at one moment, and their uses: a copy that any thread may read.
#pragma once

#include <cstdint>
#include <vector>

namespace moeflux {

/// The fastest memory that has all of an expert.
enum class ExpertPlace : uint8_t { kDrive = 0, kHost = 1, kDevice = 2 };

struct ExpertMap {
  // As shape_of() the model's table; an expert's index is layer * num_experts + expert.
  int32_t num_layers = 0;
  int32_t num_experts = 0;
  std::vector<ExpertPlace> places = {};  // by index
  std::vector<uint64_t> uses = {};       // the same, by decoded tokens; empty: nobody counts
  uint64_t number = 0;                   // of this map, from 1
};

}  // namespace moeflux
