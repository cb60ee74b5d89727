#include "engine/prefix_cache.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <set>
#include <utility>

#include "base/format.h"
#include "checkpoint/checksum.h"
#include "engine/snapshot.h"
#include "io/file.h"

namespace moeflux {
namespace {

constexpr size_t kDigits = 16;

// OWNER-TOKENS, both of 16 hexadecimal digits.
bool is_state_name(std::string_view name) {
  if (name.size() != 2 * kDigits + 1 || name[kDigits] != '-') return false;
  return parse_checksum(name.substr(0, kDigits)) && parse_checksum(name.substr(kDigits + 1));
}

std::string prefix_of(uint64_t owner) { return checksum_text(owner) + "-"; }

std::string name_of(uint64_t owner, std::span<const TokenId> tokens) {
  return prefix_of(owner) + checksum_text(checksum64(std::as_bytes(tokens)));
}

// Another owner's file counts as a state if it begins as one of this version; nothing else in it is
// trusted.
bool is_state(const std::string& path) {
  const Result<std::unique_ptr<File>> opened = open_file(path);
  std::array<std::byte, kSnapshotBeginningBytes> begin = {};
  return opened.ok() && (*opened)->read_at(0, begin).ok() && begins_as_snapshot(begin);
}

size_t common_tokens(std::span<const TokenId> a, std::span<const TokenId> b) {
  return static_cast<size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
}

// The tokens of a snapshot. The header says how many there are, whatever sequences here may have.
Result<std::vector<TokenId>> read_tokens(const std::string& path) {
  MF_ASSIGN_OR_RETURN(const std::unique_ptr<File> file, open_file(path));
  const uint64_t size = file->size_bytes();
  std::vector<std::byte> front(std::min(size, snapshot_header_bytes_max()));
  MF_RETURN_IF_ERROR(file->read_at(0, front));
  MF_ASSIGN_OR_RETURN(const SnapshotHeader header, parse_snapshot_header(front, size));
  front.resize(header.front_bytes());
  MF_RETURN_IF_ERROR(file->read_at(0, front));
  MF_ASSIGN_OR_RETURN(SnapshotFront parsed, parse_snapshot_front(front, size));
  return std::move(parsed.tokens);
}

}  // namespace

Result<std::unique_ptr<PrefixCache>> PrefixCache::open(PrefixCacheOptions options) {
  std::unique_ptr<PrefixCache> cache(new PrefixCache(std::move(options)));
  const uint64_t owner = cache->options_.owner;
  cache->owners_.insert(owner);
  MF_ASSIGN_OR_RETURN(cache->shelf_,
                      Shelf::open({.limits = {.bytes_max = cache->options_.capacity_bytes},
                                   .directory = cache->options_.directory,
                                   .suffix = ".snapshot",
                                   .seal = Seal::kOwn,
                                   .is_name = is_state_name,
                                   .is_kept = [own = cache.get()](const std::string& name,
                                                                  const std::string& path) {
                                     return own->is_own(name) || is_state(path);
                                   }}));
  MF_RETURN_IF_ERROR(cache->scan(owner));
  return cache;
}

uint64_t PrefixCache::owner_of(std::string_view client) const {
  if (client.empty()) return options_.owner;
  const std::string both = formatted("{} {}", checksum_text(options_.owner), client);
  return checksum64(std::as_bytes(std::span(both)));
}

// A client's states are looked for when it comes: nobody knows before who will. A state that cannot
// be listed then is evaluated again.
uint64_t PrefixCache::known_owner(std::string_view client) {
  const uint64_t owner = owner_of(client);
  if (owners_.insert(owner).second) (void)scan(owner);
  return owner;
}

bool PrefixCache::is_own(std::string_view name) const {
  const auto owner = parse_checksum(name.substr(0, kDigits));
  return owner && owners_.contains(*owner);
}

// A file that cannot be read, or is of another version, may be whole and another program's.
Status PrefixCache::scan(uint64_t owner) {
  const std::string own = prefix_of(owner);
  MF_ASSIGN_OR_RETURN(const std::vector<ShelfItem> kept, shelf_->list());
  for (const ShelfItem& item : kept) {
    if (!item.name.starts_with(own)) continue;
    Result<std::vector<TokenId>> tokens = read_tokens(shelf_->place_of(item.name));
    if (!tokens.ok() && tokens.error().code() != ErrorCode::kCorruption) continue;
    if (tokens.ok() && name_of(owner, *tokens) == item.name) {
      entries_.push_back({std::move(tokens).value(), item.size_bytes, item.name, owner});
    } else if (const Status gone = shelf_->erase(item.name);
               !gone.ok() && gone.error().code() != ErrorCode::kNotFound) {
      return gone;
    }
  }
  return {};
}

// How many of `tokens` a sequence has that starts from the entry.
int64_t PrefixCache::usable(const Entry& entry, std::span<const TokenId> tokens) const {
  const auto length = static_cast<int64_t>(entry.tokens.size());
  const auto common = static_cast<int64_t>(common_tokens(entry.tokens, tokens));
  return common == length || common >= options_.shortest_truncation(length) ? common : 0;
}

Status PrefixCache::load_entry(const Entry& entry, int64_t length, const Load& load) const {
  MF_ASSIGN_OR_RETURN(const Shelf::Bytes bytes, shelf_->find(entry.name));
  return load(length, *bytes);
}

PrefixCache::Match PrefixCache::find(std::span<const TokenId> text, std::string_view client) {
  const uint64_t owner = known_owner(client);
  const auto max = static_cast<size_t>(std::max<int64_t>(0, options_.tokens_max));
  const std::span<const TokenId> tokens = text.first(std::min(text.size(), max));
  Match best;
  for (size_t i = 0; i < entries_.size(); ++i) {
    if (entries_[i].owner != owner) continue;
    const int64_t length = usable(entries_[i], tokens);
    if (length > best.length) best = {length, i};
  }
  return best;
}

Result<int64_t> PrefixCache::reuse(std::span<const TokenId> text, const Load& load,
                                   std::string_view client) {
  while (true) {
    const auto [longest, best] = find(text, client);
    if (longest == 0) return int64_t{0};
    const Status loaded = load_entry(entries_[best], longest, load);
    if (loaded.ok()) return longest;
    const ErrorCode code = loaded.error().code();
    if (code == ErrorCode::kResourceExhausted) return loaded.error();
    // Another process that shares the folder may have removed the file; a drive may fail once.
    if (code == ErrorCode::kCorruption) {
      remove(best);
    } else {
      forget(best);
    }
  }
}

bool PrefixCache::wants(std::span<const TokenId> tokens, uint64_t bytes, std::string_view client) {
  if (tokens.empty() || bytes > options_.capacity_bytes) return false;
  const uint64_t owner = known_owner(client);
  for (const Entry& entry : entries_) {
    if (entry.owner != owner) continue;
    if (usable(entry, tokens) != static_cast<int64_t>(tokens.size())) continue;
    shelf_->use(entry.name);
    return false;
  }
  return true;
}

Status PrefixCache::keep(std::span<const TokenId> tokens, std::vector<std::byte> snapshot,
                         std::string_view client) {
  const uint64_t owner = known_owner(client);
  Entry added{{tokens.begin(), tokens.end()}, snapshot.size(), name_of(owner, tokens), owner};
  std::vector<std::string> replaced;
  for (const Entry& entry : entries_) {
    if (entry.owner != owner) continue;
    const auto length = static_cast<int64_t>(entry.tokens.size());
    if (usable(added, entry.tokens) == length) replaced.push_back(entry.name);
  }
  MF_RETURN_IF_ERROR(shelf_->keep(added.name, std::move(snapshot), replaced));
  std::erase_if(entries_, [&](const Entry& entry) { return entry.name == added.name; });
  entries_.push_back(std::move(added));
  MF_ASSIGN_OR_RETURN(const std::vector<ShelfItem> kept, shelf_->list());
  std::set<std::string> names;
  for (const ShelfItem& item : kept) names.insert(item.name);
  std::erase_if(entries_, [&](const Entry& entry) { return !names.contains(entry.name); });
  return {};
}

void PrefixCache::forget(size_t i) { entries_.erase(entries_.begin() + static_cast<ptrdiff_t>(i)); }

// A file that cannot be removed is no longer known here; the next scan finds it.
void PrefixCache::remove(size_t i) {
  (void)shelf_->erase(entries_[i].name);
  forget(i);
}

uint64_t PrefixCache::size_bytes() const {
  return std::accumulate(
      entries_.begin(), entries_.end(), uint64_t{0},
      [](uint64_t bytes, const Entry& entry) { return bytes + entry.size_bytes; });
}

}  // namespace moeflux
