#include "state/sequence_state.h"

#include <algorithm>
#include <utility>

namespace moeflux {
namespace {

/// Keeps memory that a copy reads until the copy has finished.
class KeptBlock : public Retained {
 public:
  explicit KeptBlock(std::shared_ptr<const void> block) : block_(std::move(block)) {}

 private:
  std::shared_ptr<const void> block_;
};

StateMemory::Use use_of(const StateTensor& spec) {
  const bool keeps_all = spec.is_per_token() && spec.window == 0;
  return keeps_all ? StateMemory::Use::kPages : StateMemory::Use::kEveryStep;
}

int64_t pages_needed(int64_t length) {
  return (length + SequenceState::kPageTokens - 1) / SequenceState::kPageTokens;
}

int64_t ring_pages(const StateTensor& spec, int64_t step_tokens_max) {
  // The first token of a step still sees window - 1 tokens before it, wherever in a page it falls.
  return pages_needed(spec.window + step_tokens_max) + 1;
}

int64_t pages_held(const StateTensor& spec, int64_t length, int64_t step_tokens_max) {
  const int64_t pages = pages_needed(length);
  return spec.window > 0 ? std::min(pages, ring_pages(spec, step_tokens_max)) : pages;
}

}  // namespace

SequenceState::SequenceState(std::shared_ptr<StateMemory> memory,
                             std::vector<LayerStateSpec> layers, int64_t step_tokens_max)
    : memory_(std::move(memory)), step_tokens_max_(step_tokens_max) {
  layers_.reserve(layers.size());
  for (LayerStateSpec& spec : layers) {
    Layer layer;
    for (const StateTensor& tensor : spec.tensors) {
      const LayerId id{static_cast<int32_t>(layers_.size())};
      layer.tensors.push_back({.spec = tensor, .layer = id, .blocks = {}, .views = {}});
    }
    layer.spec = std::move(spec);
    layers_.push_back(std::move(layer));
  }
}

Result<std::unique_ptr<SequenceState>> SequenceState::create(Device& device,
                                                             std::vector<LayerStateSpec> layers,
                                                             int64_t step_tokens_max) {
  return create(std::make_shared<StateMemory>(device), std::move(layers), step_tokens_max);
}

Result<std::unique_ptr<SequenceState>> SequenceState::create(std::shared_ptr<StateMemory> memory,
                                                             std::vector<LayerStateSpec> layers,
                                                             int64_t step_tokens_max,
                                                             Encoder* encoder) {
  std::unique_ptr<SequenceState> state(
      new SequenceState(std::move(memory), std::move(layers), step_tokens_max));
  for (Layer& layer : state->layers_) {
    for (Held& held : layer.tensors) {
      if (!held.spec.is_per_token()) {
        MF_RETURN_IF_ERROR(state->add_blocks(held, 1, encoder));
      }
    }
  }
  return state;
}

std::unique_ptr<SequenceState> SequenceState::share() const {
  return std::unique_ptr<SequenceState>(new SequenceState(*this));
}

// Memory that was given back, with zeros on their way to it; null where there is none.
SequenceState::Block SequenceState::take_cleared(const Held& held, uint64_t bytes,
                                                 Encoder& encoder) {
  auto spare = memory_->take_spare(bytes, use_of(held.spec), held.layer, held.spec.num_own_heads());
  auto zeros = spare != nullptr ? memory_->zeros(bytes, held.layer) : nullptr;
  if (zeros == nullptr) return nullptr;
  auto block = std::make_shared<const BlockMemory>(BlockMemory{std::move(spare), 0, bytes});
  const BlockMemory cleared{std::move(zeros), 0, bytes};
  encoder.run(ops::Copy{words_of(*block, held.spec), words_of(cleared, held.spec)});
  encoder.keep_alive(std::make_unique<KeptBlock>(block));
  encoder.keep_alive(std::make_unique<KeptBlock>(cleared.buffer));
  return block;
}

Result<std::vector<SequenceState::Block>> SequenceState::allocate(const Held& held, size_t count,
                                                                  Encoder* encoder) {
  const StateTensor& spec = held.spec;
  const uint64_t tokens = spec.is_per_token() ? static_cast<uint64_t>(kPageTokens) : 1;
  const uint64_t bytes = tokens * spec.bytes();
  const StateMemory::Use use = use_of(spec);
  std::vector<Block> blocks;
  while (blocks.size() < count) {
    if (Block block = encoder != nullptr ? take_cleared(held, bytes, *encoder) : nullptr) {
      blocks.push_back(std::move(block));
      continue;
    }
    MF_ASSIGN_OR_RETURN(
        const StateMemory::Blocks taken,
        memory_->take(bytes, count - blocks.size(), use, held.layer, spec.num_own_heads()));
    for (size_t i = 0; i < taken.count; ++i) {
      blocks.push_back(
          std::make_shared<const BlockMemory>(BlockMemory{taken.buffer, i * bytes, bytes}));
    }
  }
  return blocks;
}

// A block as f32, whatever its type: what copies move.
Tensor SequenceState::words_of(const BlockMemory& block, const StateTensor& spec) {
  Buffer& buffer = *block.buffer;
  if (!spec.is_per_token()) {
    return Tensor::view(buffer, block.offset_bytes, spec.shape, DType::kF32);
  }
  constexpr auto kWord = static_cast<int64_t>(sizeof(float));
  const Shape shape{kPageTokens / kWord, static_cast<int64_t>(spec.bytes())};
  return Tensor::view(buffer, block.offset_bytes, shape, DType::kF32);
}

void SequenceState::view_block(Held& held, size_t block) {
  Shape shape = held.spec.shape;
  if (held.spec.is_per_token()) {
    std::vector<int64_t> extents = {kPageTokens};
    for (int i = 0; i < shape.rank(); ++i) extents.push_back(shape[i]);
    shape = Shape(extents);
  }
  const BlockMemory& memory = *held.blocks[block];
  held.views[block] = Tensor::view(*memory.buffer, memory.offset_bytes, shape, held.spec.dtype);
}

Status SequenceState::add_blocks(Held& held, size_t count, Encoder* encoder) {
  MF_ASSIGN_OR_RETURN(std::vector<Block> blocks, allocate(held, count, encoder));
  for (Block& block : blocks) {
    held.views.emplace_back();
    held.blocks.push_back(std::move(block));
    view_block(held, held.blocks.size() - 1);
  }
  return {};
}

uint64_t SequenceState::bytes_held(const LayerStateSpec& layer, int64_t length,
                                   int64_t step_tokens_max) {
  uint64_t bytes = 0;
  for (const StateTensor& tensor : layer.tensors) {
    const int64_t count =
        tensor.is_per_token() ? kPageTokens * pages_held(tensor, length, step_tokens_max) : 1;
    bytes += static_cast<uint64_t>(count) * tensor.bytes();
  }
  return bytes;
}

Status SequenceState::reserve(int64_t length, Encoder& encoder) {
  MF_CHECK(length - length_ <= step_tokens_max_);
  torn_ = true;
  Status done;
  for (Layer& layer : layers_) {
    for (Held& held : layer.tensors) {
      if (done.ok()) done = reserve_tensor(held, length, encoder);
    }
  }
  if (done.ok()) in_step_ = length > length_;
  torn_ = false;
  return done;
}

Status SequenceState::reserve_tensor(Held& held, int64_t length, Encoder& encoder) {
  if (held.spec.is_per_token()) {
    MF_RETURN_IF_ERROR(grow(held, length, encoder));
    if (length <= length_) return {};
    return own_pages(held, std::max<int64_t>(0, length_ - held.spec.behind), length, encoder);
  }
  return length > length_ ? own_block(held, 0, true, encoder) : Status();
}

Status SequenceState::reserve_rows(LayerId layer, int64_t begin, int64_t end, Encoder& encoder) {
  MF_CHECK(begin >= 0 && begin < end && end - begin <= step_tokens_max_);
  torn_ = true;
  Status done;
  for (Held& held : layers_[static_cast<size_t>(index(layer))].tensors) {
    if (held.spec.behind == 0) continue;
    if (done.ok()) done = grow(held, end, encoder);
    if (done.ok()) done = own_pages(held, begin, end, encoder);
  }
  torn_ = false;
  return done;
}

Status SequenceState::grow(Held& held, int64_t length, Encoder& encoder) {
  const auto pages = static_cast<size_t>(pages_held(held.spec, length, step_tokens_max_));
  const size_t held_pages = held.blocks.size();
  return pages > held_pages ? add_blocks(held, pages - held_pages, &encoder) : Status();
}

// Pages that rows from `begin` to `end` are written to become this state's own.
Status SequenceState::own_pages(Held& held, int64_t begin, int64_t end, Encoder& encoder) {
  const int64_t last = (end - 1) / kPageTokens;
  for (int64_t page = begin / kPageTokens; page <= last; ++page) {
    // Nobody reads what a page of a ring held before its first token is written anew.
    const bool is_read = page * kPageTokens < length_;
    const size_t slot = static_cast<size_t>(page) % held.blocks.size();
    MF_RETURN_IF_ERROR(own_block(held, slot, is_read, encoder));
  }
  if (held.spec.window > 0) {
    const int64_t overwritten = last + 1 - ring_pages(held.spec, step_tokens_max_);
    held.held_from = std::max(held.held_from, overwritten * kPageTokens);
  }
  return {};
}

// A block that others share is left to them; the new one gets its contents where they are read.
Status SequenceState::own_block(Held& held, size_t block, bool is_read, Encoder& encoder) {
  if (held.blocks[block].use_count() == 1) return {};
  const uint64_t bytes = held.blocks[block]->size_bytes;
  Block own;
  const int64_t heads = held.spec.num_own_heads();
  if (auto spare =
          is_read ? memory_->take_spare(bytes, use_of(held.spec), held.layer, heads) : nullptr) {
    own = std::make_shared<const BlockMemory>(BlockMemory{std::move(spare), 0, bytes});
  } else {
    MF_ASSIGN_OR_RETURN(const std::vector<Block> taken, allocate(held, 1, &encoder));
    own = taken.front();
  }
  const Block shared = std::exchange(held.blocks[block], std::move(own));
  view_block(held, block);
  if (!is_read) return {};
  encoder.run(ops::Copy{words_of(*held.blocks[block], held.spec), words_of(*shared, held.spec)});
  encoder.keep_alive(std::make_unique<KeptBlock>(shared));
  return {};
}

bool SequenceState::can_truncate(int64_t length) const {
  if (torn_) return false;
  const auto holds = [&](const Held& held) {
    if (!held.spec.is_per_token()) return length == length_ && !in_step_;
    const int64_t first = held.spec.first_read(length);
    return first == length || first >= held.held_from;
  };
  return std::ranges::all_of(
      layers_, [&](const Layer& layer) { return std::ranges::all_of(layer.tensors, holds); });
}

void SequenceState::truncate(int64_t length) {
  MF_CHECK(length >= 0 && length <= length_ && can_truncate(length));
  // A ring has forgotten the tokens from `length` on, so whatever comes will be held.
  for (Layer& layer : layers_) {
    for (Held& held : layer.tensors) held.held_from = std::min(held.held_from, length);
  }
  length_ = length;
  in_step_ = false;
}

int64_t SequenceState::shortest_truncation(std::span<const LayerStateSpec> layers, int64_t length) {
  const auto forgets = [&](const StateTensor& tensor) {
    return tensor.is_per_token() && tensor.first_read(length) == 0;
  };
  const bool all_forget = std::ranges::all_of(layers, [&](const LayerStateSpec& layer) {
    return std::ranges::all_of(layer.tensors, forgets);
  });
  return all_forget ? 0 : length;
}

std::span<const Tensor> SequenceState::pages(LayerId layer, size_t tensor) const {
  const Held& held = at(layer).tensors.at(tensor);
  MF_CHECK(held.spec.is_per_token());
  return held.views;
}

Tensor SequenceState::fixed(LayerId layer, size_t tensor) const {
  const Held& held = at(layer).tensors.at(tensor);
  MF_CHECK(!held.spec.is_per_token());
  return held.views.front();
}

KvView SequenceState::key_value(LayerId layer) const {
  const size_t values = at(layer).tensors.size() > 1 ? 1 : 0;
  return key_value(layer, 0, values);
}

KvView SequenceState::key_value(LayerId layer, size_t keys, size_t values) const {
  return {pages(layer, keys), pages(layer, values), kPageTokens, length_};
}

// Calls visit(tensor, offset) for every contiguous piece of the part of the tensor's bytes.
template <typename Visit>
Status SequenceState::visit_pieces(const Held& held, Part part, const Visit& visit) {
  if (!held.spec.is_per_token()) return visit(held.views.front(), 0);
  const int64_t first = held.spec.first_read(part.of);
  for (int64_t begin = first; begin < part.length;) {
    const int64_t row = begin % kPageTokens;
    const int64_t rows = std::min(kPageTokens - row, part.length - begin);
    const size_t slot = static_cast<size_t>(begin / kPageTokens) % held.blocks.size();
    MF_RETURN_IF_ERROR(visit(held.views[slot].slice(0, row, rows),
                             static_cast<uint64_t>(begin - first) * held.spec.bytes()));
    begin += rows;
  }
  return {};
}

Status SequenceState::read_layer(Encoder& encoder, LayerId layer, std::span<std::byte> into) const {
  MF_CHECK(into.size() == layer_bytes(spec(layer), length_));
  for (const Held& held : at(layer).tensors) {
    MF_RETURN_IF_ERROR(
        visit_pieces(held, {length_, length_}, [&](const Tensor& piece, uint64_t offset) {
          return encoder.read(into.subspan(offset, piece.size_bytes()), piece);
        }));
    into = into.subspan(held.spec.bytes_after(length_));
  }
  return {};
}

Status SequenceState::fill(Encoder& encoder, Part part,
                           std::span<const std::span<const std::byte>> layers) {
  MF_CHECK(length_ == 0 && layers.size() == layers_.size());
  for (size_t i = 0; i < layers.size(); ++i) {
    Layer& layer = layers_[i];
    std::span<const std::byte> from = layers[i];
    MF_CHECK(from.size() == layer_bytes(layer.spec, part.of));
    MF_CHECK(part.length == part.of || shortest_truncation({&layer.spec, 1}, part.of) == 0);
    for (Held& held : layer.tensors) {
      if (held.spec.is_per_token()) MF_RETURN_IF_ERROR(grow(held, part.length, encoder));
      held.held_from = held.spec.first_read(part.of);
      MF_RETURN_IF_ERROR(visit_pieces(held, part, [&](const Tensor& piece, uint64_t offset) {
        encoder.write(piece, from.subspan(offset, piece.size_bytes()));
        return Status();
      }));
      from = from.subspan(held.spec.bytes_after(part.of));
    }
  }
  MF_RETURN_IF_ERROR(encoder.wait(encoder.submit()));
  length_ = part.length;
  return {};
}

uint64_t SequenceState::size_bytes() const {
  uint64_t bytes = 0;
  for (const Layer& layer : layers_) {
    for (const Held& held : layer.tensors) {
      for (const Block& block : held.blocks) bytes += block->size_bytes;
    }
  }
  return bytes;
}

}  // namespace moeflux
