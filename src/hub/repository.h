// Models on a hub by name, and what the hub says that they are made of. All of it is from
// strangers: names and sizes are checked here, once.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace moeflux::hub {

/// "ORG/NAME", "ORG/NAME:QUANT" or "ORG/NAME:FILE".
struct ModelName {
  std::string repository;  // "ORG/NAME"
  std::string part;        // a quantisation like "Q4_K_M", a file of the repository, or empty
};

/// Also "hf.co/ORG/NAME" and the address of a model's page; the tag "latest" is none. Fails with
/// kInvalidArgument, saying what a name looks like.
Result<ModelName> parse_model_name(std::string_view text);

/// Fails with kCorruption unless a file's name is relative and fit for any file system: no "..",
/// no "." and no empty part, no control character or backslash, parts of at most 255 bytes.
Status check_file_name(std::string_view name);

/// True of "main", "v1.0" and commits: what may be a part of an address and of a path below refs.
bool is_revision(std::string_view text);

struct RemoteFile {
  std::string name;  // in the repository, with '/' between folders
  uint64_t size_bytes = 0;
  /// 64 digits of SHA-256 for a large file, 40 of git's blob hash for a small one. The name of the
  /// blob in the cache.
  std::string hash;

  bool is_large() const { return hash.size() == 64; }
};

struct Repository {
  std::string name;    // "ORG/NAME"
  std::string commit;  // 40 digits
  std::vector<RemoteFile> files;
};

/// The answer to /api/models/ORG/NAME/revision/REVISION?blobs=true. Fails with kCorruption, or with
/// kResourceExhausted beyond 100,000 files.
Result<Repository> parse_repository(std::string name, std::string_view json);

/// Files that make one model.
struct FileSet {
  std::string label;  // the quantisation as file names have it, or "safetensors"
  std::vector<RemoteFile> files;
  uint64_t bytes = 0;
  /// Bits of a weight as the label has them, 0 where it has none.
  int bits = 0;

  bool is_gguf() const;
};

/// The quantisation that a file's name ends with: "Q4_K_M", "UD-IQ2_XXS", "BF16"; empty without.
std::string quant_label(std::string_view file_name);
int label_bits(std::string_view label);

/// All models of a repository: each GGUF file, or whole split, and the safetensors files with what
/// belongs to them. The smallest first.
std::vector<FileSet> find_file_sets(const Repository& repository);

/// The sets that `part` means, all of them when it is empty. Fails with kNotFound where there is
/// none and kInvalidArgument where several could be meant, listing what there is.
Result<std::vector<FileSet>> choose_file_sets(const Repository& repository, std::string_view part);

}  // namespace moeflux::hub
