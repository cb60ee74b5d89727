// The folder of downloads as huggingface_hub has it, which both programs read and write:
//
//   models--ORG--NAME/blobs/HASH             whole files, by the hash of their contents
//   models--ORG--NAME/snapshots/COMMIT/FILE  links into blobs
//   models--ORG--NAME/refs/REVISION          the commit of a revision
//   .locks/models--ORG--NAME/HASH.lock       held while a blob is written
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "hub/repository.h"

namespace moeflux::hub {

class HubCache {
 public:
  explicit HubCache(std::string root) : root_(std::move(root)) {}

  const std::string& root() const { return root_; }
  std::string model_folder(std::string_view repository) const;
  std::string blob_path(std::string_view repository, std::string_view hash) const;
  std::string lock_path(std::string_view repository, std::string_view hash) const;
  std::string snapshot_folder(std::string_view repository, std::string_view commit) const;

  /// Makes the folders that a download into `repository` needs. Fails with kInvalidArgument where
  /// one of them is a link that leads out of the cache.
  Status prepare(std::string_view repository) const;
  /// Whether the blob is there, whole. Blobs are named once they have been verified.
  bool has_blob(std::string_view repository, const RemoteFile& file) const;

  /// Makes files visible whose blobs are there, then the revision. Links of weights and
  /// configurations that others are found by come last.
  Status link(const Repository& repository, std::string_view revision,
              std::span<const RemoteFile> files) const;

  /// The commit of a revision, nullopt without.
  std::optional<std::string> commit_of(std::string_view repository,
                                       std::string_view revision) const;
  /// The files of a snapshot that are there, as a repository: how offline names are resolved.
  Result<Repository> snapshot(const std::string& repository, std::string_view revision) const;
  /// Repositories that have a snapshot: "ORG/NAME".
  std::vector<std::string> repositories() const;

  /// Removes the files of `part`, or all of the model when it is empty, and blobs that no snapshot
  /// links to any more; gives the bytes that were freed. Files that the layout does not have stay.
  /// Fails with kNotFound, and with kFailedPrecondition while another process downloads the model.
  Result<uint64_t> remove(const ModelName& name) const;

 private:
  std::string root_;
};

}  // namespace moeflux::hub
