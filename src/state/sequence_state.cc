#include "state/sequence_state.h"

#include <algorithm>
#include <utility>

#include "base/units.h"

namespace moeflux {
namespace {

/// Keeps memory that a copy reads until the copy has finished.
class KeptBuffer : public Retained {
 public:
  explicit KeptBuffer(std::shared_ptr<Buffer> buffer) : buffer_(std::move(buffer)) {}

 private:
  std::shared_ptr<Buffer> buffer_;
};

uint64_t conv_bytes(const LayerStateSpec& spec) {
  return static_cast<uint64_t>((spec.conv_taps - 1) * spec.conv_channels) * sizeof(float);
}

uint64_t key_bytes_per_token(const LayerStateSpec& spec) {
  return static_cast<uint64_t>(spec.num_kv_heads * spec.head_dim) * sizeof(float);
}

int64_t ring_pages(const LayerStateSpec& spec, int64_t step_tokens_max) {
  // The first token of a step still sees window - 1 tokens before it, wherever in a page it falls.
  constexpr int64_t kPage = SequenceState::kPageTokens;
  return (spec.window + step_tokens_max + kPage - 1) / kPage + 1;
}

}  // namespace

uint64_t LayerStateSpec::bytes_per_token() const {
  if (kind != StateKind::kKeyValue) return 0;
  const int64_t value_elements = values_in_keys ? 0 : v_head_dim;
  return static_cast<uint64_t>(num_kv_heads * (head_dim + value_elements)) * sizeof(float);
}

uint64_t LayerStateSpec::bytes_fixed() const {
  if (kind != StateKind::kGatedDelta) return 0;
  return conv_bytes(*this) +
         static_cast<uint64_t>(value_heads * key_dim * value_dim) * sizeof(float);
}

int64_t LayerStateSpec::first_read(int64_t length) const {
  return window > 0 ? std::max<int64_t>(0, length - window + 1) : 0;
}

SequenceState::SequenceState(Device& device, std::vector<LayerStateSpec> layers,
                             int64_t step_tokens_max)
    : device_(device), step_tokens_max_(step_tokens_max) {
  layers_.reserve(layers.size());
  for (const LayerStateSpec& spec : layers) {
    layers_.push_back({.spec = spec, .blocks = {}, .k_pages = {}, .v_pages = {}, .delta = {}});
  }
}

Result<std::unique_ptr<SequenceState>> SequenceState::create(Device& device,
                                                             std::vector<LayerStateSpec> layers,
                                                             int64_t step_tokens_max) {
  std::unique_ptr<SequenceState> state(
      new SequenceState(device, std::move(layers), step_tokens_max));
  for (Layer& layer : state->layers_) {
    if (layer.spec.kind != StateKind::kGatedDelta) continue;
    MF_ASSIGN_OR_RETURN(Block block, state->allocate(layer.spec));
    layer.blocks.push_back(std::move(block));
    view_delta(layer);
  }
  return state;
}

std::unique_ptr<SequenceState> SequenceState::share() const {
  return std::unique_ptr<SequenceState>(new SequenceState(*this));
}

Result<SequenceState::Block> SequenceState::allocate(const LayerStateSpec& spec) {
  const uint64_t bytes =
      spec.kind == StateKind::kKeyValue
          ? static_cast<uint64_t>(kPageTokens) * spec.bytes_per_token()
          : spec.bytes_fixed() - conv_bytes(spec) + round_up(conv_bytes(spec), 64);
  MF_ASSIGN_OR_RETURN(std::unique_ptr<Buffer> buffer, device_.allocate(bytes, MemoryKind::kDevice));
  return Block(std::move(buffer));
}

void SequenceState::view_delta(Layer& layer) {
  const LayerStateSpec& spec = layer.spec;
  Buffer& buffer = *layer.blocks.front();
  layer.delta.conv = Tensor::view(buffer, 0, {spec.conv_taps - 1, spec.conv_channels}, DType::kF32);
  layer.delta.delta = Tensor::view(buffer, round_up(conv_bytes(spec), 64),
                                   {spec.value_heads, spec.key_dim, spec.value_dim}, DType::kF32);
}

void SequenceState::view_page(Layer& layer, size_t page) {
  const LayerStateSpec& spec = layer.spec;
  Buffer& buffer = *layer.blocks[page];
  const Tensor keys =
      Tensor::view(buffer, 0, {kPageTokens, spec.num_kv_heads, spec.head_dim}, DType::kF32);
  layer.k_pages[page] = keys;
  layer.v_pages[page] =
      spec.values_in_keys
          ? keys.slice(2, 0, spec.v_head_dim)
          : Tensor::view(buffer, keys.size_bytes(),
                         {kPageTokens, spec.num_kv_heads, spec.v_head_dim}, DType::kF32);
}

int64_t SequenceState::pages_needed(const LayerStateSpec& layer, int64_t length,
                                    int64_t step_tokens_max) {
  if (layer.kind != StateKind::kKeyValue) return 0;
  const int64_t pages = (length + kPageTokens - 1) / kPageTokens;
  return layer.window > 0 ? std::min(pages, ring_pages(layer, step_tokens_max)) : pages;
}

Status SequenceState::reserve(int64_t length, Encoder& encoder) {
  MF_CHECK(length - length_ <= step_tokens_max_);
  torn_ = true;
  Status done = reserve_layers(length, encoder);
  torn_ = false;
  return done;
}

Status SequenceState::reserve_layers(int64_t length, Encoder& encoder) {
  for (Layer& layer : layers_) {
    if (layer.spec.kind == StateKind::kKeyValue) {
      MF_RETURN_IF_ERROR(grow(layer, length));
      MF_RETURN_IF_ERROR(own_pages(layer, length, encoder));
    } else if (length > length_) {
      MF_RETURN_IF_ERROR(own_delta(layer, encoder));
    }
  }
  in_step_ = length > length_;
  return {};
}

Status SequenceState::grow(Layer& layer, int64_t length) {
  const auto pages = static_cast<size_t>(pages_needed(layer.spec, length, step_tokens_max_));
  while (layer.blocks.size() < pages) {
    MF_ASSIGN_OR_RETURN(Block block, allocate(layer.spec));
    layer.blocks.push_back(std::move(block));
    layer.k_pages.emplace_back();
    layer.v_pages.emplace_back();
    view_page(layer, layer.blocks.size() - 1);
  }
  return {};
}

// Pages that the tokens from length_ to `length` are written to become this state's own.
Status SequenceState::own_pages(Layer& layer, int64_t length, Encoder& encoder) {
  if (length <= length_) return {};
  const int64_t last = (length - 1) / kPageTokens;
  for (int64_t page = length_ / kPageTokens; page <= last; ++page) {
    const size_t slot = static_cast<size_t>(page) % layer.blocks.size();
    if (layer.blocks[slot].use_count() == 1) continue;
    MF_ASSIGN_OR_RETURN(Block own, allocate(layer.spec));
    const Block shared = std::exchange(layer.blocks[slot], std::move(own));
    const Tensor keys = layer.k_pages[slot];
    const Tensor values = layer.v_pages[slot];
    view_page(layer, slot);
    // Nobody reads what a page of a ring held before its first token is written anew.
    if (page * kPageTokens >= length_) continue;
    encoder.copy(layer.k_pages[slot], keys);
    if (!layer.spec.values_in_keys) encoder.copy(layer.v_pages[slot], values);
    encoder.keep_alive(std::make_unique<KeptBuffer>(shared));
  }
  if (layer.spec.window > 0) {
    const int64_t overwritten = last + 1 - ring_pages(layer.spec, step_tokens_max_);
    layer.held_from = std::max(layer.held_from, overwritten * kPageTokens);
  }
  return {};
}

Status SequenceState::own_delta(Layer& layer, Encoder& encoder) {
  if (layer.blocks.front().use_count() == 1) return {};
  MF_ASSIGN_OR_RETURN(Block own, allocate(layer.spec));
  const Block shared = std::exchange(layer.blocks.front(), std::move(own));
  const DeltaStateView before = layer.delta;
  view_delta(layer);
  encoder.copy(layer.delta.conv, before.conv);
  encoder.copy(layer.delta.delta, before.delta);
  encoder.keep_alive(std::make_unique<KeptBuffer>(shared));
  return {};
}

bool SequenceState::can_truncate(int64_t length) const {
  if (torn_) return false;
  return std::all_of(layers_.begin(), layers_.end(), [&](const Layer& layer) {
    if (layer.spec.kind == StateKind::kGatedDelta) return length == length_ && !in_step_;
    const int64_t first = layer.spec.first_read(length);
    return first == length || first >= layer.held_from;
  });
}

void SequenceState::truncate(int64_t length) {
  MF_CHECK(length >= 0 && length <= length_ && can_truncate(length));
  // What a ring holds from `length` on was forgotten, so whatever comes will be held.
  for (Layer& layer : layers_) layer.held_from = std::min(layer.held_from, length);
  length_ = length;
  in_step_ = false;
}

int64_t SequenceState::shortest_truncation(std::span<const LayerStateSpec> layers, int64_t length) {
  const bool forgets = std::all_of(layers.begin(), layers.end(), [&](const LayerStateSpec& spec) {
    return spec.kind == StateKind::kKeyValue && spec.first_read(length) == 0;
  });
  return forgets ? 0 : length;
}

KvView SequenceState::key_value(LayerId layer) const {
  const Layer& l = at(layer);
  MF_CHECK(l.spec.kind == StateKind::kKeyValue);
  return {l.k_pages, l.v_pages, kPageTokens, length_};
}

DeltaStateView SequenceState::gated_delta(LayerId layer) const {
  const Layer& l = at(layer);
  MF_CHECK(l.spec.kind == StateKind::kGatedDelta);
  return l.delta;
}

uint64_t SequenceState::layer_bytes(const LayerStateSpec& spec, int64_t length) {
  return spec.bytes_fixed() +
         spec.bytes_per_token() * static_cast<uint64_t>(length - spec.first_read(length));
}

// Calls visit(tensor, offset) for every contiguous piece of the part of the layer's bytes.
template <typename Visit>
Status SequenceState::visit_pieces(const Layer& layer, Part part, const Visit& visit) {
  if (layer.spec.kind == StateKind::kGatedDelta) {
    MF_RETURN_IF_ERROR(visit(layer.delta.conv, 0));
    return visit(layer.delta.delta, conv_bytes(layer.spec));
  }
  const int64_t first = layer.spec.first_read(part.of);
  const uint64_t key_bytes = key_bytes_per_token(layer.spec);
  const uint64_t value_bytes = layer.spec.bytes_per_token() - key_bytes;
  const uint64_t values_begin = key_bytes * static_cast<uint64_t>(part.of - first);
  for (int64_t begin = first; begin < part.length;) {
    const int64_t row = begin % kPageTokens;
    const int64_t rows = std::min(kPageTokens - row, part.length - begin);
    const size_t slot = static_cast<size_t>(begin / kPageTokens) % layer.blocks.size();
    const auto done = static_cast<uint64_t>(begin - first);
    MF_RETURN_IF_ERROR(visit(layer.k_pages[slot].slice(0, row, rows), done * key_bytes));
    if (value_bytes > 0) {
      MF_RETURN_IF_ERROR(
          visit(layer.v_pages[slot].slice(0, row, rows), values_begin + done * value_bytes));
    }
    begin += rows;
  }
  return {};
}

Status SequenceState::read_layer(Encoder& encoder, LayerId layer, std::span<std::byte> into) const {
  MF_CHECK(into.size() == layer_bytes(spec(layer), length_));
  const Part all{length_, length_};
  return visit_pieces(at(layer), all, [&](const Tensor& piece, uint64_t offset) {
    return encoder.read(into.subspan(offset, piece.size_bytes()), piece);
  });
}

Status SequenceState::fill(Encoder& encoder, Part part,
                           std::span<const std::span<const std::byte>> layers) {
  MF_CHECK(length_ == 0 && layers.size() == layers_.size());
  for (size_t i = 0; i < layers.size(); ++i) {
    Layer& layer = layers_[i];
    MF_CHECK(layers[i].size() == layer_bytes(layer.spec, part.of));
    MF_CHECK(part.length == part.of || shortest_truncation({&layer.spec, 1}, part.of) == 0);
    if (layer.spec.kind == StateKind::kKeyValue) MF_RETURN_IF_ERROR(grow(layer, part.length));
    layer.held_from = layer.spec.first_read(part.of);
    MF_RETURN_IF_ERROR(visit_pieces(layer, part, [&](const Tensor& piece, uint64_t offset) {
      encoder.write(piece, layers[i].subspan(offset, piece.size_bytes()));
      return Status();
    }));
  }
  MF_RETURN_IF_ERROR(encoder.wait(encoder.submit()));
  length_ = part.length;
  return {};
}

uint64_t SequenceState::size_bytes() const {
  uint64_t bytes = 0;
  for (const Layer& layer : layers_) {
    for (const Block& block : layer.blocks) bytes += block->size_bytes();
  }
  return bytes;
}

}  // namespace moeflux
