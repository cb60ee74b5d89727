// What the launches of one expert_ffn share, and what is remembered of it for experts that stay.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "backend/gpu/gpu_encoder.h"

namespace moeflux::gpu {

/// What the launches for experts of one set of formats share.
struct GpuEncoder::ExpertLaunch {
  Routes routes;
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
  bool wide_scales = true;
  bool wide_down_scales = true;
  // Experts that lie evenly need no lookup: expert i is the first and i strides.
  ExpertEntry first{};
  uint64_t stride = 0;  // 0: they do not
};

/// What two launches compute for few slots: experts, a network for every token, or both.
struct GpuEncoder::FewSlots {
  const ExpertWeights* like = nullptr;  // null: the network alone
  ExpertLaunch launch;
  Tensor slots;
  Tensor intermediate;
  Tensor x;
  GluOptions glu;
  bool chooses = false;  // the routes too
  WaitingRoute route;
  bool has_ffn = false;
  WaitingFfn ffn;
};

/// Experts that stay as long as the owner lives. Their table is not looked at after that.
struct GpuEncoder::StayingExperts {
  std::weak_ptr<const std::vector<ExpertWeights>> owner;
  const ExpertWeights* data = nullptr;
  size_t count = 0;
  bool is_known = false;  // all run in the same kernels, launch and table are made
  ExpertLaunch launch;
  std::unique_ptr<Buffer> table;
};

}  // namespace moeflux::gpu
