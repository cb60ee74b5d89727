// Memory with a copy on each device of several.
#pragma once

#include <cstddef>
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

/// The copy of a tensor on a device; a tensor that has none is itself.
inline Tensor copy_on(size_t device, Tensor tensor) {
  if (tensor.buffer != nullptr && tensor.buffer->part == Buffer::kEachPart) {
    tensor.buffer = &static_cast<SplitBuffer*>(tensor.buffer)->on(device);
  }
  return tensor;
}

}  // namespace moeflux
