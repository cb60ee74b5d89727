// Short texts (nearly all) scan a small array for the best pair; long ones use a heap over a list.
#include "text/bpe/merge_table.h"

#include <algorithm>
#include <array>
#include <bit>

namespace moeflux {
namespace {

// Up to here a quadratic scan over one or two cache lines beats the heap's bookkeeping.
constexpr size_t kShortMax = 48;

uint64_t pair_of(TokenId left, TokenId right) {
  return (uint64_t{static_cast<uint32_t>(left)} << 32) | static_cast<uint32_t>(right);
}

size_t hash_pair(uint64_t pair) {
  const uint64_t mixed = pair * 0x9E3779B97F4A7C15u;
  return static_cast<size_t>(mixed ^ (mixed >> 32));
}

}  // namespace

void MergeTable::reserve(size_t pairs_count) {
  slots_.assign(std::bit_ceil(pairs_count * 3 / 2 + 2), Slot{kFree, kNoRank, -1});
}

void MergeTable::put(BpeMerge merge, uint32_t rank) {
  const Slot entry{pair_of(merge.left, merge.right), rank, merge.merged};
  const size_t mask = slots_.size() - 1;
  size_t slot = hash_pair(entry.pair) & mask;
  while (slots_[slot].pair != kFree && slots_[slot].pair != entry.pair) slot = (slot + 1) & mask;
  slots_[slot] = entry;
}

MergeTable::Slot MergeTable::find(TokenId left, TokenId right) const {
  const uint64_t pair = pair_of(left, right);
  const size_t mask = slots_.size() - 1;
  size_t slot = hash_pair(pair) & mask;
  while (slots_[slot].pair != pair) {
    if (slots_[slot].pair == kFree) return {kFree, kNoRank, -1};
    slot = (slot + 1) & mask;
  }
  return slots_[slot];
}

void MergeTable::append(std::span<const TokenId> symbols, Scratch* scratch,
                        std::vector<TokenId>* out) const {
  if (symbols.size() <= kShortMax && is_passing_.empty()) {
    append_short(symbols, out);
  } else {
    append_long(symbols, scratch, out);
  }
}

void MergeTable::append_short(std::span<const TokenId> symbols, std::vector<TokenId>* out) const {
  struct Part {
    TokenId id;
    uint32_t rank;   // of the merge with the next part
    TokenId merged;  // the result of that merge
  };
  std::array<Part, kShortMax> parts;
  size_t count = symbols.size();
  for (size_t i = 0; i < count; ++i) parts[i].id = symbols[i];
  const auto rate = [&](size_t i) {
    const Slot slot = i + 1 < count ? find(parts[i].id, parts[i + 1].id) : Slot{kFree, kNoRank, -1};
    parts[i].rank = slot.rank;
    parts[i].merged = slot.merged;
  };
  for (size_t i = 0; i < count; ++i) rate(i);
  while (count > 1) {
    const auto end = parts.begin() + static_cast<std::ptrdiff_t>(count);
    const auto best = std::min_element(
        parts.begin(), end, [](const Part& a, const Part& b) { return a.rank < b.rank; });
    if (best->rank == kNoRank) break;
    best->id = best->merged;
    std::move(best + 2, end, best + 1);
    --count;
    const auto place = static_cast<size_t>(best - parts.begin());
    rate(place);
    if (place > 0) rate(place - 1);
  }
  for (size_t i = 0; i < count; ++i) out->push_back(parts[i].id);
}

void MergeTable::push_candidate(Scratch* scratch, int32_t place) const {
  const Scratch::Symbol& left = scratch->symbols[static_cast<size_t>(place)];
  if (left.next < 0) return;
  const Slot slot = find(left.id, scratch->symbols[static_cast<size_t>(left.next)].id);
  if (slot.rank == kNoRank) return;
  if (is_passing(slot.merged)) {
    const TokenId right = scratch->symbols[static_cast<size_t>(left.next)].id;
    scratch->parts_of[static_cast<size_t>(slot.merged)] = {left.id, right};
  }
  scratch->heap.push_back({slot.rank, place, slot.merged});
}

void MergeTable::append_long(std::span<const TokenId> units, Scratch* scratch,
                             std::vector<TokenId>* out) const {
  const auto is_worse = [](const Scratch::Candidate& a, const Scratch::Candidate& b) {
    return a.rank != b.rank ? a.rank > b.rank : a.place > b.place;
  };
  auto& symbols = scratch->symbols;
  auto& heap = scratch->heap;
  const auto count = static_cast<int32_t>(units.size());
  if (count == 0) return;
  symbols.clear();
  heap.clear();
  scratch->parts_of.assign(is_passing_.size(), {-1, -1});
  for (int32_t i = 0; i < count; ++i) {
    symbols.push_back({units[static_cast<size_t>(i)], i - 1, i + 1 < count ? i + 1 : -1});
  }
  for (int32_t i = 0; i < count; ++i) push_candidate(scratch, i);
  std::make_heap(heap.begin(), heap.end(), is_worse);
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), is_worse);
    const Scratch::Candidate best = heap.back();
    heap.pop_back();
    Scratch::Symbol& left = symbols[static_cast<size_t>(best.place)];
    // A candidate is stale once one of its two symbols grew: they now make another token, as each
    // token has one spelling.
    if (left.id < 0 || left.next < 0) continue;
    Scratch::Symbol& right = symbols[static_cast<size_t>(left.next)];
    const Slot slot = find(left.id, right.id);
    if (slot.rank != best.rank || slot.merged != best.merged) continue;
    left.id = best.merged;
    left.next = right.next;
    right.id = -1;
    if (left.next >= 0) symbols[static_cast<size_t>(left.next)].previous = best.place;
    for (const int32_t place : {left.previous, best.place}) {
      const size_t before = heap.size();
      if (place >= 0) push_candidate(scratch, place);
      if (heap.size() > before) std::push_heap(heap.begin(), heap.end(), is_worse);
    }
  }
  for (int32_t i = 0; i >= 0; i = symbols[static_cast<size_t>(i)].next) {
    append_staying(symbols[static_cast<size_t>(i)].id, *scratch, out);
  }
}

// A passing symbol is longer than its parts, so this ends; at the depth of its characters.
void MergeTable::append_staying(TokenId id, const Scratch& scratch,
                                std::vector<TokenId>* out) const {
  std::vector<TokenId> open(1, id);
  while (!open.empty()) {
    const TokenId last = open.back();
    open.pop_back();
    const auto parts = is_passing(last) ? scratch.parts_of[static_cast<size_t>(last)]
                                        : std::pair<TokenId, TokenId>(-1, -1);
    if (parts.first < 0) {
      out->push_back(last);
    } else {
      open.push_back(parts.second);
      open.push_back(parts.first);
    }
  }
}

}  // namespace moeflux
