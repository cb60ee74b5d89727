#include "convert/written_folder.h"

#include <array>
#include <optional>
#include <utility>

#include "base/format.h"
#include "base/json.h"
#include "base/units.h"
#include "io/file.h"

namespace moeflux {
namespace {

constexpr std::string_view kBesideEnding = ".moeflux-new";
constexpr std::string_view kListFormat = "moeflux files";
constexpr uint64_t kListBytesMax = 16 * kMiB;
constexpr std::array<std::string_view, 2> kProbes = {"probe-a", "probe-b"};  // folders to exchange
constexpr uint64_t kSmallFilesBytes = 16 * kMiB;  // configs, tokenizers and lists, generously
constexpr std::string_view kTemporary = ".tmp-";  // of an AtomicFileWriter

std::string written_path(const std::string& folder, std::string_view name) {
  return formatted("{}/{}", folder, name);
}

/// The folders of names "folder/file".
std::set<std::string> folders_of(const std::set<std::string>& files) {
  std::set<std::string> folders;
  for (const std::string& name : files) {
    const size_t slash = name.rfind('/');
    if (slash != std::string::npos) folders.insert(name.substr(0, slash));
  }
  return folders;
}

/// Removes what writers of these files that were killed have left.
Status remove_temporary_files(const std::string& folder, const std::set<std::string>& files) {
  std::set<std::string> places = folders_of(files);
  places.insert("");
  for (const std::string& place : places) {
    const std::string path = place.empty() ? folder : written_path(folder, place);
    if (!is_directory(path)) continue;
    MF_ASSIGN_OR_RETURN(const std::vector<std::string> names, list_files(path));
    for (const std::string& name : names) {
      const size_t end = name.find(kTemporary);
      if (end == std::string::npos) continue;
      const std::string target = name.substr(0, end);
      if (!files.contains(place.empty() ? target : written_path(place, target))) continue;
      MF_RETURN_IF_ERROR(remove_file(written_path(path, name)));
    }
  }
  return {};
}

}  // namespace

Status check_free_space(const std::string& folder, std::string_view what, uint64_t bytes) {
  MF_ASSIGN_OR_RETURN(const uint64_t free, free_disk_bytes(folder));
  if (free >= bytes + kSmallFilesBytes) return {};
  return make_error(ErrorCode::kResourceExhausted, "{}: the {} needs {}, {} are free", folder, what,
                    format_bytes(bytes + kSmallFilesBytes), format_bytes(free));
}

struct WrittenFolder::List {
  std::set<std::string> files;
  bool replaces = false;  // the folder was written beside another one that is to go

