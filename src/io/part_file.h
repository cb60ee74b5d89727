// Files that arrive in pieces, and the links and folders of a cache of downloads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "io/file_access.h"

namespace moeflux {

/// A file that is written at offsets in any order, and that keeps what was written when the process
/// is killed. For one thread.
class PartFile {
 public:
  /// Makes the file unless it exists. Never follows a link at the last name. Fails with kIo, with
  /// kNotFound without its folder, and with kInvalidArgument for what is not a regular file.
  static Result<std::unique_ptr<PartFile>> open(const std::string& path);
  virtual ~PartFile() = default;
  virtual Result<uint64_t> size_bytes() const = 0;
  /// The drive being full is kResourceExhausted.
  virtual Status write_at(uint64_t offset, std::span<const std::byte> bytes) = 0;
  /// Fills all of `into`.
  virtual Status read_at(uint64_t offset, std::span<std::byte> into) const = 0;
  virtual Status resize(uint64_t bytes) = 0;
  /// Gives the file another name of the same file system in one step, durably: the bytes first.
  virtual Status publish(const std::string& path) = 0;
};

/// The bytes that a file takes on its drive, which are fewer than its size where nothing was
/// written; 0 when it is absent.
uint64_t disk_bytes(const std::string& path);
/// Makes the folder and those above it that are absent.
Status create_folders(const std::string& path, FileAccess access = FileAccess::kOrdinary);
/// A symbolic link at `path` to `target`, in one step in place of the file or link that is there.
Status write_link(const std::string& path, const std::string& target);
/// The text of a symbolic link; nullopt where there is none.
std::optional<std::string> read_link(const std::string& path);

/// One thing in a folder, itself: links are not followed.
struct FolderEntry {
  enum class Kind : uint8_t { kFile, kFolder, kLink, kOther };
  std::string name;
  Kind kind = Kind::kFile;
  uint64_t size_bytes = 0;
};
/// All entries, sorted by name, without "." and "..". Fails with kNotFound or kIo.
Result<std::vector<FolderEntry>> list_folder(const std::string& path);

}  // namespace moeflux
