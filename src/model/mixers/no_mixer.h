// The mixer of a layer that has none: a network alone.
#pragma once

#include <memory>
#include <string_view>

#include "base/json.h"
#include "model/mixer.h"

namespace moeflux {

struct NoMixerSpec : MixerSpec {
  std::string_view kind() const override { return "none"; }
  LayerStateSpec state(const CacheTypes&) const override { return {}; }
  /// Null.
  std::unique_ptr<Mixer> take(WeightStore& weights, const MixerPlace& place) const override;
  Json config_value(std::string_view) const override { return nullptr; }
};

inline bool is_mixer(const MixerSpec& spec) {
  return dynamic_cast<const NoMixerSpec*>(&spec) == nullptr;
}

}  // namespace moeflux
