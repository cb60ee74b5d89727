#include "backend/gpu/gpu_encoder.h"

#include <utility>

#include "backend/gpu/cells.h"
#include "backend/gpu/supports.h"

namespace moeflux::gpu {

GpuEncoder::GpuEncoder(Platform& platform, std::unique_ptr<Executor> executor,
                       std::unique_ptr<Buffer> scratch)
    : gpu_(platform, std::move(executor), std::move(scratch), *this) {}

Tensor GpuEncoder::scratch(const Shape& shape, DType dtype) {
  return gpu_.recorder().scratch(shape, dtype);
}

size_t GpuEncoder::scratch_mark() const { return gpu_.recorder().scratch_mark(); }

void GpuEncoder::scratch_release(size_t mark) { gpu_.recorder().scratch_release(mark); }

void GpuEncoder::keep_alive(std::unique_ptr<Retained> resource) {
  gpu_.recorder().keep_alive(std::move(resource));
}

void GpuEncoder::write(Tensor to, std::span<const std::byte> from) {
  gpu_.flush();
  gpu_.recorder().write(to, from);
}

Status GpuEncoder::read(std::span<std::byte> to, Tensor from) {
  gpu_.flush();
  return gpu_.recorder().read(to, from);
}

void GpuEncoder::take(Tensor to, Encoder& other, Tensor from) {
  auto& theirs = static_cast<GpuEncoder&>(other);
  gpu_.flush();
  theirs.gpu_.flush();
  gpu_.recorder().take(to, theirs.gpu_.recorder(), from);
}

void GpuEncoder::await(Encoder& other) {
  auto& theirs = static_cast<GpuEncoder&>(other);
  gpu_.flush();
  theirs.gpu_.flush();
  gpu_.recorder().await(theirs.gpu_.recorder());
}

EventId GpuEncoder::submit() {
  gpu_.flush();
  return gpu_.recorder().submit();
}

Status GpuEncoder::wait(EventId event) { return gpu_.recorder().wait(event); }

CopyId GpuEncoder::copy_beside(std::span<const BufferCopy> copies, EventId after) {
  return gpu_.recorder().copy_beside(copies, after);
}

void GpuEncoder::await_copies(CopyId last) {
  gpu_.flush();
  gpu_.recorder().await_copies(last);
}

bool GpuEncoder::has_copied(CopyId last) { return gpu_.recorder().has_copied(last); }

void GpuEncoder::experts_stay(const std::shared_ptr<const std::vector<ExpertWeights>>& experts,
                              const ExpertMemory& memory) {
  gpu_.tables().stay(experts, memory);
}

void GpuEncoder::experts_moved(const std::vector<ExpertWeights>& experts,
                               std::span<const size_t> which) {
  gpu_.flush();
  gpu_.tables().move(experts, which);
}

void GpuEncoder::execute(const ops::AnyOp& any) {
  Recorder& recorder = gpu_.recorder();
  if (!recorder.ok()) return;
  const Status supported = supports(gpu_.platform(), any);
  if (!supported.ok()) {
    recorder.fail(supported.error());
    return;
  }
  if (const auto cell = kCells[any.kind]; cell != nullptr) {
    cell(gpu_, any.op);
  } else {
    compose(any);
  }
}

}  // namespace moeflux::gpu
