#include "hub/download.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/format.h"
#include "hub/sha.h"
#include "io/file_use.h"
#include "io/output_folder.h"
#include "io/part_file.h"

namespace moeflux::hub {
namespace {

constexpr uint64_t kApiBytesMax = 64 * kMiB;
constexpr uint64_t kHashedBytes = kMiB;        // at a time, between two looks at the network
constexpr uint64_t kReserveBytes = 64 * kMiB;  // of the drive, which stay free
constexpr uint64_t kPiecesMax = uint64_t{1} << 20;
constexpr std::chrono::milliseconds kLockPause{100};

// A file that arrives, with a record of its pieces behind the last byte: 8 bytes that say what it
// is, the size of a piece, then a byte for each piece that is there. The record goes before the
// file gets its name. It is written after the piece, so a killed process loses nothing; after a
// power failure it may be wrong, which the hash finds.
class Arrival {
 public:
  static Result<Arrival> open(const std::string& path, const RemoteFile& file,
                              uint64_t piece_bytes) {
    piece_bytes = std::max(piece_bytes, file.size_bytes / kPiecesMax + 1);
    MF_ASSIGN_OR_RETURN(std::unique_ptr<PartFile> part, PartFile::open(path));
    Arrival arrival(std::move(part), file, piece_bytes);
    MF_RETURN_IF_ERROR(arrival.recover());
    return arrival;
  }

  bool was_resumed() const { return was_resumed_; }
  /// Nothing has come.
  Status clear() {
    was_resumed_ = false;
    hashed_ = 0;
    large_ = Sha256();
    small_ = Sha1();
    std::ranges::fill(pieces_, std::byte{0});
    MF_RETURN_IF_ERROR(part_->resize(0));
    return write_record();
  }

  uint64_t done_bytes() const {
    uint64_t bytes = arriving_;
    for (size_t i = 0; i < pieces_.size(); ++i) {
      if (pieces_[i] != std::byte{0}) bytes += range_of(i).end - range_of(i).begin;
    }
    return bytes;
  }
  size_t num_pieces() const { return pieces_.size(); }
  bool has(size_t piece) const { return pieces_[piece] != std::byte{0}; }
  HttpRange range_of(size_t piece) const {
    const uint64_t begin = piece * piece_bytes_;
    return {begin, std::min(begin + piece_bytes_, size_)};
  }

  Status write(size_t piece, uint64_t offset, std::span<const std::byte> bytes) {
    MF_RETURN_IF_ERROR(part_->write_at(offset, bytes));
    arriving_ += bytes.size();
    const HttpRange range = range_of(piece);
    if (offset + bytes.size() < range.end) return {};
    pieces_[piece] = std::byte{1};
    arriving_ -= range.end - range.begin;
    const std::byte mark{1};
    return part_->write_at(record_at() + kHeadBytes + piece, std::span(&mark, 1));
  }
  /// Unfinished pieces are asked for again.
  void forget_arriving() { arriving_ = 0; }

  /// Hashes some of what has come from the beginning on; false when there is nothing to do now.
  Result<bool> hash_some() {
    if (hashed_ == size_ || !has(hashed_ / piece_bytes_)) return false;
    const uint64_t end = range_of(hashed_ / piece_bytes_).end;
    buffer_.resize(std::min(kHashedBytes, end - hashed_));
    MF_RETURN_IF_ERROR(part_->read_at(hashed_, buffer_));
    if (hash_.size() == 64) {
      large_.add(buffer_);
    } else {
      if (hashed_ == 0) add_git_head();
      small_.add(buffer_);
    }
    hashed_ += buffer_.size();
    return true;
  }

  /// Gives the file its name once its hash is right; false when it is not.
  Result<bool> publish(const std::string& path) {
    if (size_ == 0 && hash_.size() == 40) add_git_head();
    found_ = hash_.size() == 64 ? large_.finish() : small_.finish();
    if (found_ != hash_) return false;
    MF_RETURN_IF_ERROR(part_->resize(size_));
    MF_RETURN_IF_ERROR(part_->publish(path));
    return true;
  }
  const std::string& found_hash() const { return found_; }

 private:
  static constexpr uint64_t kHeadBytes = 16;
  static constexpr std::string_view kMagic = "mfpart1\n";

