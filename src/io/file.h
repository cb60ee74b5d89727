// Files: opened read-only and read at offsets, read whole, or written atomically.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "io/file_access.h"

namespace moeflux {

/// One file's, -1 where there is none. They belong to the File.
struct FileDescriptors {
  int buffered = -1;
  int direct = -1;  // reads past the page cache: see kDirectAlignment
};

/// A regular file open for reading. Thread-safe: reads carry their own offset.
class File {
 public:
  virtual ~File() = default;

  /// As given to open_file; for messages.
  virtual const std::string& path() const = 0;
  virtual uint64_t size_bytes() const = 0;
  /// Fills `into` from `offset`. Short reads and EINTR are retried; end of file or a device error
  /// is kIo with the path, offset and errno text.
  virtual Status read_at(uint64_t offset, std::span<std::byte> into) const = 0;

  /// For readers that ask the system themselves. The first call opens `direct`, which is -1 where
  /// the filesystem refuses. Files that are none of the system's have neither: read_at reads them.
  virtual FileDescriptors descriptors() const { return {}; }
};

/// Fails with kNotFound, kIo, or kInvalidArgument for a folder or a device.
Result<std::unique_ptr<File>> open_file(const std::string& path);

/// The whole file. Fails with kResourceExhausted beyond `bytes_max`, naming both sizes.
Result<std::string> read_text_file(const std::string& path, uint64_t bytes_max);

/// Standard input up to its end, with the same bound.
Result<std::string> read_standard_input(uint64_t bytes_max);

/// Writes to a temporary file beside `path`, fsyncs and renames, so that `path` is either old or
/// complete. A private one has mode 0600 from its first byte on, whatever `path` had before. A
/// killed process leaves a file PATH.tmp-PID-N; see remove_abandoned_file().
class AtomicFileWriter {
 public:
  static Result<std::unique_ptr<AtomicFileWriter>> create(
      const std::string& path, FileAccess access = FileAccess::kOrdinary);
  virtual ~AtomicFileWriter() = default;  // without commit() the temporary file is removed
  virtual Status write(std::span<const std::byte> bytes) = 0;
  virtual Status commit() = 0;
};

/// Writes a whole file atomically.
Status write_text_file(const std::string& path, std::string_view text);

bool path_exists(const std::string& path);
bool is_directory(const std::string& path);
/// Names (not paths) of the regular files in a folder, sorted.
Result<std::vector<std::string>> list_files(const std::string& directory);
/// "dir/name"; `name` must not be absolute, nor climb out with "..": checkpoints name their shards.
Result<std::string> join_inside(const std::string& directory, std::string_view name);

}  // namespace moeflux
