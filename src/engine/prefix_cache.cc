#include "engine/prefix_cache.h"

#include <algorithm>
#include <numeric>
#include <string_view>
#include <utility>

#include "base/format.h"
#include "checkpoint/checksum.h"
#include "engine/snapshot.h"
#include "io/file.h"
#include "io/output_folder.h"

namespace moeflux {
namespace {

constexpr std::string_view kSuffix = ".snapshot";

size_t common_tokens(std::span<const TokenId> a, std::span<const TokenId> b) {
  return static_cast<size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
}

Result<std::vector<std::byte>> read_bytes(const std::string& path, uint64_t bytes_max) {
  MF_ASSIGN_OR_RETURN(const std::unique_ptr<File> file, open_file(path));
  std::vector<std::byte> bytes(std::min(file->size_bytes(), bytes_max));
  MF_RETURN_IF_ERROR(file->read_at(0, bytes));
  return bytes;
}

}  // namespace

Result<std::unique_ptr<PrefixCache>> PrefixCache::open(PrefixCacheOptions options) {
  std::unique_ptr<PrefixCache> cache(new PrefixCache(std::move(options)));
  if (!cache->options_.directory.empty()) MF_RETURN_IF_ERROR(cache->scan());
  cache->evict();
  return cache;
}

Status PrefixCache::scan() {
  MF_RETURN_IF_ERROR(create_folder(options_.directory, FileAccess::kPrivate));
  MF_ASSIGN_OR_RETURN(const std::vector<std::string> names, list_files(options_.directory));
  for (const std::string& name : names) {
    if (!name.starts_with(file_prefix()) || !name.ends_with(kSuffix)) continue;
    const std::string path = format("{}/{}", options_.directory, name);
    Result<Entry> entry = read_front(path);
    if (entry.ok() && path_of(*entry) == path) {
      entries_.push_back(std::move(entry).value());
    } else if (entry.ok() || entry.error().code() == ErrorCode::kCorruption) {
      MF_RETURN_IF_ERROR(remove_file(path));
    }
  }
  return {};
}

Result<PrefixCache::Entry> PrefixCache::read_front(const std::string& path) const {
  MF_ASSIGN_OR_RETURN(const std::unique_ptr<File> file, open_file(path));
  const uint64_t size = file->size_bytes();
  std::vector<std::byte> front(std::min(size, snapshot_front_bytes(options_.tokens_max)));
  MF_RETURN_IF_ERROR(file->read_at(0, front));
  MF_ASSIGN_OR_RETURN(SnapshotFront parsed, parse_snapshot_front(front, size));
  return Entry{std::move(parsed.tokens), size, 0, {}};
}

std::string PrefixCache::file_prefix() const { return checksum_text(options_.owner) + "-"; }

std::string PrefixCache::path_of(const Entry& entry) const {
  const uint64_t hash = checksum64(std::as_bytes(std::span(entry.tokens)));
  return format("{}/{}{}{}", options_.directory, file_prefix(), checksum_text(hash), kSuffix);
}

// How many of `tokens` a sequence has that starts from the entry.
int64_t PrefixCache::usable(const Entry& entry, std::span<const TokenId> tokens) const {
  const auto length = static_cast<int64_t>(entry.tokens.size());
  const auto common = static_cast<int64_t>(common_tokens(entry.tokens, tokens));
  return common == length || common >= options_.shortest_truncation(length) ? common : 0;
}

Status PrefixCache::load_entry(const Entry& entry, int64_t length, const Load& load) const {
  if (options_.directory.empty()) return load(length, entry.snapshot);
  MF_ASSIGN_OR_RETURN(const std::vector<std::byte> bytes,
                      read_bytes(path_of(entry), entry.size_bytes));
  return load(length, bytes);
}

Result<int64_t> PrefixCache::reuse(std::span<const TokenId> tokens, const Load& load) {
  while (true) {
    int64_t longest = 0;
    size_t best = 0;
    for (size_t i = 0; i < entries_.size(); ++i) {
      const int64_t length = usable(entries_[i], tokens);
      if (length <= longest) continue;
      longest = length;
      best = i;
    }
    if (longest == 0) return int64_t{0};
    const Status loaded = load_entry(entries_[best], longest, load);
    if (loaded.ok()) {
      entries_[best].last_use = ++uses_;
      return longest;
    }
    // Another process that shares the folder may have removed the file.
    const ErrorCode code = loaded.error().code();
    if (code == ErrorCode::kResourceExhausted) return loaded.error();
    remove(best);
  }
}

bool PrefixCache::wants(std::span<const TokenId> tokens, uint64_t bytes) {
  if (tokens.empty() || bytes > options_.capacity_bytes) return false;
  for (Entry& entry : entries_) {
    if (usable(entry, tokens) != static_cast<int64_t>(tokens.size())) continue;
    entry.last_use = ++uses_;
    return false;
  }
  return true;
}

Status PrefixCache::keep(std::span<const TokenId> tokens, std::vector<std::byte> snapshot) {
  Entry added{{tokens.begin(), tokens.end()}, snapshot.size(), ++uses_, {}};
  if (options_.directory.empty()) {
    added.snapshot = std::move(snapshot);
  } else {
    MF_ASSIGN_OR_RETURN(const std::unique_ptr<AtomicFileWriter> writer,
                        AtomicFileWriter::create(path_of(added), FileAccess::kPrivate));
    MF_RETURN_IF_ERROR(writer->write(snapshot));
    MF_RETURN_IF_ERROR(writer->commit());
  }
  for (size_t i = entries_.size(); i-- > 0;) {
    const auto length = static_cast<int64_t>(entries_[i].tokens.size());
    if (usable(added, entries_[i].tokens) == length) remove(i);
  }
  entries_.push_back(std::move(added));
  evict();
  return {};
}

// A file that cannot be removed is no longer known here; the next scan finds it.
void PrefixCache::remove(size_t i) {
  if (!options_.directory.empty()) (void)remove_file(path_of(entries_[i]));
  entries_.erase(entries_.begin() + static_cast<ptrdiff_t>(i));
}

void PrefixCache::evict() {
  while (size_bytes() > options_.capacity_bytes) {
    const auto oldest = std::ranges::min_element(entries_, {}, &Entry::last_use);
    remove(static_cast<size_t>(oldest - entries_.begin()));
  }
}

uint64_t PrefixCache::size_bytes() const {
  return std::accumulate(
      entries_.begin(), entries_.end(), uint64_t{0},
      [](uint64_t bytes, const Entry& entry) { return bytes + entry.size_bytes; });
}

}  // namespace moeflux
