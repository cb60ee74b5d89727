#include "backend/gpu/gpu_device.h"

#include <algorithm>

#include "backend/gpu/gpu_encoder.h"
#include "backend/gpu/launch/mma_plans.h"
#include "backend/gpu/supports.h"

namespace moeflux {
namespace {

class GpuDevice : public Device {
 public:
  explicit GpuDevice(std::unique_ptr<gpu::Platform> platform) : platform_(std::move(platform)) {}

  std::string_view name() const override { return platform_->name(); }
  std::string_view description() const override { return platform_->description(); }
  std::string_view bits_key() const override { return platform_->bits_key(); }
  Result<std::unique_ptr<Buffer>> allocate(size_t bytes, MemoryKind kind) override {
    return platform_->allocate(bytes, kind);
  }
  Status upload(Buffer& to, uint64_t offset_bytes, std::span<const std::byte> from) override {
    return platform_->upload(to, offset_bytes, from);
  }
  std::optional<uint64_t> free_bytes() const override { return platform_->free_bytes(); }
  double memory_bytes_per_second() const override { return platform_->memory_bytes_per_second(); }
  bool copies_beside() const override { return platform_->copies_beside(); }
  bool multiplies_units(const Weight& matrix) const override {
    return gpu::uses_mma(*platform_, matrix);
  }
  bool takes_narrow_cache() const override { return true; }
  bool takes_mixed_cache() const override { return false; }
  DType preferred_cache_type() const override { return DType::kF16; }
  int64_t preferred_prefill_chunk() const override {
    // Experts get enough tokens to fill tiles of matrix units: 64 each of 2048, if 8 of 256 serve
    // a token. Twice as many fill them better, where the memory of a step is not missed.
    constexpr int64_t kOnMatrixUnits = 2048;
    constexpr uint64_t kMuchMemory = uint64_t{64} << 30;
    if (!platform_->has_matrix_units()) return kPrefillChunkUsual;
    return free_bytes().value_or(0) >= kMuchMemory ? 2 * kOnMatrixUnits : kOnMatrixUnits;
  }
  Status reach(const Device& other) override {
    return platform_->reach(*static_cast<const GpuDevice&>(other).platform_);
  }
  Status supports(const ops::AnyOp& op) const override { return gpu::supports(*platform_, op); }
  Result<std::unique_ptr<Encoder>> create_encoder(size_t scratch_bytes) override {
    MF_ASSIGN_OR_RETURN(std::unique_ptr<gpu::Executor> executor, platform_->create_executor());
    MF_ASSIGN_OR_RETURN(
        std::unique_ptr<Buffer> scratch,
        platform_->allocate(std::max<size_t>(scratch_bytes, 1), MemoryKind::kDevice));
    return std::unique_ptr<Encoder>(
        std::make_unique<gpu::GpuEncoder>(*platform_, std::move(executor), std::move(scratch)));
  }

 private:
  std::unique_ptr<gpu::Platform> platform_;
};

}  // namespace

std::unique_ptr<Device> make_gpu_device(std::unique_ptr<gpu::Platform> platform) {
  return std::make_unique<GpuDevice>(std::move(platform));
}

std::unique_ptr<Device> make_emulator_device(const gpu::EmulatorOptions& options) {
  return make_gpu_device(gpu::make_emulator_platform(options));
}

}  // namespace moeflux