  /// Nothing when the folder has no list.
  static Result<std::optional<List>> read(const std::string& folder);
  Status write(const std::string& folder) const;
  bool has_any_in(const std::string& folder) const;
};

Result<std::optional<WrittenFolder::List>> WrittenFolder::List::read(const std::string& folder) {
  const std::string path = written_path(folder, kWrittenFilesName);
  if (!path_exists(path)) return std::optional<List>();
  MF_ASSIGN_OR_RETURN(const std::string text, read_text_file(path, kListBytesMax));
  MF_ASSIGN_OR_RETURN(const Json json, parse_json(text, path));
  const auto format_name = json.find("format");
  const auto files = json.find("files");
  if (format_name == json.end() || *format_name != kListFormat || files == json.end() ||
      !files->is_array()) {
    return make_error(ErrorCode::kCorruption,
                      "{} is not a list of files, expected \"format\": \"{}\"", path, kListFormat);
  }
  List list;
  list.replaces = json.contains("replaces");
  for (const Json& file : *files) {
    if (!file.is_string()) {
      return make_error(ErrorCode::kCorruption, "{} lists {}, expected a name", path,
                        json_excerpt(file));
    }
    const auto& name = file.get_ref<const std::string&>();
    const Result<std::string> joined = join_inside(folder, name);
    if (!joined.ok()) return joined.error().with_context(path);
    list.files.insert(name);
  }
  return std::optional<List>(std::move(list));
}

Status WrittenFolder::List::write(const std::string& folder) const {
  Json json;
  json["format"] = kListFormat;
  if (replaces) json["replaces"] = true;
  json["files"] = files;
  return write_text_file(written_path(folder, kWrittenFilesName), json.dump(1) + "\n");
}

bool WrittenFolder::List::has_any_in(const std::string& folder) const {
  for (const std::string& name : files) {
    if (path_exists(written_path(folder, name))) return true;
  }
  return false;
}

Result<std::unique_ptr<WrittenFolder>> WrittenFolder::open(FolderWriting writing) {
  std::unique_ptr<WrittenFolder> folder(new WrittenFolder(std::move(writing)));
  const std::string& directory = folder->writing_.directory;
  for (const std::string& source : folder->writing_.sources) {
    MF_ASSIGN_OR_RETURN(const FileId id, file_id(source));
    folder->sources_.insert(id);
  }
  folder->was_made_ = !path_exists(directory);
  MF_RETURN_IF_ERROR(create_folder(directory));
  MF_RETURN_IF_ERROR(folder->check_sources(directory));
  MF_ASSIGN_OR_RETURN(folder->real_, real_path(directory));
  folder->beside_ = folder->real_ + std::string(kBesideEnding);
  MF_ASSIGN_OR_RETURN(auto lock, FolderLock::take(directory));
  folder->locks_.push_back(std::move(lock));
  MF_RETURN_IF_ERROR(folder->choose_path());
  return folder;
}

WrittenFolder::~WrittenFolder() {
  // Made here and not written into: a full disk was noticed in time.
  if (path_ == beside_) (void)remove_empty_folder(beside_);
  if (was_made_) (void)remove_empty_folder(writing_.directory);
}

Status WrittenFolder::choose_path() {
  path_ = writing_.directory;
  MF_RETURN_IF_ERROR(remove_temporary_files(path_, {std::string(kWrittenFilesName)}));
  std::optional<List> old;
  MF_ASSIGN_OR_RETURN(old, List::read(path_));
  const bool was_exchanged = old && old->replaces;
  if (was_exchanged) MF_RETURN_IF_ERROR(end_replacing());
  if (old) MF_RETURN_IF_ERROR(remove_temporary_files(path_, old->files));
  if (old && !old->has_any_in(path_)) {  // killed before the first file
    MF_RETURN_IF_ERROR(remove_file(written_path(path_, kWrittenFilesName)));
    old.reset();
  }
  MF_ASSIGN_OR_RETURN(const bool empty, is_empty_folder(path_));
  if (empty) return {};
  const Result<WritingProgress> progress =
      writing_.progress ? writing_.progress(path_) : WritingProgress::kNone;
  if (!progress.ok() && !writing_.replace) return progress.error();
  const WritingProgress reached = progress.ok() ? *progress : WritingProgress::kNone;
  if (reached == WritingProgress::kBegun) return {};
  if (reached == WritingProgress::kWhole && (!writing_.replace || was_exchanged)) return {};
  if (!writing_.replace) {
    return make_error(ErrorCode::kInvalidArgument,
                      "{}: the folder is not empty, and does not hold an interrupted output of the "
                      "same model; --force replaces a model that moeflux wrote",
                      path_);
  }
  MF_RETURN_IF_ERROR(check_foreign(old ? old->files : std::set<std::string>()));
  return old ? choose_path_beside(*old) : Status();
}

// A file that is ours by its name alone may be anybody's.
Status WrittenFolder::check_foreign(const std::set<std::string>& ours) const {
  std::set<std::string> found;
  for (const std::string& name : writing_.files) {
    if (!ours.contains(name) && path_exists(written_path(path_, name))) found.insert(name);
  }
  for (const std::string& name : folders_of(writing_.files)) {
    const std::string path = written_path(path_, name);
    if (path_exists(path) && !is_directory(path)) found.insert(name);
  }
  if (found.empty()) return {};
  const std::string others = found.size() > 1 ? formatted(" and {} more", found.size() - 1) : "";
  return make_error(ErrorCode::kInvalidArgument,
                    "{}: {}{} would be replaced, but {} does not say that moeflux wrote it; choose "
                    "another folder, or remove it yourself",
                    path_, *found.begin(), others, kWrittenFilesName);
}

Status WrittenFolder::check_sources(const std::string& path) const {
  const Result<FileId> id = file_id(path);
  if (!id.ok() || !sources_.contains(*id)) return {};
  return make_error(ErrorCode::kInvalidArgument,
                    "{} is an input; choose another folder for the output", path);
}

Status WrittenFolder::choose_path_beside(const List& old) {
  for (const std::string& name : old.files) {
    MF_RETURN_IF_ERROR(check_sources(written_path(path_, name)));
  }
  for (const std::string& source : writing_.sources) {
    MF_ASSIGN_OR_RETURN(const std::string real, real_path(source));
    // It would move with the folder's other contents, and a killed writing not find it again.
    if (real.starts_with(real_ + "/") || (real + "/").starts_with(beside_ + "/")) {
      return make_error(ErrorCode::kInvalidArgument,
                        "{}: the folder to replace holds the input {}; choose another folder for "
                        "the output",
                        writing_.directory, source);
    }
  }
  MF_RETURN_IF_ERROR(create_folder(beside_));
  path_ = beside_;
  MF_ASSIGN_OR_RETURN(auto lock, FolderLock::take(beside_));
  locks_.push_back(std::move(lock));
  MF_RETURN_IF_ERROR(remove_temporary_files(path_, {std::string(kWrittenFilesName)}));
  std::optional<List> begun;
  MF_ASSIGN_OR_RETURN(begun, List::read(beside_));
  if (begun && begun->replaces) {
    const Result<WritingProgress> progress =
        writing_.progress ? writing_.progress(path_) : WritingProgress::kNone;
    if (progress.ok() && *progress != WritingProgress::kNone) return {};
    MF_RETURN_IF_ERROR(remove_written(beside_, begun->files));
    MF_RETURN_IF_ERROR(remove_file(written_path(beside_, kWrittenFilesName)));
  }
  for (const std::string_view probe : kProbes) {
    MF_RETURN_IF_ERROR(remove_empty_folder(written_path(beside_, probe)));
  }
  MF_ASSIGN_OR_RETURN(const bool empty, is_empty_folder(beside_));
  if (!empty) {
    return make_error(ErrorCode::kInvalidArgument,
                      "{}: holds something that moeflux did not write, where the new model has to "
                      "be written; move it away",
                      beside_);
  }
  return check_exchange();
}

// The last step must not fail for what could have been known before the first.
Status WrittenFolder::check_exchange() const {
  MF_ASSIGN_OR_RETURN(const FileId here, file_id(real_));
  MF_ASSIGN_OR_RETURN(const FileId there, file_id(beside_));
  const std::array<std::string, 2> probes = {written_path(beside_, kProbes[0]),
                                             written_path(beside_, kProbes[1])};
  Status able;
  if (here.device != there.device) {
    able = make_error(ErrorCode::kUnsupported, "{} is where a file system is mounted", real_);
  }
  for (const std::string& probe : probes) {
    if (able.ok()) able = create_folder(probe);
  }
  if (able.ok()) able = exchange_folders(probes[0], probes[1]);
  for (const std::string& probe : probes) MF_RETURN_IF_ERROR(remove_empty_folder(probe));
  if (able.ok()) return {};
  return able.error().with_context(
      formatted("{}: cannot be replaced in one step; choose another folder", real_));
}

Status WrittenFolder::begin() {
  MF_RETURN_IF_ERROR(remove_temporary_files(path_, writing_.files));
  return List{writing_.files, path_ == beside_}.write(path_);
}

Status WrittenFolder::finish() {
  if (path_ != beside_) return {};
  MF_RETURN_IF_ERROR(exchange_folders(beside_, real_));
  path_ = real_;
  return end_replacing();
}

// Its own list tells the old model's files from what only lies there; the list goes last.
Status WrittenFolder::end_replacing() {
  if (is_directory(beside_)) {
    MF_RETURN_IF_ERROR(check_sources(beside_));
    std::optional<List> old;
    MF_ASSIGN_OR_RETURN(old, List::read(beside_));
    if (old) {
      MF_RETURN_IF_ERROR(remove_written(beside_, old->files));
      const std::string list = written_path(beside_, kWrittenFilesName);
      MF_RETURN_IF_ERROR(remove_file(list));
    }
    MF_RETURN_IF_ERROR(move_contents(beside_, real_));
    MF_RETURN_IF_ERROR(remove_empty_folder(beside_));
  }
  std::optional<List> list;
  MF_ASSIGN_OR_RETURN(list, List::read(real_));
  if (!list) return {};
  list->replaces = false;
  return list->write(real_);
}

Status WrittenFolder::remove_written(const std::string& folder,
                                     const std::set<std::string>& files) const {
  for (const std::string& name : files) {
    MF_RETURN_IF_ERROR(check_sources(written_path(folder, name)));
  }
  for (const std::string& name : files) MF_RETURN_IF_ERROR(remove_file(written_path(folder, name)));
  MF_RETURN_IF_ERROR(remove_temporary_files(folder, files));
  for (const std::string& name : folders_of(files)) {
    const std::string path = written_path(folder, name);
    if (!is_directory(path)) continue;
    MF_ASSIGN_OR_RETURN(const bool empty, is_empty_folder(path));
    if (empty) MF_RETURN_IF_ERROR(remove_empty_folder(path));
  }
  return {};
}

}  // namespace moeflux
