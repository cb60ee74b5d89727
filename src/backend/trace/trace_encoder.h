// An encoder that computes nothing: it records what a model asks for. A dry run on it sizes
// scratch, counts bytes and flops, and prints the op list that golden tests compare.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backend/device.h"
#include "backend/encoder.h"
#include "backend/host_buffer.h"

namespace moeflux {

struct TraceOp {
  std::string text;            // "linear [3, 512] = [3, 256] x affine-4/64"
  uint64_t weight_bytes = 0;   // read from weights
  uint64_t multiply_adds = 0;  // of matrix products
};

/// Tensors are looked at, never dereferenced; scratch has no host memory. read() returns zeros.
class TraceEncoder : public Encoder {
 public:
  /// Asks `target` whether it computes what is recorded; null: nobody is asked.
  explicit TraceEncoder(const Device* target = nullptr);

  const std::vector<TraceOp>& ops() const { return ops_; }
  size_t scratch_bytes_max() const { return scratch_.bytes_max(); }
  uint64_t weight_bytes() const;
  uint64_t multiply_adds() const;
  /// One op a line.
  std::string to_string() const;

  Tensor scratch(const Shape& shape, DType dtype) override;
  size_t scratch_mark() const override { return scratch_.mark(); }
  void scratch_release(size_t mark) override { scratch_.release(mark); }
  void keep_alive(std::unique_ptr<Retained>) override {}

  void write(Tensor to, std::span<const std::byte> from) override;
  Status read(std::span<std::byte> to, Tensor from) override;

  EventId submit() override { return EventId{0}; }
  /// kUnsupported for the first operation that the target does not compute.
  Status wait(EventId) override { return status_; }

 protected:
  void execute(const ops::AnyOp& any) override;

 private:
  template <typename Op>
  void trace(const Op& op);
  void record(std::string text, uint64_t weight_bytes = 0, uint64_t multiply_adds = 0);

  const Device* target_;
  Status status_;
  ScratchArena scratch_;  // without memory
  std::vector<TraceOp> ops_;
};

}  // namespace moeflux
