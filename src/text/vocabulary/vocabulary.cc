// One arena for all bytes and one open-addressing index: a quarter of a million tokens in a few MB.
#include "text/vocabulary/vocabulary.h"

#include "base/format.h"

namespace moeflux {
namespace {
constexpr TokenId kFree = -1;
constexpr size_t kArenaBytesMax = size_t{1} << 30;
}  // namespace

uint64_t hash_bytes(std::string_view bytes) {
  constexpr uint64_t kMultiplier = 0x9E3779B97F4A7C15u;
  uint64_t hash = bytes.size() * kMultiplier;
  const auto mix = [&](uint64_t word) {
    hash = (hash ^ word) * kMultiplier;
    hash ^= hash >> 29;
  };
  size_t at = 0;
  for (; at + 8 <= bytes.size(); at += 8) {
    uint64_t word = 0;
    for (size_t i = 0; i < 8; ++i) word |= uint64_t{static_cast<uint8_t>(bytes[at + i])} << (8 * i);
    mix(word);
  }
  uint64_t tail = 0;
  for (; at < bytes.size(); ++at) tail = (tail << 8) | static_cast<uint8_t>(bytes[at]);
  mix(tail);
  return hash ^ (hash >> 32);
}

Status Vocabulary::add(int64_t id, std::string_view bytes, bool findable) {
  if (id < 0 || id > kIdMax) {
    return make_error(ErrorCode::kCorruption, "token id {}, expected 0 to {}", id, kIdMax);
  }
  if (contains(static_cast<TokenId>(id))) {
    return make_error(ErrorCode::kCorruption, "token id {} is given twice", id);
  }
  if (arena_.size() + bytes.size() > kArenaBytesMax) {
    return make_error(ErrorCode::kResourceExhausted, "tokens of more than {} bytes together",
                      kArenaBytesMax);
  }
  if (findable) {
    if (find(bytes)) {
      return make_error(ErrorCode::kCorruption, "tokens {} and {} are the same", *find(bytes), id);
    }
    if (index_.size() < 2 * (indexed_count_ + 1)) grow_index();
    index_[slot_of(bytes)] = static_cast<TokenId>(id);
    ++indexed_count_;
  }
  if (static_cast<size_t>(id) >= entries_.size()) entries_.resize(static_cast<size_t>(id) + 1);
  entries_[static_cast<size_t>(id)] = {static_cast<uint32_t>(arena_.size()),
                                       static_cast<uint32_t>(bytes.size()), true};
  arena_.append(bytes);
  return {};
}

void Vocabulary::add_name(TokenId id, std::string_view bytes) {
  if (!find(bytes)) names_.emplace(bytes, id);
}

bool Vocabulary::contains(TokenId id) const {
  return id >= 0 && id < size() && entries_[static_cast<size_t>(id)].defined;
}

std::string_view Vocabulary::bytes(TokenId id) const {
  if (!contains(id)) return {};
  const Entry& entry = entries_[static_cast<size_t>(id)];
  return std::string_view(arena_).substr(entry.begin, entry.bytes_count);
}

std::optional<TokenId> Vocabulary::find(std::string_view bytes) const {
  const TokenId id = index_.empty() ? kFree : index_[slot_of(bytes)];
  if (id != kFree) return id;
  const auto named = names_.find(bytes);
  if (named == names_.end()) return std::nullopt;
  return named->second;
}

// The slot that holds these bytes, or the free one where they would go.
size_t Vocabulary::slot_of(std::string_view text) const {
  const size_t mask = index_.size() - 1;
  size_t slot = hash_bytes(text) & mask;
  while (index_[slot] != kFree && bytes(index_[slot]) != text) slot = (slot + 1) & mask;
  return slot;
}

void Vocabulary::grow_index() {
  std::vector<TokenId> old = std::move(index_);
  index_.assign(old.empty() ? 1024 : old.size() * 2, kFree);
  for (const TokenId id : old) {
    if (id != kFree) index_[slot_of(bytes(id))] = id;
  }
}

}  // namespace moeflux
