// Device: where memory comes from and work goes to. One object per piece of hardware, no globals.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "quant/format.h"
#include "quant/weight.h"
#include "tensor/tensor.h"

namespace moeflux {

class Encoder;
namespace ops {
struct AnyOp;
}

enum class MemoryKind {
  kDevice,  // weights, state and scratch
  // Also written by readers from storage: expert slots, staging. Kernels of a device with memory of
  // its own read it over a bus: all that this memory has no room for, states and weights as well.
  kHostVisible,
};

constexpr int64_t kPrefillChunkUsual = 512;

/// Thread-safe. Must outlive the buffers and encoders it made.
class Device {
 public:
  virtual ~Device() = default;

  /// The name it is chosen by: "cpu", "reference".
  virtual std::string_view name() const = 0;
  /// The hardware it runs on, for people: "cpu (avx512 f32, 2 threads)".
  virtual std::string_view description() const = 0;
  /// Equal for devices that give the same bits: what they are, instruction set, precision. Settings
  /// that change the speed alone, such as threads, are no part of it.
  virtual std::string_view bits_key() const { return description(); }
  /// Zero-initialised memory, at least 4096-byte aligned; pages may be touched lazily.
  /// Fails with kResourceExhausted.
  virtual Result<std::unique_ptr<Buffer>> allocate(size_t bytes, MemoryKind kind) = 0;
  /// The same for a layer's weights, experts or states.
  virtual Result<std::unique_ptr<Buffer>> allocate_for(LayerId /*layer*/, size_t bytes,
                                                       MemoryKind kind) {
    return allocate(bytes, kind);
  }
  /// The same for keys or values of so many heads, alike for each token: the heads are divided
  /// between several devices after divide_heads().
  virtual Result<std::unique_ptr<Buffer>> allocate_heads(LayerId layer, int64_t /*heads*/,
                                                         size_t bytes, MemoryKind kind) {
    return allocate_for(layer, bytes, kind);
  }
  /// Copies bytes into a buffer of this device, at once: for loading, while no work uses the range.
  virtual Status upload(Buffer& to, uint64_t offset_bytes, std::span<const std::byte> from) {
    MF_CHECK(to.host_data() != nullptr && offset_bytes + from.size() <= to.size_bytes());
    if (!from.empty()) std::memcpy(to.host_data() + offset_bytes, from.data(), from.size());
    return {};
  }
  /// Bytes left of the device's own memory; nothing when it works in the host's.
  virtual std::optional<uint64_t> free_bytes() const { return std::nullopt; }
  /// The rate of reads of its own memory, as its maker says; 0: unknown.
  virtual double memory_bytes_per_second() const { return 0.0; }
  /// How many devices it is made of.
  virtual size_t num_parts() const { return 1; }
  /// One of these, by number: its memory is its own, and it makes no encoder. Itself where it is
  /// made of no others.
  virtual Device& part(size_t /*number*/) { return *this; }
  /// The bytes that each of several has left, of a device that is made of several; else empty.
  virtual std::vector<uint64_t> free_bytes_by_part() const { return {}; }
  /// Says which of several devices gets each layer, by number, before allocate_for().
  virtual void place_layers(std::vector<size_t> /*parts*/) {}
  /// The number of the device that has a layer.
  virtual size_t part_of(LayerId /*layer*/) const { return 0; }
  /// Says that several devices divide the heads of keys and values, before allocate_heads().
  virtual void divide_heads() {}
  /// How many of a layer's `heads` each of several devices has then; else empty.
  virtual std::vector<int64_t> heads_by_part(LayerId /*layer*/, int64_t /*heads*/) const {
    return {};
  }
  /// Lets work that is recorded here use memory of `other`, a device with the same kernels, at its
  /// addresses. kUnsupported where no bus leads there.
  virtual Status reach(const Device& other);
  /// `scratch_bytes` bounds Encoder::scratch(): measured by a dry run on the trace backend.
  virtual Result<std::unique_ptr<Encoder>> create_encoder(size_t scratch_bytes) = 0;
  /// kUnsupported with the operation's name where its encoders do not compute it.
  virtual Status supports(const ops::AnyOp& /*op*/) const { return {}; }
  /// Tokens of a prompt that are best evaluated together, if nobody says otherwise.
  virtual int64_t preferred_prefill_chunk() const { return kPrefillChunkUsual; }
  /// True when expert_ffn() takes parts of experts that begin at any multiple of their elements.
  virtual bool takes_unaligned_experts() const { return false; }
  /// True when expert_ffn() makes the same bits of row-major matrices of this format, however many
  /// rows they have in tiles, as of tiles: what is streamed need not be brought into them.
  virtual bool multiplies_rows_as_tiles(const QuantFormat& stored) const {
    (void)stored;
    return false;
  }
  /// True when expert_ffn() multiplies this matrix, laid out anywhere, by units of 16 bits: the
  /// same bits on every device that does.
  virtual bool multiplies_units(const Weight& matrix) const {
    (void)matrix;
    return false;
  }
  /// True when encoders copy beside recorded work, Encoder::copy_beside().
  virtual bool copies_beside() const { return false; }
  /// True when attention() takes pages of f16 and of 8 bits (quant/q8_rows.h) beside those of f32.
  virtual bool takes_narrow_cache() const { return false; }
  /// True when attention() takes keys and values of different types.
  virtual bool takes_mixed_cache() const { return true; }
  /// The type of keys and values, if nobody says otherwise: f16 only where takes_narrow_cache().
  virtual DType preferred_cache_type() const { return DType::kF32; }
  /// The order in which a [rows, cols] matrix stored as `stored` is best handed to linear(),
  /// embed() and expert_ffn(), which must then take it; row-major they take always, and the other
  /// operations take nothing else. kTiled only where tiled::is_tileable().
  virtual WeightOrder preferred_order(const QuantFormat& stored, int64_t rows, int64_t cols) const {
    (void)rows;
    (void)cols;
    return stored.order;
  }
};

}  // namespace moeflux
