// Random checkpoints in the MLX layout or as GGUF: tensors described by name, shape and
// distribution, written at disk speed. Every byte follows from the seed, the tensor's name and its
// place, so that neither threads nor shard sizes show. Knows nothing about architectures.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <set>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "base/result.h"
#include "checkpoint/gguf_writer.h"
#include "checkpoint/tensor_index.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace moeflux {

struct ScalePlace;

struct SyntheticTensor {
  enum class Fill : uint8_t {
    kBits,     // every bit random
    kTable,    // 16-bit elements, each a random entry of `table`
    kUniform,  // BF16, F16 or F32 between low and high
    kBlocks    // blocks of `type` with random codes: synthetic_blocks.h
  };

  std::string name;
  DType dtype = DType::kBf16;
  Shape shape;
  Fill fill = Fill::kUniform;
  float low = 0.0f;
  float high = 0.0f;
  std::array<uint16_t, 32> table{};
  const GgmlType* type = nullptr;      // kBlocks: the tensor's; `table` has the scales
  const ScalePlace* place = nullptr;   // kBlocks: where they belong
  std::array<uint16_t, 32> offsets{};  // that go with them, in types that have some
  /// Tensors of one stream draw the same numbers: scales and biases of a matrix go together.
  std::string stream;

  uint64_t size_bytes() const;
};

struct LinearFormat {
  int bits = 4;  // 4 or 8
  int group_size = 64;
};

/// A checkpoint to be written. `config_json` must describe the tensors.
struct SyntheticCheckpoint {
  std::string config_json;
  std::vector<SyntheticTensor> tensors;

  uint64_t size_bytes() const;
  /// Adds name.weight, .scales and .biases of a module [leading..., rows, cols]: uniform codes, so
  /// that weights have mean zero and about the given standard deviation.
  void add_linear(const std::string& name, const Shape& shape, LinearFormat format,
                  float deviation);
  /// Adds a tensor of values uniform between low and high.
  void add_vector(const std::string& name, const Shape& shape, DType dtype, float low, float high);
  /// The same of mean zero and that standard deviation.
  void add_uniform(const std::string& name, const Shape& shape, DType dtype, float deviation);
  /// Adds a matrix of a GGML type for which can_fill() is true, and whose blocks rows are whole
  /// numbers of: the same distribution.
  void add_ggml(const std::string& name, const Shape& shape, const GgmlType& type, float deviation);
};

void fill_synthetic(const SyntheticTensor& tensor, uint64_t seed, uint64_t offset,
                    std::span<std::byte> out);

/// The same tensors as if they had been written: reading makes their bytes, from any thread.
TensorIndex index_synthetic(const SyntheticCheckpoint& checkpoint, uint64_t seed);

constexpr uint64_t kSyntheticShardBytes = uint64_t{4} << 30;

struct SyntheticWriting {
  std::string directory;  // exists
  uint64_t seed = 0;
  int threads = 0;  // 0: one per usable core
  uint64_t shard_bytes_max = kSyntheticShardBytes;
  std::stop_token stop = {};
  std::function<void(uint64_t bytes_done)> progress = {};
};

/// Writes model-0000k-of-0000n.safetensors, the index and, last, config.json: a folder without one
/// is incomplete. Memory is bounded whatever the size. Fails with kCancelled when stopped; what has
/// been completed until then stays.
Status write_synthetic(const SyntheticCheckpoint& checkpoint, const SyntheticWriting& options);
/// Writes one GGUF file of that name into the folder; config_json has no place there. It appears
/// when it is whole, otherwise as write_synthetic().
Status write_synthetic_gguf(const gguf::KeyWriter& keys, const SyntheticCheckpoint& checkpoint,
                            const std::string& name, const SyntheticWriting& options);
/// Names of all files that write_synthetic() writes.
std::set<std::string> synthetic_files(const SyntheticCheckpoint& checkpoint,
                                      uint64_t shard_bytes_max = kSyntheticShardBytes);

}  // namespace moeflux
