// Where every tensor of a checkpoint lies: name -> (file, offset, dtype, shape). Built once from
// untrusted headers, immutable afterwards, safe to share between threads.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "io/file.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace moeflux {

struct TensorEntry {
  int32_t file = 0;           // into TensorIndex::files()
  uint64_t offset_bytes = 0;  // absolute in the file; any alignment, even odd
  uint64_t size_bytes = 0;    // equals shape x dtype
  DType dtype = DType::kF32;
  Shape shape;
};

class TensorIndex {
 public:
  /// Opens DIR/model.safetensors.index.json with the shards it names, or DIR/model.safetensors, or
  /// a lone *.safetensors file; several files without an index are refused, as nothing says whether
  /// they belong together or all are there. Every header is checked: length, JSON, dtypes, shapes
  /// without overflow, extents inside the file that match shape and dtype, no overlap, no name
  /// twice; the index must agree with the shards both ways.
  static Result<TensorIndex> open(const std::string& directory);

  const TensorEntry* find(std::string_view name) const;  // null when absent
  const std::map<std::string, TensorEntry, std::less<>>& entries() const { return entries_; }
  const File& file(int32_t i) const { return *files_[static_cast<size_t>(i)]; }
  int32_t num_files() const { return static_cast<int32_t>(files_.size()); }

 private:
  std::vector<std::unique_ptr<File>> files_;
  std::map<std::string, TensorEntry, std::less<>> entries_;
};

/// Reads all bytes of a tensor; `into` has exactly entry.size_bytes.
Status read_tensor(const TensorIndex& index, const TensorEntry& entry, std::span<std::byte> into);

}  // namespace moeflux
