// The files alone are the truth: other servers and programs may write and remove some at any time.
#include "store/folder_shelf.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "base/format.h"
#include "io/file.h"
#include "io/output_folder.h"
#include "io/part_file.h"
#include "store/json_seal.h"

namespace moeflux {
namespace {

constexpr std::string_view kTemporary = ".tmp-";  // behind a file's name: an AtomicFileWriter's
constexpr std::string_view kLock = ".lock";       // the same: a claim's
// Clocks of machines that share a folder differ by less. A time beyond it says nothing, and what
// has it must not stay for ever.
constexpr int64_t kClockSlackNs = int64_t{3600} * 1'000'000'000;

/// Gives times of uses, each later than all it knows of, however coarse the clock is and wherever
/// it was set back to. Thread-safe.
class UseClock {
 public:
  explicit UseClock(std::function<int64_t()> now_ns) : now_ns_(std::move(now_ns)) {}

  /// `used_ns` as what is to be compared with other uses: a time that says nothing is before all
  /// others, and among its kind where it was.
  int64_t learn(int64_t used_ns) {
    const std::lock_guard lock(mutex_);
    if (used_ns > now_ns_() + kClockSlackNs) return used_ns - INT64_MAX;
    last_ns_ = std::max(last_ns_, used_ns);
    return used_ns;
  }

  int64_t next() {
    const std::lock_guard lock(mutex_);
    const int64_t now = now_ns_();
    if (last_ns_ > now + kClockSlackNs) last_ns_ = 0;
    return last_ns_ = std::max(now, last_ns_ + 1);
  }

 private:
  const std::function<int64_t()> now_ns_;
  std::mutex mutex_;  // guards what follows
  int64_t last_ns_ = 0;
};

class FileClaim final : public ShelfClaim {
 public:
  FileClaim(std::unique_ptr<FileLock> lock, std::string directory)
      : directory_(std::move(directory)), lock_(std::move(lock)) {}
  // A folder that is gone has revoked nothing: what is written to it says so.
  bool is_held() const override { return lock_->is_held() || !path_exists(directory_); }

 private:
  const std::string directory_;
  const std::unique_ptr<FileLock> lock_;
};

// A folder that is gone is no name that is unknown.
Error folder_error(const Error& error) {
  return error.code() == ErrorCode::kNotFound ? Error(ErrorCode::kIo, error.message()) : error;
}

class FolderShelf final : public Shelf {
 public:
  explicit FolderShelf(ShelfOptions options)
      : options_(std::move(options)), clock_(options_.clock_ns) {}

  Result<Bytes> find(const std::string& name) override {
    if (!options_.is_name(name)) return unknown(name);
    MF_ASSIGN_OR_RETURN(std::vector<std::byte> bytes, read(name));
    switch (options_.seal == Seal::kOwn ? SealState::kWhole : take_seal(bytes, name)) {
      case SealState::kWhole:
        use(name);
        break;
      case SealState::kAbsent:
        seal(name);
        break;
      case SealState::kDamaged:
        return make_error(ErrorCode::kCorruption, "{}: its contents do not match its checksum",
                          place_of(name));
      case SealState::kOfAnother:
        return make_error(ErrorCode::kCorruption,
                          "{}: its contents were stored under another name, its kept_as",
                          place_of(name));
    }
    return Bytes(std::make_shared<std::vector<std::byte>>(std::move(bytes)));
  }

  Status keep(const std::string& name, std::vector<std::byte> bytes,
              const std::vector<std::string>& replaced) override {
    if (!options_.is_name(name)) {
      return make_error(ErrorCode::kInvalidArgument, "\"{}\" is not a name that can be stored",
                        name);
    }
    if (options_.seal == Seal::kJson) add_seal(bytes, name);
    MF_ASSIGN_OR_RETURN(std::vector<FileUse> files, list_files());
    std::erase_if(files, [&](const FileUse& file) { return file.name == file_of(name); });
    Others others;
    for (const FileUse& file : files) {
      others.bytes += file.size_bytes;
      ++others.count;
    }
    const ShelfLimits& limits = options_.limits;
    MF_RETURN_IF_ERROR(check_room(limits, bytes.size(), others));
    const auto remove_replaced = [&] {
      for (const std::string& one : replaced) {
        if (one == name) continue;
        (void)remove_file(place_of(one));
        std::erase_if(files, [&](const FileUse& file) { return file.name == file_of(one); });
      }
    };
    // First, as both together are more than there may be.
    if (limits.makes_room && others.bytes + bytes.size() > limits.bytes_max) {
      remove_replaced();
      files = remove_oldest_files(options_.directory, std::move(files),
                                  {.bytes_max = limits.bytes_max - bytes.size()});
    }
    MF_RETURN_IF_ERROR(write(name, bytes));
    remove_replaced();
    if (!limits.makes_room) return {};
    files.push_back({file_of(name), bytes.size(), INT64_MAX});  // not this one
    trim(std::move(files));
    return {};
  }

  // A file whose time cannot be set, such as another user's, is used all the same.
  void use(const std::string& name) override { (void)note_file_use(place_of(name), clock_.next()); }

  Status erase(const std::string& name) override {
    return options_.is_name(name) ? erase_file(place_of(name)) : Status(unknown(name));
  }

  Result<std::vector<ShelfItem>> list() override {
    MF_ASSIGN_OR_RETURN(const std::vector<FileUse> files, list_files());
    std::vector<ShelfItem> all;
    for (const FileUse& file : files) {
      all.push_back(
          {std::string(name_of(file.name)), file.size_bytes, std::max<int64_t>(0, file.used_ns)});
    }
    return all;
  }

