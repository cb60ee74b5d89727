#include "backend/metal/metal_device.h"

#include <string>
#include <utility>

#include "backend/gpu/gpu_device.h"
#include "backend/metal/metal_executor.h"
#include "base/format.h"

namespace moeflux {
namespace {

// Memory is the host's: no bytes of its own, no uploads.
class MetalPlatform : public gpu::Platform {
 public:
  explicit MetalPlatform(std::unique_ptr<gpu::MetalGpu> gpu)
      : gpu_(std::move(gpu)), description_(formatted("metal ({})", gpu_->name())) {}

  std::string_view name() const override { return "metal"; }
  std::string_view description() const override { return description_; }
  Result<std::unique_ptr<Buffer>> allocate(size_t bytes, MemoryKind) override {
    return gpu_->allocate(bytes);
  }
  uint64_t device_address(const Buffer& buffer) const override { return gpu_->address(buffer); }
  Result<std::unique_ptr<gpu::Executor>> create_executor() override {
    return gpu::make_metal_executor(*gpu_);
  }

 private:
  std::unique_ptr<gpu::MetalGpu> gpu_;
  std::string description_;
};

}  // namespace

std::unique_ptr<Device> make_metal_device(std::unique_ptr<gpu::MetalGpu> gpu) {
  return make_gpu_device(std::make_unique<MetalPlatform>(std::move(gpu)));
}

Result<std::unique_ptr<Device>> make_metal_device() {
  MF_ASSIGN_OR_RETURN(std::unique_ptr<gpu::MetalGpu> gpu, gpu::open_metal_gpu());
  return make_metal_device(std::move(gpu));
}

}  // namespace moeflux
