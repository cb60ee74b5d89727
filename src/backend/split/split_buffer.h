// Memory with a copy, or with some heads, on each device of several.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "tensor/tensor.h"

namespace moeflux {

/// The host cannot address it: what is written goes to copies.
class SplitBuffer : public Buffer {
 public:
  /// At least one copy, all of one size; others own them.
  explicit SplitBuffer(std::vector<Buffer*> copies) : copies_(std::move(copies)) {
    part = kEachPart;
  }
  /// The same with copies of its own.
  explicit SplitBuffer(std::vector<std::unique_ptr<Buffer>> copies) : owned_(std::move(copies)) {
    for (const std::unique_ptr<Buffer>& copy : owned_) copies_.push_back(copy.get());
    part = kEachPart;
  }
  size_t size_bytes() const override { return copies_.front()->size_bytes(); }
  std::byte* host_data() const override { return nullptr; }
  Buffer& on(size_t device) const { return *copies_[device]; }

 private:
  std::vector<std::unique_ptr<Buffer>> owned_;
  std::vector<Buffer*> copies_;
};

/// Memory of rows of heads, in which each device of several has the rows of some heads, or none.
/// The host cannot address it, as its rows lie apart.
class HeadsBuffer : public Buffer {
 public:
  /// Beside Buffer::kAnyPart and kEachPart.
  static constexpr int kPart = -3;

  /// The heads [begin, begin + count) of a device, as rows of them alone.
  struct Piece {
    std::unique_ptr<Buffer> buffer;  // null where there are none
    int64_t begin = 0;
    int64_t count = 0;
  };
  HeadsBuffer(std::vector<Piece> pieces, int64_t heads, size_t bytes)
      : pieces_(std::move(pieces)), heads_(heads), bytes_(bytes) {
    part = kPart;
  }
  size_t size_bytes() const override { return bytes_; }
  std::byte* host_data() const override { return nullptr; }
  int64_t heads() const { return heads_; }
  const Piece& piece(size_t device) const { return pieces_[device]; }

  /// The piece that a device has of a contiguous tensor that begins with a row of all heads. The
  /// device has at least one of them. The tensor is [rows, heads, width], or whole rows as two
  /// extents, of which the second is divided.
  Tensor on(size_t device, const Tensor& tensor) const {
    const Piece& own = pieces_[device];
    Shape shape{tensor.dim(0), tensor.dim(1) / heads_ * own.count};
    if (tensor.shape.rank() == 3) shape = Shape{tensor.dim(0), own.count, tensor.dim(2)};
    const auto share = static_cast<size_t>(own.count);
    return Tensor::view(*own.buffer, tensor.offset_bytes / static_cast<size_t>(heads_) * share,
                        shape, tensor.dtype);
  }

 private:
  std::vector<Piece> pieces_;
  int64_t heads_;
  size_t bytes_;
};

/// The memory of a tensor whose heads several devices divide, else null.
inline const HeadsBuffer* divided(const Tensor& tensor) {
  if (tensor.buffer == nullptr || tensor.buffer->part != HeadsBuffer::kPart) return nullptr;
  return static_cast<const HeadsBuffer*>(tensor.buffer);
}

/// The copy of a tensor on a device; a tensor that has none is itself.
inline Tensor copy_on(size_t device, Tensor tensor) {
  if (tensor.buffer != nullptr && tensor.buffer->part == Buffer::kEachPart) {
    tensor.buffer = &static_cast<SplitBuffer*>(tensor.buffer)->on(device);
  }
  return tensor;
}

}  // namespace moeflux
