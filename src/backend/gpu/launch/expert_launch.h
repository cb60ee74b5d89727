// The common data of one expert_ffn's launches.
#pragma once

#include <cstdint>

#include "backend/gpu/launch/plan.h"
#include "backend/ops/expert_ffn.h"

namespace moeflux::gpu {

/// The common data of launches for experts of one set of formats.
struct ExpertLaunch {
  const ExpertWeights* like = nullptr;  // one of them
  Binding ids;
  Binding map;
  Binding entries;
  Binding list;
  Binding tiles;
  uint32_t num_ids = 0;
  uint32_t num_entries = 0;
  uint32_t slots = 0;
  uint32_t top_k = 0;
  uint32_t tile = 1;
  uint32_t groups = 0;  // slots, or the most tiles there can be
  bool wide_gate = true;
  bool wide_up = true;
  bool wide_down = true;
  bool use_tiles = false;
  // On matrix units.
  bool uses_mma = false;
  bool takes_many = true;  // slots that share a read
  bool wide_scales = true;
  bool wide_down_scales = true;
  // Experts that lie evenly need no lookup: expert i is the first and i strides.
  ExpertEntry first{};
  uint64_t stride = 0;  // 0: they do not
  // Entries as a launch before leaves them that brings experts from far memory for few slots.
  Binding fetched;
  FetchParams fetch{};  // no places: none does
};

}  // namespace moeflux::gpu
