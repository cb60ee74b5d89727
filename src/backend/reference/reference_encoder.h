// The Encoder of the reference device: executes each operation in the call.
#pragma once

#include <memory>
#include <span>

#include "backend/encoder.h"
#include "backend/host_buffer.h"
#include "backend/reference/reference.h"

namespace moeflux {

class ReferenceEncoder : public Encoder {
 public:
  explicit ReferenceEncoder(ScratchArena arena) : arena_(std::move(arena)) {}

  Tensor scratch(const Shape& shape, DType dtype) override { return arena_.take(shape, dtype); }
  size_t scratch_mark() const override { return arena_.mark(); }
  void scratch_release(size_t mark) override { arena_.release(mark); }
  void keep_alive(std::unique_ptr<Retained>) override {}  // everything recorded has run already

  void write(Tensor to, std::span<const std::byte> from) override;
  Status read(std::span<std::byte> to, Tensor from) override;

  EventId submit() override { return EventId{0}; }
  Status wait(EventId) override { return status_; }

 protected:
  void execute(const ops::AnyOp& any) override;

 private:
  ScratchArena arena_;
  reference::Reference shared_;
  Status status_;
};

/// kUnsupported where there is no definition of an operation, or of what a weight's bytes mean.
Status supported_by_reference(const ops::AnyOp& any);

}  // namespace moeflux
