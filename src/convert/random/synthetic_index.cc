// A synthetic checkpoint as an index over a file that exists nowhere: its bytes are made when they
// are read.
#include <algorithm>

#include "base/format.h"
#include "convert/random/synthetic.h"

namespace moeflux {
namespace {

/// All tensors one after another.
class SyntheticFile final : public File {
 public:
  SyntheticFile(std::vector<SyntheticTensor> tensors, uint64_t seed)
      : path_(formatted("synthetic checkpoint of seed {}", seed)),
        seed_(seed),
        tensors_(std::move(tensors)) {
    uint64_t end = 0;
    for (const SyntheticTensor& tensor : tensors_) ends_.push_back(end += tensor.size_bytes());
  }

  const std::string& path() const override { return path_; }
  uint64_t size_bytes() const override { return ends_.empty() ? 0 : ends_.back(); }
  Status read_at(uint64_t offset, std::span<std::byte> into) const override {
    if (offset > size_bytes() || into.size() > size_bytes() - offset) {
      return make_error(ErrorCode::kIo, "{}: reading {} bytes at offset {} met the end at {}",
                        path_, into.size(), offset, size_bytes());
    }
    auto i =
        static_cast<size_t>(std::upper_bound(ends_.begin(), ends_.end(), offset) - ends_.begin());
    while (!into.empty()) {
      const uint64_t begin = ends_[i] - tensors_[i].size_bytes();
      const uint64_t count = std::min<uint64_t>(into.size(), ends_[i] - offset);
      fill_synthetic(tensors_[i], seed_, offset - begin, into.first(count));
      offset += count;
      into = into.subspan(count);
      ++i;
    }
    return {};
  }

 private:
  std::string path_;
  uint64_t seed_;
  std::vector<SyntheticTensor> tensors_;
  std::vector<uint64_t> ends_;
};

}  // namespace

TensorIndex index_synthetic(const SyntheticCheckpoint& checkpoint, uint64_t seed) {
  TensorIndex::Entries entries;
  uint64_t offset = 0;
  for (const SyntheticTensor& tensor : checkpoint.tensors) {
    entries[tensor.name] = {0, offset, tensor.size_bytes(), tensor.dtype, tensor.shape};
    offset += tensor.size_bytes();
  }
  std::vector<std::unique_ptr<File>> files;
  files.push_back(std::make_unique<SyntheticFile>(checkpoint.tensors, seed));
  return TensorIndex::from_parts(std::move(files), std::move(entries));
}

}  // namespace moeflux
