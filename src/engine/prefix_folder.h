// The files of kept states in a folder that processes, models and devices share: what they are
// called, when each was used last, and which ones go when there are too many bytes. Knows names,
// sizes and times; knows nothing of tokens.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "io/file_use.h"

namespace moeflux {

/// Thread-compatible; any number of processes may use one folder.
class PrefixFolder {
 public:
  /// An empty directory: there is none, and nothing may be called but exists().
  PrefixFolder(std::string directory, uint64_t owner);

  bool exists() const { return !directory_.empty(); }
  /// Makes the folder unless it exists; its parent must. Fails with kIo and kInvalidArgument.
  Status create() const;

  /// The file of the owner's state of tokens with this checksum.
  std::string path_of(uint64_t tokens) const;
  std::string path_of(const std::string& name) const;
  bool is_own(std::string_view name) const;

  /// Removes the states that were used longest ago, whoever owns them, until `capacity_bytes` are
  /// kept, and what writers that died have left. Gives the states that remain. Other files are
  /// neither counted nor touched. Fails with kIo when the folder cannot be read.
  Result<std::vector<FileUse>> trim(uint64_t capacity_bytes) const;
  /// The file was used just now, later than all that were used before here.
  void note_use(const std::string& path);

 private:
  Result<std::vector<FileUse>> list() const;
  bool is_state(const FileUse& file) const;

  std::string directory_;
  std::string own_prefix_;
  int64_t last_use_ns_ = 0;
};

}  // namespace moeflux
