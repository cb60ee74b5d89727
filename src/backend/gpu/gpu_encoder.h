// The Encoder of every GPU. A file of ops/ computes an operation.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "backend/encoder.h"
#include "backend/gpu/gpu_context.h"

namespace moeflux::gpu {

class GpuEncoder : public Encoder {
 public:
  /// The platform must outlive the encoder; `scratch` is what scratch() hands out.
  GpuEncoder(Platform& platform, std::unique_ptr<Executor> executor,
             std::unique_ptr<Buffer> scratch);

  Tensor scratch(const Shape& shape, DType dtype) override;
  size_t scratch_mark() const override;
  void scratch_release(size_t mark) override;
  void keep_alive(std::unique_ptr<Retained> resource) override;

  void write(Tensor to, std::span<const std::byte> from) override;
  Status read(std::span<std::byte> to, Tensor from) override;
  void take(Tensor to, Encoder& other, Tensor from) override;
  void await(Encoder& other) override;

  CopyId copy_beside(std::span<const BufferCopy> copies, EventId after) override;
  void await_copies(CopyId last) override;
  bool has_copied(CopyId last) override;

  void experts_stay(const std::shared_ptr<const std::vector<ExpertWeights>>& experts,
                    const ExpertMemory& memory) override;
  void experts_moved(const std::vector<ExpertWeights>& experts,
                     std::span<const size_t> which) override;

  EventId submit() override;
  Status wait(EventId event) override;

 protected:
  void execute(const ops::AnyOp& any) override;

 private:
  GpuContext gpu_;
};

}  // namespace moeflux::gpu
