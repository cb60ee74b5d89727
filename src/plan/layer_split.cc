#include "plan/layer_split.h"

#include <numeric>

#include "base/check.h"

namespace moeflux {

std::vector<uint64_t> layer_bytes(const LoadedModel& counted, int64_t context,
                                  int64_t step_tokens) {
  std::vector<uint64_t> bytes;
  for (const LayerStateSpec& state : counted.states()) {
    bytes.push_back(SequenceState::bytes_held(state, context, step_tokens));
  }
  for (const ClaimedModule& module : counted.modules) {
    if (const auto layer = module.layer()) {
      bytes[static_cast<size_t>(index(*layer))] += module.placed_bytes;
    }
  }
  for (size_t i = 0; i < counted.experts.layers.size(); ++i) {
    const ExpertLayer& layer = counted.experts.layers[i];
    bytes[i] += static_cast<uint64_t>(layer.num_experts) * layer.slot_bytes;
  }
  return bytes;
}

std::vector<size_t> split_layers(const ModelSpec& spec, std::span<const uint64_t> layer_bytes,
                                 std::span<const uint64_t> free_bytes) {
  MF_CHECK(layer_bytes.size() == spec.layers.size() && !free_bytes.empty());
  // The earlier layer that it has to be with, or itself.
  const auto owner = [&](size_t layer) {
    while (true) {
      const LayerSpec& s = spec.layers[layer];
      const int64_t other = s.pass_over >= 0 ? s.pass_over
                            : s.mixer        ? s.mixer->reads_state_of()
                                             : -1;
      if (other < 0) return layer;
      layer = static_cast<size_t>(other);
    }
  };
  std::vector<double> together(layer_bytes.size());
  double all = 0.0;
  for (size_t i = 0; i < layer_bytes.size(); ++i) {
    together[owner(i)] += static_cast<double>(layer_bytes[i]);
    all += static_cast<double>(layer_bytes[i]);
  }
  const double room = std::accumulate(free_bytes.begin(), free_bytes.end(), 0.0);
  // Devices without memory of their own get equal shares.
  const auto share = [&](size_t device) {
    return room > 0.0 ? static_cast<double>(free_bytes[device]) / room
                      : 1.0 / static_cast<double>(free_bytes.size());
  };
  std::vector<size_t> devices(layer_bytes.size());
  size_t device = 0;
  double end = share(0) * all;  // of what devices up to this one have
  double done = 0.0;
  for (size_t i = 0; i < devices.size(); ++i) {
    // A layer goes where its middle lies.
    while (done + together[i] / 2 > end && device + 1 < free_bytes.size()) {
      end += share(++device) * all;
    }
    done += together[i];
    devices[i] = device;
  }
  for (size_t i = 0; i < devices.size(); ++i) devices[i] = devices[owner(i)];
  return devices;
}

}  // namespace moeflux
