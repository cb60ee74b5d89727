// Makes the blobs of an expert pack from the experts of a checkpoint: reads them and puts every
// part in its place.
#pragma once

#include <span>
#include <vector>

#include "checkpoint/tensor_index.h"
#include "convert/pipeline.h"
#include "experts/expert_table.h"

namespace moeflux {

/// Thread-safe: calls share nothing but what they read. References must outlive it.
class BlobMaker {
 public:
  BlobMaker(const ExpertLayer& source, const TensorIndex& index, const PackedLayer& target)
      : source_(source), index_(index), target_(target) {}

  /// `blob` is target.stride bytes. Fails when a read does.
  Status make(ExpertId expert, std::span<std::byte> blob) const;
  const PackedLayer& target() const { return target_; }

 private:
  void put_matrix(ExpertId expert, size_t i, std::byte* slot, std::byte* blob) const;

  const ExpertLayer& source_;
  const TensorIndex& index_;
  const PackedLayer& target_;
};

/// Makes all blobs of a layer in order; returns their checksums.
Result<std::vector<uint64_t>> make_blobs(const BlobMaker& maker, Pipeline& pipeline,
                                         const ByteSink& write);

}  // namespace moeflux
