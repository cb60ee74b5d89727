// The part of a step's logits that items want on the host.
#include <algorithm>
#include <array>
#include <bit>
#include <span>

#include "backend/ops/top_rows.h"
#include "base/check.h"
#include "engine/engine.h"

namespace moeflux {
namespace {

/// The tokens apart that one choice has: group 1 is the first.
std::span<const TokenId> apart_of(const BestLogits& best, size_t group) {
  const size_t begin = std::min((group - 1) * kTopRowsMax, best.apart.size());
  return best.apart.subspan(begin, std::min<size_t>(kTopRowsMax, best.apart.size() - begin));
}

bool is_allowed(const BestLogits& best, TokenId token) {
  return best.allowed.words.empty() || best.allowed.allows(token);
}

void set_bit(std::span<uint32_t> words, TokenId token, bool on) {
  const auto id = static_cast<uint32_t>(token);
  const uint32_t bit = uint32_t{1} << (id % 32);
  words[id / 32] = on ? words[id / 32] | bit : words[id / 32] & ~bit;
}

// How many one choice may find.
int32_t fill_mask(const BestLogits& best, size_t group, std::span<uint32_t> words) {
  if (group == 0) {
    const std::span<const uint32_t> allowed = best.allowed.words;
    std::ranges::fill(words, allowed.empty() ? ~uint32_t{0} : 0);
    std::copy_n(allowed.begin(), std::min(allowed.size(), words.size()), words.begin());
    for (const TokenId token : best.apart) set_bit(words, token, false);
    return best.count;
  }
  std::ranges::fill(words, 0);
  const std::span<const TokenId> apart = apart_of(best, group);
  for (const TokenId token : apart) set_bit(words, token, is_allowed(best, token));
  return static_cast<int32_t>(apart.size());
}

}  // namespace

// All rows at once, unless some are wanted in part.
Status Engine::read_results() {
  const bool wants_best = std::ranges::any_of(running_, [](const RunningItem& running) {
    return running.logits_rows > 0 && running.item->options.best.count > 0;
  });
  const bool wants_rows = std::ranges::any_of(running_, [](const RunningItem& running) {
    return running.logits_rows > 0 && running.item->options.best.count == 0;
  });
  if (wants_rows) {
    host_logits_.resize(static_cast<size_t>(batch_.logits_rows() * spec().vocab_size));
  }
  if (!wants_best) return read_logits(0, batch_.logits_rows());
  for (size_t begin = 0, end = 0; begin < running_.size(); begin = end) {
    end = end_of_run(begin);
    const RunningItem& first = running_[begin];
    if (first.logits_rows == 0) continue;
    const auto run = std::span<const RunningItem>(running_).subspan(begin, end - begin);
    const BestLogits& best = first.item->options.best;
    MF_RETURN_IF_ERROR(best.count == 0 ? read_logits(first.logits_begin, first.logits_rows)
                       : best.is_ruled ? read_ruled(run)
                                       : read_best(run));
  }
  return {};
}

// Items from `begin` on that want best logits of the same ids are a run: their rows lie one behind
// another. All others stand alone.
size_t Engine::end_of_run(size_t begin) const {
  const BestLogits& best = running_[begin].item->options.best;
  size_t end = begin + 1;
  if (running_[begin].logits_rows == 0 || best.count == 0) return end;
  for (; end < running_.size() && running_[end].logits_rows > 0; ++end) {
    const BestLogits& next = running_[end].item->options.best;
    if (next.count == 0 || next.of != best.of || next.is_ruled != best.is_ruled) break;
  }
  return end;
}

// Into the same rows of host_logits_.
Status Engine::read_logits(int64_t begin, int64_t rows) {
  const auto width = static_cast<size_t>(spec().vocab_size);
  const auto to =
      std::span(host_logits_)
          .subspan(static_cast<size_t>(begin) * width, static_cast<size_t>(rows) * width);
  return encoder_->read(std::as_writable_bytes(to), logits_.slice(0, begin, rows));
}

// As many rows at once as one choice may be, one behind another. All get what the item that wants
// most does, whose first ones are those of the others.
Status Engine::read_best(std::span<const RunningItem> items) {
  BestLogits best = items.front().item->options.best;
  for (const RunningItem& running : items) {
    best.count = std::max(best.count, running.item->options.best.count);
  }
  const auto k = static_cast<size_t>(best.count);
  const int64_t first = items.front().logits_begin;
  const int64_t end = items.back().logits_begin + items.back().logits_rows;
  auto to = items.begin();
  for (int64_t row = first; row < end;) {
    const int64_t rows = std::min(end - row, best_.dim(1));
    MF_RETURN_IF_ERROR(choose_best(best, row, rows));
    auto value = host_best_words_.begin();
    auto id = value + static_cast<ptrdiff_t>(static_cast<size_t>(rows) * k);
    for (const int64_t chosen = row + rows; row < chosen; ++row) {
      if (row == to->logits_begin + to->logits_rows) ++to;
      const auto wanted = static_cast<size_t>(to->item->options.best.count);
      for (size_t i = 0; i < k; ++i, ++value, ++id) {
        if (i < wanted)
          to->item->best.push_back({std::bit_cast<float>(*value), static_cast<TokenId>(*id)});
      }
    }
  }
  return {};
}

// As many rows at once as there are masks, of items with a row each.
Status Engine::read_ruled(std::span<const RunningItem> items) {
  const auto rows_max = static_cast<size_t>(masks_.dim(0));
  for (; !items.empty(); items = items.subspan(std::min(rows_max, items.size()))) {
    const std::span<const RunningItem> part = items.first(std::min(rows_max, items.size()));
    size_t apart = 0;
    for (const RunningItem& running : part) {
      MF_CHECK(running.logits_rows == 1);
      apart = std::max(apart, running.item->options.best.apart.size());
    }
    MF_CHECK(apart <= kApartMax);
    const size_t groups = 1 + (apart + kTopRowsMax - 1) / kTopRowsMax;
    for (size_t group = 0; group < groups; ++group) MF_RETURN_IF_ERROR(read_ruled(part, group));
  }
  return {};
}

// The best, or a group of what is apart: a choice of as many as a mask allows finds them all.
Status Engine::read_ruled(std::span<const RunningItem> items, size_t group) {
  BestLogits best{.count = 0, .of = items.front().item->options.best.of};
  const auto words = static_cast<size_t>(mask_words(best.of));
  host_masks_.resize(items.size() * words);
  std::array<int32_t, kMaskRowsMax> wanted;
  for (size_t i = 0; i < items.size(); ++i) {
    wanted[i] = fill_mask(items[i].item->options.best, group,
                          std::span(host_masks_).subspan(i * words, words));
    best.count = std::max(best.count, wanted[i]);
  }
  const auto rows = std::ssize(items);
  const Tensor mask = Tensor::view(*masks_.buffer, masks_.offset_bytes,
                                   {rows, static_cast<int64_t>(words)}, DType::kI32);
  encoder_->write(mask, std::as_bytes(std::span(host_masks_)));
  MF_RETURN_IF_ERROR(choose_best(best, items.front().logits_begin, rows, mask));
  const auto k = static_cast<size_t>(best.count);
  const auto values = std::span<const uint32_t>(host_best_words_).first(items.size() * k);
  const auto ids = std::span<const uint32_t>(host_best_words_).subspan(values.size());
  for (size_t i = 0; i < items.size(); ++i) {
    for (size_t at = i * k; at < i * k + static_cast<size_t>(wanted[i]); ++at) {
      const auto id = static_cast<TokenId>(ids[at]);
      if (id >= 0) items[i].item->best.push_back({std::bit_cast<float>(values[at]), id});
    }
  }
  return {};
}

// Into host_best_words_. One read brings all: ids lie behind the values.
Status Engine::choose_best(const BestLogits& best, int64_t begin, int64_t rows,
                           const Tensor& mask) {
  MF_CHECK(best.count <= kTopRowsMax && best.count <= best.of && best.of <= spec().vocab_size);
  const Shape shape{rows, best.count};
  const Tensor values = Tensor::view(*best_.buffer, best_.offset_bytes, shape, DType::kF32);
  const Tensor ids =
      Tensor::view(*best_.buffer, best_.offset_bytes + values.size_bytes(), shape, DType::kI32);
  encoder_->run(
      ops::TopRows{values, ids, logits_.slice(0, begin, rows).slice(1, 0, best.of), mask});
  host_best_words_.resize(static_cast<size_t>(2 * rows * best.count));
  return encoder_->read(
      std::as_writable_bytes(std::span(host_best_words_)),
      Tensor::view(*best_.buffer, best_.offset_bytes, {2 * rows, best.count}, DType::kF32));
}

Result<std::span<const float>> Engine::last_logits(int64_t row) {
  host_logits_.resize(static_cast<size_t>(spec().vocab_size));
  MF_RETURN_IF_ERROR(
      encoder_->read(std::as_writable_bytes(std::span(host_logits_)), logits_.slice(0, row, 1)));
  return std::span<const float>(host_logits_);
}

}  // namespace moeflux
