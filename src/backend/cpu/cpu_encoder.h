// The Encoder of the CPU: executes each operation in the call, spread over its threads, but
// products with tiled weights, which it puts off until the next operation that is not one.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <span>

#include "backend/cpu/cpu_context.h"
#include "backend/encoder.h"
#include "backend/host_buffer.h"

namespace moeflux::cpu {

class CpuEncoder : public Encoder {
 public:
  /// `precision` is not kAuto.
  CpuEncoder(const KernelSet& kernels, Precision precision, int threads, const ThreadCores& cores,
             std::chrono::microseconds look, ScratchArena arena)
      : arena_(std::move(arena)), context_(kernels, precision, threads, cores, look) {}

  Tensor scratch(const Shape& shape, DType dtype) override { return arena_.take(shape, dtype); }
  size_t scratch_mark() const override { return arena_.mark(); }
  void scratch_release(size_t mark) override { arena_.release(mark); }
  void keep_alive(std::unique_ptr<Retained>) override {}  // everything recorded has run already

  void write(Tensor to, std::span<const std::byte> from) override;
  Status read(std::span<std::byte> to, Tensor from) override;
  void run_on_host(int64_t count, const std::function<void(int64_t)>& fn) override {
    context_.workers.parallel_for(count, fn);
  }

  EventId submit() override {
    context_.pending.flush();
    return EventId{++events_};
  }
  Status wait(EventId) override { return status_; }

 protected:
  void execute(const ops::AnyOp& any) override;

 private:
  ScratchArena arena_;
  CpuContext context_;
  Status status_;  // the first error; later operations do nothing
  uint64_t events_ = 0;
};

/// kUnsupported with the operation's name where the CPU does not compute it.
Status supported_by_cpu(const ops::AnyOp& any);

}  // namespace moeflux::cpu
