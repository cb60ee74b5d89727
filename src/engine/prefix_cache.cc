#include "engine/prefix_cache.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

#include "checkpoint/checksum.h"
#include "engine/snapshot.h"
#include "io/file.h"
#include "io/output_folder.h"

namespace moeflux {
namespace {

size_t common_tokens(std::span<const TokenId> a, std::span<const TokenId> b) {
  return static_cast<size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
}

Result<std::vector<std::byte>> read_bytes(const std::string& path, uint64_t bytes_max) {
  MF_ASSIGN_OR_RETURN(const std::unique_ptr<File> file, open_file(path));
  std::vector<std::byte> bytes(std::min(file->size_bytes(), bytes_max));
  MF_RETURN_IF_ERROR(file->read_at(0, bytes));
  return bytes;
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
  if (cache->folder_.exists()) MF_RETURN_IF_ERROR(cache->scan());
  return cache;
}

// A file that cannot be read, or is of another version, may be whole and another program's.
Status PrefixCache::scan() {
  MF_RETURN_IF_ERROR(folder_.create());
  MF_ASSIGN_OR_RETURN(const std::vector<FileUse> files, folder_.trim(options_.capacity_bytes));
  for (const FileUse& file : files) {
    if (!folder_.is_own(file.name)) continue;
    const std::string path = folder_.path_of(file.name);
    Result<std::vector<TokenId>> tokens = read_tokens(path);
    if (!tokens.ok() && tokens.error().code() != ErrorCode::kCorruption) continue;
    Entry entry{
        tokens.ok() ? std::move(tokens).value() : std::vector<TokenId>(), file.size_bytes, 0, {}};
    if (tokens.ok() && path_of(entry) == path) {
      entries_.push_back(std::move(entry));
    } else {
      MF_RETURN_IF_ERROR(remove_file(path));
    }
  }
  return {};
}

std::string PrefixCache::path_of(const Entry& entry) const {
  return folder_.path_of(checksum64(std::as_bytes(std::span(entry.tokens))));
}

// How many of `tokens` a sequence has that starts from the entry.
int64_t PrefixCache::usable(const Entry& entry, std::span<const TokenId> tokens) const {
  const auto length = static_cast<int64_t>(entry.tokens.size());
  const auto common = static_cast<int64_t>(common_tokens(entry.tokens, tokens));
  return common == length || common >= options_.shortest_truncation(length) ? common : 0;
}

Status PrefixCache::load_entry(const Entry& entry, int64_t length, const Load& load) const {
  if (!folder_.exists()) return load(length, entry.snapshot);
  MF_ASSIGN_OR_RETURN(const std::vector<std::byte> bytes,
                      read_bytes(path_of(entry), entry.size_bytes));
  return load(length, bytes);
}

PrefixCache::Match PrefixCache::find(std::span<const TokenId> text) const {
  const auto max = static_cast<size_t>(std::max<int64_t>(0, options_.tokens_max));
  const std::span<const TokenId> tokens = text.first(std::min(text.size(), max));
  Match best;
  for (size_t i = 0; i < entries_.size(); ++i) {
    const int64_t length = usable(entries_[i], tokens);
    if (length > best.length) best = {length, i};
  }
  return best;
}

Result<int64_t> PrefixCache::reuse(std::span<const TokenId> text, const Load& load) {
  while (true) {
    const auto [longest, best] = find(text);
    if (longest == 0) return int64_t{0};
    const Status loaded = load_entry(entries_[best], longest, load);
    if (loaded.ok()) {
      use(entries_[best]);
      return longest;
    }
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

bool PrefixCache::wants(std::span<const TokenId> tokens, uint64_t bytes) {
  if (tokens.empty() || bytes > options_.capacity_bytes) return false;
  for (Entry& entry : entries_) {
    if (usable(entry, tokens) != static_cast<int64_t>(tokens.size())) continue;
    use(entry);
    return false;
  }
  return true;
}

Status PrefixCache::keep(std::span<const TokenId> tokens, std::vector<std::byte> snapshot) {
  Entry added{{tokens.begin(), tokens.end()}, snapshot.size(), 0, {}};
  if (!folder_.exists()) {
    added.snapshot = std::move(snapshot);
  } else {
    MF_ASSIGN_OR_RETURN(const std::unique_ptr<AtomicFileWriter> writer,
                        AtomicFileWriter::create(path_of(added), FileAccess::kPrivate));
    MF_RETURN_IF_ERROR(writer->write(snapshot));
    MF_RETURN_IF_ERROR(writer->commit());
  }
  use(added);
  for (size_t i = entries_.size(); i-- > 0;) {
    const auto length = static_cast<int64_t>(entries_[i].tokens.size());
    if (usable(added, entries_[i].tokens) == length) remove(i);
  }
  entries_.push_back(std::move(added));
  return evict();
}

void PrefixCache::use(Entry& entry) {
  entry.last_use = ++uses_;
  if (folder_.exists()) folder_.note_use(path_of(entry));
}

void PrefixCache::forget(size_t i) { entries_.erase(entries_.begin() + static_cast<ptrdiff_t>(i)); }

// A file that cannot be removed is no longer known here; the next scan finds it.
void PrefixCache::remove(size_t i) {
  if (folder_.exists()) (void)remove_file(path_of(entries_[i]));
  forget(i);
}

Status PrefixCache::evict() {
  if (folder_.exists()) {
    MF_ASSIGN_OR_RETURN(const std::vector<FileUse> kept, folder_.trim(options_.capacity_bytes));
    std::set<std::string> paths;
    for (const FileUse& file : kept) paths.insert(folder_.path_of(file.name));
    std::erase_if(entries_, [&](const Entry& entry) { return !paths.contains(path_of(entry)); });
    return {};
  }
  while (size_bytes() > options_.capacity_bytes) {
    const auto oldest = std::ranges::min_element(entries_, {}, &Entry::last_use);
    forget(static_cast<size_t>(oldest - entries_.begin()));
  }
  return {};
}

uint64_t PrefixCache::size_bytes() const {
  return std::accumulate(
      entries_.begin(), entries_.end(), uint64_t{0},
      [](uint64_t bytes, const Entry& entry) { return bytes + entry.size_bytes; });
}

}  // namespace moeflux
