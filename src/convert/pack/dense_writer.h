// Copies the tensors beside the experts into shards of a packed folder.
#pragma once

#include <string>

#include "convert/pack/pack_plan.h"
#include "convert/pipeline.h"

namespace moeflux {

/// Makes the bytes of a shard's tensors in their order; a piece never spans two tensors.
Status make_dense_shard(const DenseShard& shard, const TensorIndex& source, Pipeline& pipeline,
                        const ByteSink& write);
/// Writes directory/shard.file atomically.
Status write_dense_shard(const DenseShard& shard, const TensorIndex& source,
                         const std::string& directory, Pipeline& pipeline);

}  // namespace moeflux
