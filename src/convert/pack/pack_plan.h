// The output of a packing, decided before the first byte: layouts, files and their sizes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/safetensors_stream.h"
#include "convert/pack_source.h"
#include "load/model_loader.h"

namespace moeflux {

struct PackFormat {
  /// How experts' matrices are stored, if they can be stored in tiles.
  WeightOrder order = WeightOrder::kTiled;
  /// The largest file of other tensors; a tensor that is larger gets one of its own.
  uint64_t shard_bytes_max = uint64_t{4} << 30;
};

/// A tensor beside the experts, which is copied.
struct DenseItem {
  std::string name;
  TensorEntry source;
};

struct DenseShard {
  std::string file;
  std::vector<DenseItem> items;
  std::vector<safetensors::PlannedTensor> tensors;  // of all items, in their order

  uint64_t size_bytes() const;
};

struct PackPlan {
  uint64_t source = 0;      // fingerprint
  uint64_t recipe = 0;      // equal recipes give equal folders
  std::string config_json;  // the source's
  std::vector<DenseShard> shards;
  std::vector<PackedLayer> layers;  // without checksums

  /// Bytes of tensors and experts: all but a few megabytes of the folder.
  uint64_t total_bytes() const;
};

/// `loaded` is the source's model, checked only. Fails with kInvalidArgument where no expert is
/// routed.
Result<PackPlan> plan_pack(const PackSource& source, const LoadedModel& loaded,
                           const PackFormat& format);

}  // namespace moeflux
