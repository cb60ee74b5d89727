// Where every tensor of a checkpoint lies: name -> (file, offset, dtype, shape). Built once from
// untrusted headers, immutable afterwards, safe to share between threads.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "checkpoint/expert_pack.h"
#include "io/file.h"
#include "quant/format.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace moeflux {

struct TensorEntry {
  int32_t file = 0;           // into TensorIndex::files()
  uint64_t offset_bytes = 0;  // absolute in the file; any alignment, even odd
  uint64_t size_bytes = 0;    // of the shape in dtype, or of its rows in format
  DType dtype = DType::kF32;  // kU8 where there is a format
  Shape shape;
  /// How rows are stored whose blocks hold codes and scales together (GGUF).
  std::optional<QuantFormat> format = {};

  /// "BF16", "q4_k".
  std::string type_name() const;
};

/// One layer of the folder's expert pack.
struct PackedExperts {
  PackedLayer layout;
  int32_t file = 0;                 // into TensorIndex::files()
  std::vector<uint64_t> checksums;  // of each expert's blob
};

class TensorIndex {
 public:
  using Entries = std::map<std::string, TensorEntry, std::less<>>;

  /// Opens the shards that DIR/model.safetensors.index.json names or, where there is no index or
  /// one of other files, those that choose_shards() finds. The contents of the files count, not
  /// what the index says of them. Every header is checked: length, JSON, dtypes, shapes without
  /// overflow, extents inside the file that match shape and dtype, no overlap, no name twice but
  /// where the index says which one counts. With DIR/expert_pack.json, also the files it names:
  /// their lengths and tables of checksums. A file called `beside` is read as well where it is.
  static Result<TensorIndex> open(const std::string& directory, std::string_view beside = {});
  /// Over files that are known to hold what `entries` say.
  static TensorIndex from_parts(std::vector<std::unique_ptr<File>> files, Entries entries);
  /// The same whose names are the canonical ones of the model's families.
  static TensorIndex canonical(std::vector<std::unique_ptr<File>> files, Entries entries);

  const TensorEntry* find(std::string_view name) const;  // null when absent
  const Entries& entries() const { return entries_; }
  const File& file(int32_t i) const { return *files_[static_cast<size_t>(i)]; }
  int32_t num_files() const { return static_cast<int32_t>(files_.size()); }

  /// Adds the expert pack of a folder; nothing where there is none.
  Status open_expert_pack(const std::string& directory);

  bool has_canonical_names() const { return has_canonical_names_; }
  bool has_expert_pack() const { return !packed_.empty(); }
  const std::map<int32_t, PackedExperts>& packed_layers() const { return packed_; }
  /// The dense_fingerprint() of the folder that the pack belongs to, as the pack has it.
  uint64_t packed_model() const { return packed_model_; }

 private:
  std::vector<std::unique_ptr<File>> files_;
  Entries entries_;
  bool has_canonical_names_ = false;
  std::map<int32_t, PackedExperts> packed_;
  uint64_t packed_model_ = 0;
};

// Metadata of .safetensors files that a packer wrote from GGUF.

/// The key whose value names the format of a tensor's blocks, as find_format() knows it. Such a
/// tensor is U8, and its last extent is the bytes of a row.
std::string block_format_key(std::string_view tensor);
/// The key that is there when names are the canonical ones.
inline constexpr std::string_view kCanonicalNamesKey = "moeflux.canonical_names";

/// Tells one model from another: names, shapes, dtypes and sizes of the tensors, and config.json
/// apart from its white space. Where and in how many files tensors lie does not matter. Fails when
/// the config is not JSON.
Result<uint64_t> dense_fingerprint(const TensorIndex& index, std::string_view config_json);
/// The same, and what the expert pack holds where there is one.
Result<uint64_t> checkpoint_fingerprint(const TensorIndex& index, std::string_view config_json);

/// Reads all bytes of a tensor; `into` has exactly entry.size_bytes.
Status read_tensor(const TensorIndex& index, const TensorEntry& entry, std::span<std::byte> into);

}  // namespace moeflux
