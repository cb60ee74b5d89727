// A folder that a command fills: made when absent, looked at before anything in it is replaced,
// locked meanwhile.
#pragma once

#include <compare>
#include <cstdint>
#include <memory>
#include <string>

#include "base/result.h"
#include "io/file_access.h"

namespace moeflux {

/// Makes the folder unless it exists. Its parent must exist; a file of that name is
/// kInvalidArgument. A private one is made with mode 0700; one that exists keeps its own.
Status create_folder(const std::string& path, FileAccess access = FileAccess::kOrdinary);
/// True when the folder has no entries of any kind. Fails with kNotFound or kIo.
Result<bool> is_empty_folder(const std::string& path);
/// Bytes that an unprivileged process may still write to the file system of `path`, which exists.
Result<uint64_t> free_disk_bytes(const std::string& path);
/// Removes a file; one that is absent already is no error.
Status remove_file(const std::string& path);
/// Removes a folder; one that is absent already is no error, one that holds something is kIo.
Status remove_empty_folder(const std::string& path);

/// Absolute, without symbolic links, "." and "..". Fails with kNotFound or kIo.
Result<std::string> real_path(const std::string& path);

/// The identity of a file or folder, whatever it is called.
struct FileId {
  uint64_t device = 0;
  uint64_t inode = 0;
  friend auto operator<=>(const FileId&, const FileId&) = default;
};
/// Follows symbolic links. Fails with kNotFound or kIo.
Result<FileId> file_id(const std::string& path);

/// Moves everything that is in one folder into another one of the same file system. Folders that
/// are in both are merged; anything else of a name that is taken stays, and is kInvalidArgument.
Status move_contents(const std::string& from, const std::string& to);

/// Gives two folders each other's names in one step, which is durable when this returns. Fails
/// with kUnsupported where the file system has no such step, and changes nothing then.
Status exchange_folders(const std::string& a, const std::string& b);

/// Keeps others out of a folder: other processes, and other locks of this one. The destructor gives
/// it back, and so does the end of the process, however it ends. Nothing is left in the folder.
/// Machines that share a folder over a network do not see each other's locks, and a file system
/// without locks keeps nobody out.
class FolderLock {
 public:
  /// Never waits: fails with kFailedPrecondition when the folder is locked.
  static Result<std::unique_ptr<FolderLock>> take(const std::string& path);
  virtual ~FolderLock() = default;
};

}  // namespace moeflux
