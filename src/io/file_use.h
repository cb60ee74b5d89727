// The files of a folder in which things are kept: how large they are, when each was used last,
// which temporary files nobody writes any more, and who may replace one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"

namespace moeflux {

struct FileUse {
  std::string name;
  uint64_t size_bytes = 0;
  int64_t used_ns = 0;  // of the wall clock, since 1970: when it was written or said to be used
};

/// The regular files of a folder, by name. Links are left out, and so is what vanishes meanwhile.
/// Fails with kNotFound or kIo.
Result<std::vector<FileUse>> list_file_uses(const std::string& directory);

/// The wall clock that FileUse::used_ns is of.
int64_t wall_clock_ns();
/// Says when a file was used last; as fine as its file system keeps time. Fails with kNotFound or
/// kIo.
Status note_file_use(const std::string& path, int64_t used_ns);

/// Removes a file; that is durable when this returns. Fails with kNotFound or kIo.
Status erase_file(const std::string& path);

/// Limits on all files of a cache together.
struct FileLimits {
  uint64_t bytes_max = 0;
  size_t count_max = SIZE_MAX;
};

/// Removes those of `files`, which are in `directory`, that were used longest ago, until the others
/// are within the limits; gives these, the last used first. One that is too large even alone
/// removes no other, and one that cannot be removed is counted as gone.
std::vector<FileUse> remove_oldest_files(const std::string& directory, std::vector<FileUse> files,
                                         const FileLimits& limits);

/// Removes the temporary file of an AtomicFileWriter whose process has ended. False, and the file
/// stays, while its writer lives and wherever that cannot be told: it holds a lock that ends with
/// it, which no process id can stand for, as those are given anew.
bool remove_abandoned_file(const std::string& path);

/// Keeps other processes, and other locks of this one, from a name, by a file of that name which
/// nothing else is in. The destructor gives it back and removes the file. The end of the process,
/// however it ends, gives it back too, and leaves a file that locks nothing. Machines that share a
/// folder over a network do not see each other's locks, and a file system without locks keeps
/// nobody out.
class FileLock {
 public:
  /// Never waits: fails with kFailedPrecondition while somebody has it, or kIo.
  static Result<std::unique_ptr<FileLock>> take(const std::string& path);
  virtual ~FileLock() = default;
  /// False once somebody has removed the file, which gives the name to whoever comes.
  virtual bool is_held() const = 0;
};

}  // namespace moeflux