  Arrival(std::unique_ptr<PartFile> part, const RemoteFile& file, uint64_t piece_bytes)
      : part_(std::move(part)),
        hash_(file.hash),
        size_(file.size_bytes),
        piece_bytes_(piece_bytes),
        pieces_((size_ + piece_bytes - 1) / piece_bytes) {}

  uint64_t record_at() const { return size_; }

  void add_git_head() {
    const std::string head = formatted("blob {}", size_);
    small_.add(std::as_bytes(std::span(head.c_str(), head.size() + 1)));
  }

  std::array<std::byte, kHeadBytes> head() const {
    std::array<std::byte, kHeadBytes> bytes{};
    std::memcpy(bytes.data(), kMagic.data(), kMagic.size());
    std::memcpy(bytes.data() + 8, &piece_bytes_, 8);
    return bytes;
  }

  Status write_record() {
    MF_RETURN_IF_ERROR(part_->resize(size_ + kHeadBytes + pieces_.size()));
    MF_RETURN_IF_ERROR(part_->write_at(record_at() + kHeadBytes, pieces_));
    return part_->write_at(record_at(), head());
  }

  // The file may be ours, the beginning of a file by another program, or anything.
  Status recover() {
    MF_ASSIGN_OR_RETURN(const uint64_t found, part_->size_bytes());
    if (found == size_ + kHeadBytes + pieces_.size()) {
      std::array<std::byte, kHeadBytes> stored{};
      MF_RETURN_IF_ERROR(part_->read_at(record_at(), stored));
      if (stored == head()) {
        MF_RETURN_IF_ERROR(part_->read_at(record_at() + kHeadBytes, pieces_));
        for (std::byte& piece : pieces_) {
          if (piece != std::byte{1}) piece = std::byte{0};
        }
        was_resumed_ = done_bytes() > 0;
        return {};
      }
      return clear();
    }
    if (found > size_) return clear();
    for (size_t i = 0; i < pieces_.size(); ++i) {
      if (range_of(i).end <= found) pieces_[i] = std::byte{1};
    }
    was_resumed_ = done_bytes() > 0;
    return write_record();
  }

