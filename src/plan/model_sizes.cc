#include "plan/model_sizes.h"

#include <algorithm>

#include "base/format.h"
#include "plan/cost_model.h"

namespace moeflux {

ModelSizes measure_model(const LoadedModel& model) {
  ModelSizes sizes;
  sizes.parameters = model.dense.parameters + model.dense.table_parameters;
  sizes.table_bytes = model.dense.table_bytes;
  sizes.active_parameters = model.dense.parameters - model.dense.lookup_parameters;
  sizes.dense_bytes = model.dense.stored_bytes;
  for (size_t i = 0; i < model.experts.layers.size(); ++i) {
    const ExpertLayer& layer = model.experts.layers[i];
    if (layer.num_experts == 0) continue;
    const auto count = static_cast<uint64_t>(layer.num_experts);
    const auto used = static_cast<uint64_t>(model.spec().layers[i].moe.experts_per_token);
    sizes.experts += count;
    sizes.parameters += count * layer.parameters_per_expert();
    sizes.active_parameters += used * layer.parameters_per_expert();
    sizes.bytes_per_expert = std::max(sizes.bytes_per_expert, layer.bytes_per_expert());
    sizes.experts_bytes += count * layer.bytes_per_expert();
    sizes.active_experts_bytes_per_token += used * layer.bytes_per_expert();
  }
  sizes.active_bytes_per_token =
      sizes.dense_bytes - model.dense.lookup_bytes + sizes.active_experts_bytes_per_token;
  for (const LayerStateSpec& layer : model.states()) {
    sizes.kv_bytes_per_token += layer.bytes_per_token();
    sizes.recurrent_bytes += layer.bytes_fixed();
  }
  return sizes;
}

std::map<std::string, uint64_t> expert_bytes_by_format(const ExpertTable& experts) {
  std::map<std::string, uint64_t> bytes;
  for (const ExpertLayer& layer : experts.layers) {
    if (layer.num_experts == 0) continue;
    const QuantFormat& gate = layer.gate.format;
    const bool same = layer.up.format == gate && layer.down.format == gate;
    uint64_t& own =
        bytes[same ? gate.to_string()
                   : formatted("{}, {}, {}", gate.to_string(), layer.up.format.to_string(),
                               layer.down.format.to_string())];
    own = std::max(own, layer.bytes_per_expert());
  }
  return bytes;
}

double expected_expert_bytes(const LoadedModel& model, int64_t tokens) {
  double bytes = 0.0;
  for (size_t i = 0; i < model.experts.layers.size(); ++i) {
    const ExpertLayer& layer = model.experts.layers[i];
    if (layer.num_experts == 0) continue;
    const int64_t top_k = model.spec().layers[i].moe.experts_per_token;
    bytes += distinct_experts(layer.num_experts, top_k, tokens) *
             static_cast<double>(layer.bytes_per_expert());
  }
  return bytes;
}

double state_bytes_seen(const LoadedModel& model, int64_t length) {
  double bytes = 0.0;
  for (const LayerStateSpec& layer : model.states()) {
    bytes += static_cast<double>(layer.bytes_seen(length));
  }
  return bytes;
}

double state_bytes_moved(std::span<const LayerStateSpec> states, int64_t length) {
  double bytes = 0.0;
  for (const LayerStateSpec& layer : states) {
    bytes += static_cast<double>(layer.bytes_seen(length) + layer.bytes_fixed());
  }
  return bytes;
}

double mean_expert_bytes(const ExpertTable& experts) {
  double bytes = 0.0;
  int layers = 0;
  for (const ExpertLayer& layer : experts.layers) {
    if (layer.num_experts == 0) continue;
    bytes += static_cast<double>(layer.bytes_per_expert());
    ++layers;
  }
  return layers == 0 ? 0.0 : bytes / layers;
}

}  // namespace moeflux
