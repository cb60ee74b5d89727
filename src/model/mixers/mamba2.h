// Mamba-2: a causal convolution over x, B and C, the selective scan, a gate and then a norm.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "backend/ops/selective_scan.h"
#include "model/mixer.h"

namespace moeflux {

struct Mamba2Spec : MixerSpec {
  ScanOptions scan;
  int64_t conv_taps = 0;
  bool conv_bias = true;
  int64_t norm_groups = 1;  // parts of a row that are normed by themselves

  int64_t inner() const { return scan.heads * scan.head_dim; }

  std::string_view kind() const override { return "mamba2"; }
  LayerStateSpec state(const CacheTypes& types) const override;
  std::unique_ptr<Mixer> take(WeightStore& weights, const MixerPlace& place) const override;
  Json config_value(std::string_view key) const override;
};

}  // namespace moeflux
