#include "state/sequence_state.h"

#include <utility>

#include "base/units.h"

namespace moeflux {

uint64_t LayerStateSpec::bytes_per_token() const {
  if (kind != StateKind::kKeyValue) return 0;
  return static_cast<uint64_t>(num_kv_heads * (head_dim + v_head_dim)) * sizeof(float);
}

uint64_t LayerStateSpec::bytes_fixed() const {
  if (kind != StateKind::kGatedDelta) return 0;
  return static_cast<uint64_t>((conv_taps - 1) * conv_channels +
                               value_heads * key_dim * value_dim) *
         sizeof(float);
}

SequenceState::SequenceState(Device& device, std::vector<LayerStateSpec> layers) : device_(device) {
  layers_.reserve(layers.size());
  for (const LayerStateSpec& spec : layers) layers_.push_back({spec, {}, {}, {}});
}

Result<Buffer*> SequenceState::allocate(uint64_t bytes) {
  MF_ASSIGN_OR_RETURN(std::unique_ptr<Buffer> buffer, device_.allocate(bytes, MemoryKind::kDevice));
  buffers_.push_back(std::move(buffer));
  return buffers_.back().get();
}

Result<std::unique_ptr<SequenceState>> SequenceState::create(Device& device,
                                                             std::vector<LayerStateSpec> layers) {
  std::unique_ptr<SequenceState> state(new SequenceState(device, std::move(layers)));
  for (Layer& layer : state->layers_) {
    const LayerStateSpec& spec = layer.spec;
    if (spec.kind != StateKind::kGatedDelta) continue;
    const Shape conv{spec.conv_taps - 1, spec.conv_channels};
    const uint64_t conv_bytes =
        round_up(static_cast<uint64_t>(conv.num_elements()) * sizeof(float), 64);
    const Shape delta{spec.value_heads, spec.key_dim, spec.value_dim};
    const uint64_t delta_bytes = static_cast<uint64_t>(delta.num_elements()) * sizeof(float);
    MF_ASSIGN_OR_RETURN(Buffer * buffer, state->allocate(conv_bytes + delta_bytes));
    layer.delta.conv = Tensor::view(*buffer, 0, conv, DType::kF32);
    layer.delta.delta = Tensor::view(*buffer, conv_bytes, delta, DType::kF32);
  }
  return state;
}

Status SequenceState::reserve(int64_t length) {
  const auto pages = static_cast<size_t>((length + kPageTokens - 1) / kPageTokens);
  for (Layer& layer : layers_) {
    if (layer.spec.kind != StateKind::kKeyValue) continue;
    const Shape k{kPageTokens, layer.spec.num_kv_heads, layer.spec.head_dim};
    const Shape v{kPageTokens, layer.spec.num_kv_heads, layer.spec.v_head_dim};
    const uint64_t k_bytes = static_cast<uint64_t>(k.num_elements()) * sizeof(float);
    while (layer.k_pages.size() < pages) {
      MF_ASSIGN_OR_RETURN(Buffer * buffer, allocate(static_cast<uint64_t>(kPageTokens) *
                                                    layer.spec.bytes_per_token()));
      layer.k_pages.push_back(Tensor::view(*buffer, 0, k, DType::kF32));
      layer.v_pages.push_back(Tensor::view(*buffer, k_bytes, v, DType::kF32));
    }
  }
  return {};
}

KvView SequenceState::key_value(LayerId layer) const {
  const Layer& l = layers_[static_cast<size_t>(index(layer))];
  MF_CHECK(l.spec.kind == StateKind::kKeyValue);
  return {l.k_pages, l.v_pages, kPageTokens, length_};
}

DeltaStateView SequenceState::gated_delta(LayerId layer) const {
  const Layer& l = layers_[static_cast<size_t>(index(layer))];
  MF_CHECK(l.spec.kind == StateKind::kGatedDelta);
  return l.delta;
}

uint64_t SequenceState::size_bytes() const {
  uint64_t bytes = 0;
  for (const auto& buffer : buffers_) bytes += buffer->size_bytes();
  return bytes;
}

}  // namespace moeflux