  Result<std::unique_ptr<ShelfClaim>> claim(const std::string& name) override {
    if (!options_.is_name(name)) return unknown(name);
    Result<std::unique_ptr<FileLock>> lock = FileLock::take(lock_of(name));
    if (lock.ok()) {
      return std::unique_ptr<ShelfClaim>(
          std::make_unique<FileClaim>(std::move(lock).value(), options_.directory));
    }
    const bool is_claimed = lock.error().code() == ErrorCode::kFailedPrecondition;
    return is_claimed ? claimed_error(name) : folder_error(lock.error());
  }

  Status revoke(const std::string& name) override {
    return options_.is_name(name) ? erase_file(lock_of(name)) : Status(unknown(name));
  }

  std::string place_of(const std::string& name) const override {
    return formatted("{}/{}", options_.directory, file_of(name));
  }

  /// Removes locks of the dead. Once, as who tries a lock has it for a moment.
  Status remove_dead_locks() const {
    const Result<std::vector<FileUse>> files = list_file_uses(options_.directory);
    if (!files.ok()) return folder_error(files.error());
    for (const FileUse& file : *files) {
      const std::string_view name = file.name;
      const bool is_lock = name.ends_with(kLock);
      if (!is_lock || !is_file_name(name.substr(0, name.size() - kLock.size()))) continue;
      (void)remove_abandoned_file(formatted("{}/{}", options_.directory, name));
    }
    return {};
  }

  /// Removes what was used longest ago until the rest has room.
  Status trim() {
    MF_ASSIGN_OR_RETURN(std::vector<FileUse> files, list_files());
    trim(std::move(files));
    return {};
  }

 private:
  std::string file_of(const std::string& name) const { return name + options_.suffix; }
  std::string lock_of(const std::string& name) const { return place_of(name) + std::string(kLock); }
  std::string_view name_of(std::string_view file) const {
    return file.substr(0, file.size() - options_.suffix.size());
  }

  bool is_file_name(std::string_view file) const {
    return file.ends_with(options_.suffix) && options_.is_name(name_of(file));
  }

  void trim(std::vector<FileUse> files) const {
    remove_oldest_files(
        options_.directory, std::move(files),
        {.bytes_max = options_.limits.bytes_max, .count_max = options_.limits.count_max});
  }

  Result<std::vector<std::byte>> read(const std::string& name) const {
    MF_ASSIGN_OR_RETURN(const std::unique_ptr<File> file, open_file(place_of(name)));
    if (file->size_bytes() > options_.limits.bytes_max) {
      return make_error(ErrorCode::kCorruption, "{}: has {} bytes, expected at most {}",
                        place_of(name), file->size_bytes(), options_.limits.bytes_max);
    }
    std::vector<std::byte> bytes(file->size_bytes());
    MF_RETURN_IF_ERROR(file->read_at(0, bytes));
    return bytes;
  }

  Status write(const std::string& name, const std::vector<std::byte>& bytes) {
    const auto file = AtomicFileWriter::create(place_of(name), FileAccess::kPrivate);
    if (!file.ok()) return folder_error(file.error());
    MF_RETURN_IF_ERROR((*file)->write(bytes));
    MF_RETURN_IF_ERROR((*file)->commit());
    use(name);
    return {};
  }

  // Only while nobody else may replace it. Where that cannot be, the next who finds it tries.
  void seal(const std::string& name) {
    const auto claimed = claim(name);
    if (!claimed.ok()) return use(name);
    Result<std::vector<std::byte>> bytes = read(name);  // as it is by now
    if (!bytes.ok() || take_seal(*bytes, name) != SealState::kAbsent) return;
    add_seal(*bytes, name);
    if (bytes->size() <= options_.limits.bytes_max) (void)write(name, *bytes);
  }

  /// Our own files, with uses that can be compared. Removes temporary files of the dead.
  Result<std::vector<FileUse>> list_files() {
    Result<std::vector<FileUse>> files = list_file_uses(options_.directory);
    if (!files.ok()) return folder_error(files.error());
    std::vector<FileUse> ours;
    for (FileUse& file : *files) {
      const std::string path = formatted("{}/{}", options_.directory, file.name);
      const size_t end = file.name.rfind(kTemporary);
      if (end != std::string::npos && is_file_name(std::string_view(file.name).substr(0, end))) {
        (void)remove_abandoned_file(path);
      }
      if (!is_file_name(file.name)) continue;
      const std::string name(name_of(file.name));
      if (options_.is_kept && !options_.is_kept(name, path)) continue;
      file.used_ns = clock_.learn(file.used_ns);
      ours.push_back(std::move(file));
    }
    return ours;
  }

  const ShelfOptions options_;
  UseClock clock_;
};

}  // namespace

Result<std::unique_ptr<Shelf>> open_folder_shelf(ShelfOptions options) {
  MF_RETURN_IF_ERROR(create_folders(options.directory, FileAccess::kPrivate));
  const bool makes_room = options.limits.makes_room;
  auto shelf = std::make_unique<FolderShelf>(std::move(options));
  MF_RETURN_IF_ERROR(shelf->remove_dead_locks());
  if (makes_room) MF_RETURN_IF_ERROR(shelf->trim());
  return std::unique_ptr<Shelf>(std::move(shelf));
}

}  // namespace moeflux
