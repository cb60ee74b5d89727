// Short pieces (nearly all) scan a small array for the best pair; long ones use a heap over a list.
#include "text/bpe.h"

#include <algorithm>
#include <bit>

#include "base/format.h"

namespace moeflux {
namespace {

// Up to here a quadratic scan over one or two cache lines beats the heap's bookkeeping.
constexpr size_t kShortBytesMax = 48;

// A table of 128 MiB, and 25 pairs for each of 160,000 tokens: a token has fewer pairs than bytes.
constexpr size_t kPairsMax = size_t{1} << 22;

uint64_t pair_of(TokenId left, TokenId right) {
  return (uint64_t{static_cast<uint32_t>(left)} << 32) | static_cast<uint32_t>(right);
}

size_t hash_pair(uint64_t pair) {
  const uint64_t mixed = pair * 0x9E3779B97F4A7C15u;
  return static_cast<size_t>(mixed ^ (mixed >> 32));
}

bool occurs_in_utf8(int byte) { return byte < 0xF5 && byte != 0xC0 && byte != 0xC1; }

}  // namespace

Result<Bpe> Bpe::create(const Vocabulary& vocabulary, const std::vector<BpeMerge>& merges) {
  Bpe bpe;
  MF_RETURN_IF_ERROR(bpe.read_bytes(vocabulary));
  bpe.reserve(merges.size());
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const uint64_t pair = pair_of(merges[rank].left, merges[rank].right);
    bpe.put({pair, static_cast<uint32_t>(rank), merges[rank].merged});
  }
  return bpe;
}

Result<Bpe> Bpe::create_from_ranks(const Vocabulary& vocabulary) {
  Bpe bpe;
  MF_RETURN_IF_ERROR(bpe.read_bytes(vocabulary));
  std::vector<Slot> entries;
  for (TokenId id = 0; id < vocabulary.size(); ++id) {
    const std::string_view bytes = vocabulary.bytes(id);
    for (size_t cut = 1; cut < bytes.size(); ++cut) {
      const auto left = vocabulary.find(bytes.substr(0, cut));
      const auto right = left ? vocabulary.find(bytes.substr(cut)) : std::nullopt;
      if (right) entries.push_back({pair_of(*left, *right), static_cast<uint32_t>(id), id});
    }
    if (entries.size() > kPairsMax) {
      return make_error(ErrorCode::kResourceExhausted, "more than {} pairs of tokens make a token",
                        kPairsMax);
    }
  }
  bpe.reserve(entries.size());
  for (const Slot& entry : entries) bpe.put(entry);
  return bpe;
}

Status Bpe::read_bytes(const Vocabulary& vocabulary) {
  for (int byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    const auto id = vocabulary.find(std::string_view(&c, 1));
    if (!id && occurs_in_utf8(byte)) {
      return make_error(ErrorCode::kUnsupported, "vocabulary has no token for byte 0x{:02x}", byte);
    }
    byte_ids_[static_cast<size_t>(byte)] = id.value_or(-1);
  }
  return {};
}

void Bpe::reserve(size_t pairs_count) {
  slots_.assign(std::bit_ceil(pairs_count * 3 / 2 + 2), Slot{kFree, kNoRank, -1});
}

void Bpe::put(Slot entry) {
  const size_t mask = slots_.size() - 1;
  size_t slot = hash_pair(entry.pair) & mask;
  while (slots_[slot].pair != kFree && slots_[slot].pair != entry.pair) slot = (slot + 1) & mask;
  slots_[slot] = entry;
}

Bpe::Slot Bpe::find(TokenId left, TokenId right) const {
  const uint64_t pair = pair_of(left, right);
  const size_t mask = slots_.size() - 1;
  size_t slot = hash_pair(pair) & mask;
  while (slots_[slot].pair != pair) {
    if (slots_[slot].pair == kFree) return {kFree, kNoRank, -1};
    slot = (slot + 1) & mask;
  }
  return slots_[slot];
}

void Bpe::append(std::string_view piece, Scratch* scratch, std::vector<TokenId>* out) const {
  if (piece.size() <= kShortBytesMax) {
    append_short(piece, out);
  } else {
    append_long(piece, scratch, out);
  }
}

void Bpe::append_short(std::string_view piece, std::vector<TokenId>* out) const {
  struct Part {
    TokenId id;
    uint32_t rank;   // of the merge with the next part
    TokenId merged;  // what that merge makes
  };
  std::array<Part, kShortBytesMax> parts;
  size_t count = piece.size();
  for (size_t i = 0; i < count; ++i) parts[i].id = byte_ids_[static_cast<uint8_t>(piece[i])];
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

void Bpe::push_candidate(Scratch* scratch, int32_t place) const {
  const Scratch::Symbol& left = scratch->symbols[static_cast<size_t>(place)];
  if (left.next < 0) return;
  const Slot slot = find(left.id, scratch->symbols[static_cast<size_t>(left.next)].id);
  if (slot.rank == kNoRank) return;
  scratch->heap.push_back({slot.rank, place, slot.merged});
}

void Bpe::append_long(std::string_view piece, Scratch* scratch, std::vector<TokenId>* out) const {
  const auto is_worse = [](const Scratch::Candidate& a, const Scratch::Candidate& b) {
    return a.rank != b.rank ? a.rank > b.rank : a.place > b.place;
  };
  auto& symbols = scratch->symbols;
  auto& heap = scratch->heap;
  const auto count = static_cast<int32_t>(piece.size());
  symbols.clear();
  heap.clear();
  for (int32_t i = 0; i < count; ++i) {
    const auto byte = static_cast<uint8_t>(piece[static_cast<size_t>(i)]);
    symbols.push_back({byte_ids_[byte], i - 1, i + 1 < count ? i + 1 : -1});
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
    out->push_back(symbols[static_cast<size_t>(i)].id);
  }
}

}  // namespace moeflux
