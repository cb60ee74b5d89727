// The output of a quantisation, decided before the first byte: which tensors of which formats,
// under the names that mlx-lm knows them by, and what config.json says of them.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/safetensors_stream.h"
#include "load/model_loader.h"
#include "quant/format.h"

namespace moeflux {

/// The format that linear modules are quantised to.
struct QuantizeType {
  const FormatTraits* kind = &affine_format;  // mxfp4_format, or plain_format: rounds nothing
  int bits = 4;
  int group_size = 64;

  /// "affine-4", "mxfp4". Fails with kInvalidArgument, listing what there is.
  static Result<QuantizeType> parse(const std::string& name, int group_size);
  std::string to_string() const;
};

/// A linear module or embedding as it will be written.
struct QuantizedModule {
  std::string name;  // without ".weight"
  const ClaimedModule* source = nullptr;
  QuantFormat format;
};

/// A small tensor as it will be written.
struct QuantizedFloats {
  std::string name;
  const ClaimedFloats* source = nullptr;
  Shape shape;
  float add = 0.0f;  // to each number that is stored; 0: as they are, bit for bit
};

/// The stacked experts of a layer: gate, up and down.
struct QuantizedExperts {
  LayerId layer{};
  std::array<std::string, 3> names;  // of modules
  std::array<QuantFormat, 3> formats;
};

/// A file, or three of them that hold a matrix of the experts each.
struct QuantizedShard {
  std::vector<std::string> files;                                // one, or gate, up and down
  std::vector<std::vector<safetensors::PlannedTensor>> tensors;  // by file, in order
  std::vector<QuantizedModule> modules;
  std::vector<QuantizedFloats> floats;  // after the modules
  std::vector<QuantizedExperts> experts;
};

struct QuantizePlan {
  std::string config_json;
  std::vector<QuantizedShard> shards;

  uint64_t total_bytes() const;
};

/// `loaded` is the source's model, checked only; the plan points into it. Fails with
/// kInvalidArgument when the source has an expert pack.
Result<QuantizePlan> plan_quantize(const LoadedModel& loaded, const QuantizeType& type,
                                   uint64_t shard_bytes_max);

/// The parts of a module in a file, [leading..., rows, columns of the part].
std::vector<safetensors::PlannedTensor> planned_parts(const std::string& name, const Shape& shape,
                                                      const QuantFormat& format);

}  // namespace moeflux
