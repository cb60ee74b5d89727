// WeightReads: memory for dense weights, and what is to be read into it once every claim has turned
// out well. A checkpoint that does not fit its config is refused before its gigabytes are read, and
// the bytes to read are known before the first.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backend/device.h"
#include "base/result.h"
#include "checkpoint/tensor_index.h"
#include "model/weights/weight_origin.h"
#include "quant/weight.h"

namespace moeflux {

/// Told, before each tensor, how many stored bytes there are up to its end, of how many; false
/// stops reading with kCancelled.
using ReadProgress = std::function<bool(uint64_t done_bytes, uint64_t total_bytes)>;

/// All numbers of a tensor of any float dtype, or in blocks.
Result<std::vector<float>> read_floats(const TensorIndex& index, const std::string& name,
                                       const TensorEntry& entry);

class WeightReads {
 public:
  /// Both must outlive the reads; `device` also the buffers.
  WeightReads(const TensorIndex& index, Device& device) : index_(index), device_(device) {}
  WeightReads(const WeightReads&) = delete;
  WeightReads& operator=(const WeightReads&) = delete;

  /// Every place begins at a multiple of it.
  static constexpr size_t kPlaceAlignment = 64;

  /// One buffer for all places in memory of this kind, of which `bytes` is the sum, each rounded up
  /// to kPlaceAlignment. Fails with kResourceExhausted.
  Status open_block(MemoryKind kind, uint64_t bytes);
  /// The same for layers that one of several devices has.
  Status open_part_block(size_t part, uint64_t bytes);
  /// Room for a tensor, of a layer where it has one; small ones share buffers.
  Result<Tensor> place(size_t bytes, const Shape& shape, DType dtype,
                       MemoryKind kind = MemoryKind::kDevice,
                       std::optional<LayerId> layer = std::nullopt);

  // The work of run(), in the order of these calls. Tensors are places of place().

  void add_module(const Weight& to, const StoredModule& from);
  /// Numbers of any float dtype, or in blocks, as f32, each mapped.
  void add_floats(const Tensor& to, std::string name, const TensorEntry& from,
                  const std::function<float(float)>& map);
  /// Rows of `length` numbers, which become `step` apart with zeros between.
  struct Spread {
    int64_t length = 0;
    int64_t step = 1;
  };
  void add_spread_floats(const Tensor& to, std::string name, const TensorEntry& from,
                         const Spread& spread);
  /// Whole numbers of 32 or 64 bits as i32. Fails with kCorruption unless all are in [0, below).
  void add_ids(const Tensor& to, std::string name, const TensorEntry& from, int64_t below);
  void add_constant(const Tensor& to, std::span<const float> values);

  /// `total_bytes` is the sum of what has been added.
  Status run(const ReadProgress& progress);
  Result<std::vector<int32_t>> read_ids(const std::string& name, const TensorEntry& entry,
                                        int64_t below) const;

  std::vector<std::unique_ptr<Buffer>> take_buffers() { return std::move(buffers_); }

 private:
  struct Read {
    uint64_t stored_bytes = 0;
    std::function<Status()> run;
  };
  /// One of buffers_, filled up to `used`.
  struct Block {
    Buffer* buffer = nullptr;
    size_t used = 0;
  };

  /// A buffer for places of the layer, or for all.
  Result<Buffer*> take_buffer(size_t bytes, MemoryKind kind, std::optional<LayerId> layer);
  void add_tensor(const Tensor& to, const StoredPart& from);
  void add_tiles(const Weight& to, const StoredModule& from);
  void add_converted(const Weight& to, const StoredModule& from);
  Status read_converted(const Weight& to, Weight stored, const StoredModule& from);
  Status fill(const Tensor& tensor, const TensorEntry& entry);

  const TensorIndex& index_;
  Device& device_;
  std::vector<Read> reads_;
  std::vector<std::unique_ptr<Buffer>> buffers_;
  /// One of each MemoryKind, and of each device's own where one is made of several.
  std::vector<Block> open_blocks_ = std::vector<Block>(2);
  std::vector<std::byte> upload_piece_;  // on its way to memory that the host cannot address
};

}  // namespace moeflux
