#include "hub/hub_cache.h"

#include <algorithm>
#include <memory>
#include <set>
#include <utility>

#include "base/format.h"
#include "io/file.h"
#include "io/file_use.h"
#include "io/output_folder.h"
#include "io/part_file.h"
#include "io/path_text.h"

namespace moeflux::hub {
namespace {

constexpr uint64_t kRefBytesMax = 4096;
constexpr int kDepthMax = 16;  // of folders in a snapshot
constexpr size_t kEntriesMax = 100'000;
constexpr std::string_view kModels = "models--";

using Kind = FolderEntry::Kind;

/// A link of a snapshot: its name there and the blob that it leads to.
struct Link {
  std::string name;
  std::string blob;  // a name in blobs; empty for anything else
};

std::vector<FolderEntry> entries_of(const std::string& path) {
  auto entries = list_folder(path);
  return entries.ok() ? std::move(*entries) : std::vector<FolderEntry>();
}

void collect_links(const std::string& folder, const std::string& prefix, int depth,
                   std::vector<Link>& links) {
  for (const FolderEntry& entry : entries_of(folder)) {
    if (links.size() >= kEntriesMax) return;
    const std::string path = formatted("{}/{}", folder, entry.name);
    const std::string name = prefix + entry.name;
    if (entry.kind == Kind::kFolder && depth < kDepthMax) {
      collect_links(path, name + "/", depth + 1, links);
    } else if (entry.kind == Kind::kLink) {
      const std::string target = read_link(path).value_or("");
      const bool is_blob = folder_of(target).ends_with("/blobs");
      links.push_back({name, is_blob ? std::string(file_name_of(target)) : ""});
    }
  }
}

// Names by which others decide that a model is whole.
bool is_entrance(std::string_view name) {
  const std::string_view file = file_name_of(name);
  return file == "config.json" || file.ends_with(".index.json") ||
         file.find("-00001-of-") != std::string_view::npos;
}

std::string relative_blob(std::string_view name, std::string_view hash) {
  std::string up = "../../";
  for (const char c : name) up += c == '/' ? "../" : "";
  return formatted("{}blobs/{}", up, hash);
}

Status remove_empty_folders(const std::string& folder, int depth) {
  for (const FolderEntry& entry : entries_of(folder)) {
    if (entry.kind != Kind::kFolder || depth >= kDepthMax) continue;
    MF_RETURN_IF_ERROR(remove_empty_folders(formatted("{}/{}", folder, entry.name), depth + 1));
  }
  const auto is_empty = is_empty_folder(folder);
  return is_empty.ok() && *is_empty ? remove_empty_folder(folder) : Status();
}

Status remove_files(const std::string& folder, int depth) {
  for (const FolderEntry& entry : entries_of(folder)) {
    const std::string path = formatted("{}/{}", folder, entry.name);
    if (entry.kind == Kind::kFolder && depth < kDepthMax) {
      MF_RETURN_IF_ERROR(remove_files(path, depth + 1));
    } else if (entry.kind == Kind::kFile || entry.kind == Kind::kLink) {
      MF_RETURN_IF_ERROR(remove_file(path));
    }
  }
  return {};
}

// A process that downloads has the lock of a blob; these keep others out.
Result<std::vector<std::unique_ptr<FileLock>>> take_locks(const HubCache& cache,
                                                          const std::string& repository) {
  std::set<std::string> hashes;  // of "HASH" and "HASH.incomplete"
  for (const FolderEntry& entry : entries_of(cache.blob_path(repository, ""))) {
    hashes.insert(entry.name.substr(0, entry.name.find('.')));
  }
  std::vector<std::unique_ptr<FileLock>> locks;
  for (const std::string& hash : hashes) {
    auto lock = FileLock::take(cache.lock_path(repository, hash));
    if (lock.ok()) {
      locks.push_back(std::move(lock).value());
    } else if (lock.error().code() == ErrorCode::kFailedPrecondition) {
      return make_error(ErrorCode::kFailedPrecondition, "{}: another process downloads it",
                        repository);
    }
  }
  return locks;
}

}  // namespace

std::string HubCache::model_folder(std::string_view repository) const {
  std::string name(repository);
  if (const size_t slash = name.find('/'); slash != std::string::npos) name.replace(slash, 1, "--");
  return formatted("{}/{}{}", root_, kModels, name);
}

std::string HubCache::blob_path(std::string_view repository, std::string_view hash) const {
  return formatted("{}/blobs/{}", model_folder(repository), hash);
}

std::string HubCache::lock_path(std::string_view repository, std::string_view hash) const {
  return formatted("{}/.locks/{}/{}.lock", root_, file_name_of(model_folder(repository)), hash);
}

std::string HubCache::snapshot_folder(std::string_view repository, std::string_view commit) const {
  return formatted("{}/snapshots/{}", model_folder(repository), commit);
}

Status HubCache::prepare(std::string_view repository) const {
  const std::string folder = model_folder(repository);
  MF_RETURN_IF_ERROR(create_folders(folder_of(lock_path(repository, ""))));
  for (const std::string_view part : {"blobs", "refs", "snapshots"}) {
    MF_RETURN_IF_ERROR(create_folders(formatted("{}/{}", folder, part)));
    MF_ASSIGN_OR_RETURN(const std::string root, real_path(root_));
    MF_ASSIGN_OR_RETURN(const std::string real, real_path(formatted("{}/{}", folder, part)));
    if (!real.starts_with(root + "/")) {
      return make_error(ErrorCode::kInvalidArgument, "{}/{} leads out of the cache, to {}", folder,
                        part, real);
    }
  }
  return {};
}

bool HubCache::has_blob(std::string_view repository, const RemoteFile& file) const {
  const std::string path = blob_path(repository, file.hash);
  const auto found = open_file(path);
  return found.ok() && (*found)->size_bytes() == file.size_bytes;
}

Status HubCache::link(const Repository& repository, std::string_view revision,
                      std::span<const RemoteFile> files) const {
  std::vector<const RemoteFile*> ordered;
  for (const RemoteFile& file : files) ordered.push_back(&file);
  std::ranges::stable_sort(ordered, {},
                           [](const RemoteFile* file) { return is_entrance(file->name); });
  const std::string folder = snapshot_folder(repository.name, repository.commit);
  for (const RemoteFile* file : ordered) {
    const std::string path = formatted("{}/{}", folder, file->name);
    const std::string target = relative_blob(file->name, file->hash);
    if (read_link(path) == target) continue;
    MF_RETURN_IF_ERROR(create_folders(folder_of(path)));
    MF_RETURN_IF_ERROR(write_link(path, target));
  }
  if (revision == repository.commit) return {};
  const std::string ref = formatted("{}/refs/{}", model_folder(repository.name), revision);
  MF_RETURN_IF_ERROR(create_folders(folder_of(ref)));
  return write_text_file(ref, repository.commit);
}

std::optional<std::string> HubCache::commit_of(std::string_view repository,
                                               std::string_view revision) const {
  const std::string folder = model_folder(repository);
  const auto text = read_text_file(formatted("{}/refs/{}", folder, revision), kRefBytesMax);
  std::string commit(text.ok() ? *text : revision);
  commit.erase(std::min(commit.find_first_of(" \r\n"), commit.size()));
  const bool is_right = is_revision(commit) && commit.find('/') == std::string::npos;
  return is_right && is_directory(snapshot_folder(repository, commit)) ? std::optional(commit)
                                                                       : std::nullopt;
}

Result<Repository> HubCache::snapshot(const std::string& repository,
                                      std::string_view revision) const {
  const auto commit = commit_of(repository, revision);
  if (!commit) {
    return make_error(ErrorCode::kNotFound, "{} is not in {}: moeflux pull {} gets it", repository,
                      root_, repository);
  }
  Repository found{.name = repository, .commit = *commit};
  std::vector<Link> links;
  collect_links(snapshot_folder(repository, *commit), "", 0, links);
  for (Link& link : links) {
    const auto blob = open_file(blob_path(repository, link.blob));
    if (link.blob.empty() || !blob.ok()) continue;
    found.files.push_back({std::move(link.name), (*blob)->size_bytes(), std::move(link.blob)});
  }
  return found;
}

std::vector<std::string> HubCache::repositories() const {
  std::vector<std::string> names;
  for (const FolderEntry& entry : entries_of(root_)) {
    if (entry.kind != Kind::kFolder || !entry.name.starts_with(kModels)) continue;
    std::string name = entry.name.substr(kModels.size());
    const size_t dashes = name.find("--");
    if (dashes == std::string::npos) continue;
    name.replace(dashes, 2, "/");
    names.push_back(std::move(name));
  }
  return names;
}

Result<uint64_t> HubCache::remove(const ModelName& name) const {
  const std::string folder = model_folder(name.repository);
  if (!is_directory(folder) || read_link(folder)) {
    return make_error(ErrorCode::kNotFound, "{} is not in {}", name.repository, root_);
  }
  const std::string blobs = folder + "/blobs";
  MF_RETURN_IF_ERROR(create_folders(folder_of(lock_path(name.repository, ""))));
  MF_ASSIGN_OR_RETURN(auto locks, take_locks(*this, name.repository));
  const std::string snapshots = folder + "/snapshots";
  std::set<std::string> kept;
  bool found = name.part.empty();
  for (const FolderEntry& commit : entries_of(snapshots)) {
    if (commit.kind != Kind::kFolder) continue;
    const std::string snapshot = formatted("{}/{}", snapshots, commit.name);
    std::vector<Link> links;
    collect_links(snapshot, "", 0, links);
    std::set<std::string> gone;
    if (!name.part.empty()) {
      Repository here{.name = name.repository, .commit = commit.name};
      for (const Link& link : links) here.files.push_back({link.name, 0, link.blob});
      const auto sets = choose_file_sets(here, name.part);
      if (!sets.ok() && sets.error().code() != ErrorCode::kNotFound) return sets.error();
      if (sets.ok()) {
        for (const RemoteFile& file : sets->front().files) gone.insert(file.name);
      }
    }
    for (const Link& link : links) {
      if (!name.part.empty() && !gone.contains(link.name)) {
        kept.insert(link.blob);
        continue;
      }
      found = true;
      MF_RETURN_IF_ERROR(remove_file(formatted("{}/{}", snapshot, link.name)));
    }
  }
  if (!found) {
    return make_error(ErrorCode::kNotFound, "{} has no '{}' in {}", name.repository, name.part,
                      root_);
  }
  uint64_t freed = 0;
  for (const FolderEntry& entry : entries_of(blobs)) {
    if (entry.kind != Kind::kFile || kept.contains(entry.name)) continue;
    if (!name.part.empty() && entry.name.ends_with(".incomplete")) continue;
    MF_RETURN_IF_ERROR(remove_file(formatted("{}/{}", blobs, entry.name)));
    freed += entry.size_bytes;
  }
  if (name.part.empty()) {
    // The last two are huggingface_hub's: names that are absent, and lists of files.
    for (const char* part : {"refs", ".no_exist", "trees"}) {
      MF_RETURN_IF_ERROR(remove_files(formatted("{}/{}", folder, part), 0));
    }
  }
  locks.clear();
  MF_RETURN_IF_ERROR(remove_empty_folders(folder, 0));
  const std::string own_locks = folder_of(lock_path(name.repository, ""));
  if (name.part.empty()) MF_RETURN_IF_ERROR(remove_files(own_locks, 0));
  MF_RETURN_IF_ERROR(remove_empty_folders(own_locks, 0));
  return freed;
}

}  // namespace moeflux::hub
