#include "state/sequence_state.h"

#include <algorithm>
#include <utility>

#include "base/units.h"

namespace moeflux {

uint64_t LayerStateSpec::bytes_per_token() const {
  if (kind != StateKind::kKeyValue) return 0;
  const int64_t value_elements = values_in_keys ? 0 : v_head_dim;
  return static_cast<uint64_t>(num_kv_heads * (head_dim + value_elements)) * sizeof(float);
}

uint64_t LayerStateSpec::bytes_fixed() const {
  if (kind != StateKind::kGatedDelta) return 0;
  return static_cast<uint64_t>((conv_taps - 1) * conv_channels +
                               value_heads * key_dim * value_dim) *
         sizeof(float);
}

SequenceState::SequenceState(Device& device, std::vector<LayerStateSpec> layers,
                             int64_t step_tokens_max)
    : device_(device), step_tokens_max_(step_tokens_max) {
  layers_.reserve(layers.size());
  for (const LayerStateSpec& spec : layers) layers_.push_back({spec, {}, {}, {}});
}

Result<Buffer*> SequenceState::allocate(uint64_t bytes) {
  MF_ASSIGN_OR_RETURN(std::unique_ptr<Buffer> buffer, device_.allocate(bytes, MemoryKind::kDevice));
  buffers_.push_back(std::move(buffer));
  return buffers_.back().get();
}

Result<std::unique_ptr<SequenceState>> SequenceState::create(Device& device,
                                                             std::vector<LayerStateSpec> layers,
                                                             int64_t step_tokens_max) {
  std::unique_ptr<SequenceState> state(
      new SequenceState(device, std::move(layers), step_tokens_max));
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

int64_t SequenceState::pages_needed(const LayerStateSpec& layer, int64_t length,
                                    int64_t step_tokens_max) {
  if (layer.kind != StateKind::kKeyValue) return 0;
  const int64_t pages = (length + kPageTokens - 1) / kPageTokens;
  if (layer.window <= 0) return pages;
  // The first token of a step still sees window - 1 tokens before it, wherever in a page it falls.
  const int64_t ring = (layer.window + step_tokens_max + kPageTokens - 1) / kPageTokens + 1;
  return std::min(pages, ring);
}

Status SequenceState::reserve(int64_t length) {
  MF_CHECK(length - length_ <= step_tokens_max_);
  for (Layer& layer : layers_) {
    const LayerStateSpec& spec = layer.spec;
    const auto pages = static_cast<size_t>(pages_needed(spec, length, step_tokens_max_));
    const Shape k{kPageTokens, spec.num_kv_heads, spec.head_dim};
    const Shape v{kPageTokens, spec.num_kv_heads, spec.v_head_dim};
    const uint64_t k_bytes = static_cast<uint64_t>(k.num_elements()) * sizeof(float);
    while (layer.k_pages.size() < pages) {
      MF_ASSIGN_OR_RETURN(Buffer * buffer,
                          allocate(static_cast<uint64_t>(kPageTokens) * spec.bytes_per_token()));
      layer.k_pages.push_back(Tensor::view(*buffer, 0, k, DType::kF32));
      layer.v_pages.push_back(spec.values_in_keys
                                  ? layer.k_pages.back().slice(2, 0, spec.v_head_dim)
                                  : Tensor::view(*buffer, k_bytes, v, DType::kF32));
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