  std::unique_ptr<PartFile> part_;
  std::string hash_;
  uint64_t size_;
  uint64_t piece_bytes_;
  std::vector<std::byte> pieces_;
  bool was_resumed_ = false;
  uint64_t arriving_ = 0;
  uint64_t hashed_ = 0;
  Sha256 large_;
  Sha1 small_;
  std::vector<std::byte> buffer_;
  std::string found_;
};

Status cancelled() { return make_error(ErrorCode::kCancelled, "interrupted"); }

// Waits for whoever writes the blob.
Result<std::unique_ptr<FileLock>> wait_for_lock(const std::string& path,
                                                const DownloadOptions& options) {
  for (bool is_first = true;; is_first = false) {
    auto lock = FileLock::take(path);
    if (lock.ok() || lock.error().code() != ErrorCode::kFailedPrecondition) return lock;
    if (options.stop.stop_requested()) return cancelled().error();
    if (is_first && options.waits) options.waits();
    std::this_thread::sleep_for(kLockPause);
  }
}

Status receive(Fetcher& fetcher, const std::string& url, Arrival& arrival, uint64_t before,
               const DownloadOptions& options) {
  size_t piece = 0;
  const auto next = [&]() -> std::optional<FetchJob> {
    while (piece < arrival.num_pieces() && arrival.has(piece)) ++piece;
    if (piece == arrival.num_pieces()) return std::nullopt;
    const size_t own = piece++;
    return FetchJob{.url = url,
                    .range = arrival.range_of(own),
                    .take = [&arrival, own](uint64_t offset, std::span<const std::byte> bytes) {
                      return arrival.write(own, offset, bytes);
                    }};
  };
  const auto meanwhile = [&]() -> Status {
    if (options.progress) options.progress(before + arrival.done_bytes());
    const Result<bool> hashed = arrival.hash_some();
    return hashed.ok() ? Status() : Status(hashed.error());
  };
  const Status received = fetcher.run(next, meanwhile);
  arrival.forget_arriving();
  MF_RETURN_IF_ERROR(received);
  while (true) {
    if (options.stop.stop_requested()) return cancelled();
    MF_ASSIGN_OR_RETURN(const bool hashed, arrival.hash_some());
    if (!hashed) return {};
  }
}

Status download_blob(Fetcher& fetcher, const HubCache& cache, const Repository& repository,
                     const RemoteFile& file, uint64_t before, const DownloadOptions& options) {
  if (cache.has_blob(repository.name, file)) return {};
  const std::string path = cache.blob_path(repository.name, file.hash);
  MF_ASSIGN_OR_RETURN(const std::unique_ptr<FileLock> lock,
                      wait_for_lock(cache.lock_path(repository.name, file.hash), options));
  if (cache.has_blob(repository.name, file)) return {};
  const std::string part = path + ".incomplete";
  MF_ASSIGN_OR_RETURN(Arrival arrival, Arrival::open(part, file, options.piece_bytes));
  const std::string url = file_url(fetcher.settings(), repository, file.name);
  while (true) {
    const bool was_resumed = arrival.was_resumed();
    MF_RETURN_IF_ERROR(receive(fetcher, url, arrival, before, options));
    MF_ASSIGN_OR_RETURN(const bool is_right, arrival.publish(path));
    if (is_right) return {};
    if (!was_resumed) break;
    // The part that an earlier process got may be what is wrong.
    MF_RETURN_IF_ERROR(arrival.clear());
  }
  MF_RETURN_IF_ERROR(remove_file(part));
  return make_error(ErrorCode::kCorruption, "{}: {} has the hash {}, expected {}; nothing is kept",
                    repository.name, file.name, arrival.found_hash(), file.hash);
}

}  // namespace

Result<Repository> ask_repository(Fetcher& fetcher, const std::string& name,
                                  std::string_view revision) {
  if (!is_revision(revision)) {
    return make_error(ErrorCode::kInvalidArgument,
                      "--revision: '{}', expected a branch, tag or commit", revision);
  }
  std::string escaped;
  for (const char c : escaped_path(revision)) escaped += c == '/' ? "%2F" : std::string(1, c);
  const std::string url = formatted("{}/api/models/{}/revision/{}?blobs=true",
                                    fetcher.settings().endpoint.text, name, escaped);
  MF_ASSIGN_OR_RETURN(const std::string json, fetcher.text(url, kApiBytesMax));
  return parse_repository(name, json);
}

std::string file_url(const HubSettings& settings, const Repository& repository,
                     std::string_view file) {
  return formatted("{}/{}/resolve/{}/{}", settings.endpoint.text, repository.name,
                   repository.commit, escaped_path(file));
}

uint64_t missing_bytes(const HubCache& cache, const Repository& repository,
                       std::span<const RemoteFile> files) {
  uint64_t bytes = 0;
  for (const RemoteFile& file : files) {
    if (!cache.has_blob(repository.name, file)) bytes += file.size_bytes;
  }
  return bytes;
}

Status download(Fetcher& fetcher, const HubCache& cache, const Repository& repository,
                std::string_view revision, std::span<const RemoteFile> files,
                const DownloadOptions& options) {
  MF_RETURN_IF_ERROR(cache.prepare(repository.name));
  std::set<std::string> seen;  // several names may have one blob
  uint64_t needed = kReserveBytes;
  for (const RemoteFile& file : files) {
    if (cache.has_blob(repository.name, file) || !seen.insert(file.hash).second) continue;
    const std::string part = cache.blob_path(repository.name, file.hash) + ".incomplete";
    needed += file.size_bytes - std::min(file.size_bytes, disk_bytes(part));
  }
  MF_ASSIGN_OR_RETURN(const uint64_t free, free_disk_bytes(cache.root()));
  if (needed > kReserveBytes && needed > free) {
    return make_error(ErrorCode::kResourceExhausted, "{}: {} are free, and {} are needed",
                      cache.root(), format_bytes(free), format_bytes(needed));
  }
  uint64_t before = 0;
  for (const RemoteFile& file : files) {
    MF_RETURN_IF_ERROR(download_blob(fetcher, cache, repository, file, before, options));
    before += file.size_bytes;
    if (options.progress) options.progress(before);
  }
  return cache.link(repository, revision, files);
}

}  // namespace moeflux::hub
