#include "state/sequence_state.h"

#include <algorithm>
#include <map>
#include <utility>

namespace moeflux {
namespace {

StateMemory::Use use_of(const StateTensor& spec) {
  const bool keeps_all = spec.is_per_token() && spec.window == 0;
  return keeps_all ? StateMemory::Use::kPages : StateMemory::Use::kEveryStep;
}

uint64_t block_bytes(const StateTensor& spec) {
  const auto tokens = static_cast<uint64_t>(spec.is_per_token() ? SequenceState::kPageTokens : 1);
  return tokens * spec.bytes();
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
  MF_RETURN_IF_ERROR(state->renew(state->layers_, {}, encoder));
  return state;
}

std::unique_ptr<SequenceState> SequenceState::share() const {
  return std::unique_ptr<SequenceState>(new SequenceState(*this));
}

// A block of a ring takes the place of the one whose tokens are furthest back.
template <typename Use>
Status SequenceState::visit_needs(Held& held, const Rows& rows, const Use& use) const {
  if (rows.only_behind && held.spec.behind == 0) return {};
  const size_t held_blocks = held.blocks.size();
  const bool may_come = rows.comes_near && use_of(held.spec) == StateMemory::Use::kEveryStep;
  const auto is_replaced = [&](size_t block) {
    if (block >= held_blocks) return false;
    return held.blocks[block].use_count() > 1 || (may_come && held.blocks[block]->is_far);
  };
  if (!held.spec.is_per_token()) {
    if (held_blocks == 0) return use(Need{});
    return rows.end > rows.begin && is_replaced(0) ? use(Need{.is_read = true}) : Status();
  }
  const auto pages =
      std::max(held_blocks, static_cast<size_t>(pages_held(held.spec, rows.end, step_tokens_max_)));
  for (size_t page = held_blocks; page < pages; ++page) {
    MF_RETURN_IF_ERROR(use(Need{.block = page, .more = pages - page}));
  }
  if (rows.end <= rows.begin) return {};
  const int64_t first =
      std::max<int64_t>(0, rows.begin - (rows.only_behind ? 0 : held.spec.behind));
  for (int64_t page = first / kPageTokens; page <= (rows.end - 1) / kPageTokens; ++page) {
    const size_t slot = static_cast<size_t>(page) % pages;
    if (!is_replaced(slot)) continue;
    // Nobody reads what a page of a ring held before its first token is written anew.
    MF_RETURN_IF_ERROR(use(Need{.block = slot, .is_read = page * kPageTokens < length_}));
  }
  return {};
}

// Copies of what every step reads may lie in the host's memory, where a checkpoint has the
// device's: such a copy takes the 35B over the bus for 2 ms a token. They come once all of them
// find room.
bool SequenceState::comes_near() const {
  if (memory_->far_bytes() == 0) return false;
  std::map<size_t, uint64_t> bytes;  // by part of the device
  for (const Layer& layer : layers_) {
    for (const Held& held : layer.tensors) {
      if (use_of(held.spec) != StateMemory::Use::kEveryStep) continue;
      for (const Block& block : held.blocks) {
        if (!block->is_far) continue;
        const auto part = memory_->whole_part(held.layer, held.spec.num_own_heads());
        if (part) bytes[*part] += BlockSupply::aligned(block->size_bytes);
      }
    }
  }
  return !bytes.empty() && std::ranges::all_of(bytes, [&](const auto& part) {
    return memory_->has_room(part.second, StateMemory::Use::kEveryStep, part.first);
  });
}

// Copies are recorded however it ends: blocks that were replaced keep what was in them.
Status SequenceState::renew(std::span<Layer> layers, const Rows& rows, Encoder* encoder) {
  BlockSupply supply(*memory_, encoder);
  bool needs_any = false;
  for (Layer& layer : layers) {
    for (Held& held : layer.tensors) {
      MF_RETURN_IF_ERROR(visit_needs(held, rows, [&](const Need& need) {
        needs_any = true;
        const auto kind = kind_of(held, need);
        if (kind) supply.want(*kind, held.layer, block_bytes(held.spec));
        return Status();
      }));
    }
  }
  Status done;
  for (Layer& layer : layers) {
    for (Held& held : layer.tensors) {
      if (needs_any && done.ok()) done = renew(held, rows, supply);
      const bool is_ring = held.spec.window > 0 && !(rows.only_behind && held.spec.behind == 0);
      if (!done.ok() || !is_ring || rows.end <= rows.begin) continue;
      const int64_t overwritten = pages_needed(rows.end) - ring_pages(held.spec, step_tokens_max_);
      held.held_from = std::max(held.held_from, overwritten * kPageTokens);
    }
  }
  supply.flush();
  return done;
}

Status SequenceState::renew(Held& held, const Rows& rows, BlockSupply& supply) {
  std::vector<Block> rest;
  return visit_needs(held, rows, [&](const Need& need) -> Status {
    MF_ASSIGN_OR_RETURN(Block own, find_block(held, need, supply, rest));
    if (need.block == held.blocks.size()) {
      held.views.emplace_back();
      held.blocks.emplace_back();
    }
    const Block shared = std::exchange(held.blocks[need.block], std::move(own));
    view_block(held, need.block);
    if (need.is_read) supply.copy(held.blocks[need.block], shared);
    return {};
  });
}

// Heads that parts of the device divide have memory of their own.
std::optional<BlockSupply::Kind> SequenceState::kind_of(const Held& held, const Need& need) const {
  const auto part = memory_->whole_part(held.layer, held.spec.num_own_heads());
  if (!part) return std::nullopt;
  return BlockSupply::Kind{.part = *part,
                           .use = use_of(held.spec),
                           .number = need.is_read ? 0 : need.block,
                           .is_copied = need.is_read};
}

Result<SequenceState::Block> SequenceState::find_block(const Held& held, const Need& need,
                                                       BlockSupply& supply,
                                                       std::vector<Block>& rest) {
  const uint64_t bytes = block_bytes(held.spec);
  if (const auto kind = kind_of(held, need)) {
    if (Block block = supply.take(*kind, bytes)) return block;
    if (Block block = supply.take_spare(*kind, held.layer, bytes)) return block;
  }
  if (rest.empty()) {
    MF_ASSIGN_OR_RETURN(
        const StateMemory::Blocks taken,
        memory_->take(bytes, need.more, use_of(held.spec), held.layer, held.spec.num_own_heads()));
    for (size_t i = taken.count; i > 0; --i) {
      rest.push_back(std::make_shared<const StateBlock>(
          StateBlock{taken.buffer, (i - 1) * bytes, bytes, taken.is_far}));
    }
  }
  Block block = std::move(rest.back());
  rest.pop_back();
  return block;
}

void SequenceState::view_block(Held& held, size_t block) {
  Shape shape = held.spec.shape;
  if (held.spec.is_per_token()) {
    std::vector<int64_t> extents = {kPageTokens};
    for (int i = 0; i < shape.rank(); ++i) extents.push_back(shape[i]);
    shape = Shape(extents);
  }
  const StateBlock& memory = *held.blocks[block];
  held.views[block] = Tensor::view(*memory.buffer, memory.offset_bytes, shape, held.spec.dtype);
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
  const Status done = renew(
      layers_, {.begin = length_, .end = length, .comes_near = length > length_ && comes_near()},
      &encoder);
  if (done.ok()) in_step_ = length > length_;
  torn_ = false;
  return done;
}

Status SequenceState::reserve_rows(LayerId layer, int64_t begin, int64_t end, Encoder& encoder) {
  MF_CHECK(begin >= 0 && begin < end && end - begin <= step_tokens_max_);
  torn_ = true;
  const Status done = renew({&layers_[static_cast<size_t>(index(layer))], 1},
                            {.begin = begin, .end = end, .only_behind = true}, &encoder);
  torn_ = false;
  return done;
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
  MF_RETURN_IF_ERROR(renew(layers_, {part.length, part.length}, &encoder));
  for (size_t i = 0; i < layers.size(); ++i) {
    Layer& layer = layers_[i];
    std::span<const std::byte> from = layers[i];
    MF_CHECK(from.size() == layer_bytes(layer.spec, part.of));
    MF_CHECK(part.length == part.of || shortest_truncation({&layer.spec, 1}, part.of) == 0);
    for (Held& held : layer.tensors) {
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
