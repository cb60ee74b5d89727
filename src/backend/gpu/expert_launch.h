// What the launches of one expert_ffn share.
#pragma once

#include <cstdint>

#include "backend/gpu/gpu_encoder.h"

namespace moeflux::gpu {

/// What the launches for experts of one set of formats share.
struct GpuEncoder::ExpertLaunch {
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
  bool use_units = false;
  bool wide_scales = true;
  bool wide_down_scales = true;
  uint32_t x_rows = 0;
  uint32_t hidden = 0;
  uint32_t intermediate = 0;
  Binding split;  // room for the halves of activations
};

}  // namespace moeflux::gpu
