// A folder that a command fills with a model. It knows which files in it moeflux wrote, lets one
// writer in at a time, and keeps the model that was there until the new one is whole.
//
// Our files are listed in a file of the folder before the first of them is written; nothing else is
// ever replaced or removed. A model that is replaced stays usable where it is while the new one is
// written to "FOLDER.moeflux-new" beside it. Then the two folders exchange their names in one step,
// what is not ours moves over, and the old model goes. Killed at any moment, a folder of that name
// holds one whole model, and the same writing goes on.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "io/output_folder.h"

namespace moeflux {

/// The list of what moeflux has written into a folder.
constexpr std::string_view kWrittenFilesName = "moeflux_files.json";

/// kResourceExhausted, naming `what`, where `bytes` and some MiB for small files beside them are
/// more than what is free in a folder.
Status check_free_space(const std::string& folder, std::string_view what, uint64_t bytes);

/// How far an earlier run of the same writing has come in a folder.
enum class WritingProgress : uint8_t { kNone, kBegun, kWhole };

struct FolderWriting {
  std::string directory;
  /// All that will be written, relative to the folder; at most one folder deep.
  std::set<std::string> files;
  /// A model that moeflux has written there may be replaced.
  bool replace = false;
  /// The folder and the files that are read meanwhile: they must stay.
  std::vector<std::string> sources = {};
  /// An error says what else the folder holds; with `replace` it is the same as kNone.
  std::function<Result<WritingProgress>(const std::string& folder)> progress = {};
};

class WrittenFolder {
 public:
  /// Makes the folder when it is absent, locks it, and finds out where to write. Fails with
  /// kInvalidArgument when the folder is a source, holds something and may not be replaced, or
  /// holds files of names to be written that moeflux has not written; with kFailedPrecondition
  /// when another writer is in it.
  static Result<std::unique_ptr<WrittenFolder>> open(FolderWriting writing);
  /// Unlocks. Written files stay, to go on with; a folder that open() made goes if it is empty.
  ~WrittenFolder();
  WrittenFolder(const WrittenFolder&) = delete;
  WrittenFolder& operator=(const WrittenFolder&) = delete;

  /// Where to write: the folder, or the one beside it.
  const std::string& path() const { return path_; }
  /// Before the first file: lists what will be ours, and removes what killed writers of these
  /// files have left.
  Status begin();
  /// When everything is written and durable.
  Status finish();

 private:
  struct List;  // the contents of kWrittenFilesName

  explicit WrittenFolder(FolderWriting writing) : writing_(std::move(writing)) {}

  Status choose_path();
  Status choose_path_beside(const List& old);
  Status check_foreign(const std::set<std::string>& ours) const;
  Status check_sources(const std::string& path) const;
  Status check_exchange() const;
  Status remove_written(const std::string& folder, const std::set<std::string>& files) const;
  Status end_replacing();

  FolderWriting writing_;
  std::set<FileId> sources_;
  std::string real_;    // of writing_.directory
  std::string beside_;  // where a new model waits for its whole; afterwards the old one, to go
  std::string path_;
  bool was_made_ = false;  // by open()
  std::vector<std::unique_ptr<FolderLock>> locks_;
};

}  // namespace moeflux
