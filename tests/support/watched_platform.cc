#include "tests/support/watched_platform.h"

#include <utility>

namespace moeflux::testing {
namespace {

class WatchedExecutor : public gpu::Executor {
 public:
  WatchedExecutor(std::unique_ptr<gpu::Executor> executor, LaunchCounts& counts)
      : executor_(std::move(executor)), counts_(counts) {}

  void record(const gpu::Plan& plan) override {
    ++counts_.of_kernel[static_cast<size_t>(plan.kernel)];
    executor_->record(plan);
  }
  void write(Buffer& to, uint64_t offset_bytes, std::span<const std::byte> from) override {
    executor_->write(to, offset_bytes, from);
  }
  Status read(std::span<std::byte> to, const Buffer& from, uint64_t offset_bytes) override {
    counts_.bytes_read += to.size();
    return executor_->read(to, from, offset_bytes);
  }
  EventId submit() override { return executor_->submit(); }
  bool has_passed(EventId event) override { return executor_->has_passed(event); }
  Status wait(EventId event) override { return executor_->wait(event); }

 private:
  std::unique_ptr<gpu::Executor> executor_;
  LaunchCounts& counts_;
};

class WatchedPlatform : public gpu::Platform {
 public:
  WatchedPlatform(std::unique_ptr<gpu::Platform> platform, LaunchCounts& counts)
      : platform_(std::move(platform)), counts_(counts) {}

  std::string_view name() const override { return platform_->name(); }
  std::string_view description() const override { return platform_->description(); }
  Result<std::unique_ptr<Buffer>> allocate(size_t bytes, MemoryKind kind) override {
    return platform_->allocate(bytes, kind);
  }
  uint64_t device_address(const Buffer& buffer) const override {
    return platform_->device_address(buffer);
  }
  Result<std::unique_ptr<gpu::Executor>> create_executor() override {
    MF_ASSIGN_OR_RETURN(std::unique_ptr<gpu::Executor> executor, platform_->create_executor());
    return std::unique_ptr<gpu::Executor>(
        std::make_unique<WatchedExecutor>(std::move(executor), counts_));
  }
  bool has_matrix_units() const override { return platform_->has_matrix_units(); }
  bool multiplies_in_teams() const override { return platform_->multiplies_in_teams(); }
  uint32_t shared_bytes_max() const override { return platform_->shared_bytes_max(); }
  uint32_t cores() const override { return platform_->cores(); }
  uint64_t workspace_bytes_max() const override { return platform_->workspace_bytes_max(); }
  Status upload(Buffer& to, uint64_t offset_bytes, std::span<const std::byte> from) override {
    return platform_->upload(to, offset_bytes, from);
  }
  std::optional<uint64_t> free_bytes() const override { return platform_->free_bytes(); }

 private:
  std::unique_ptr<gpu::Platform> platform_;
  LaunchCounts& counts_;
};

}  // namespace

size_t LaunchCounts::of_units() const {
  size_t sum = 0;
  for (size_t i = 0; i < of_kernel.size(); ++i) {
    const std::string_view name = gpu::kKernels[i].name;
    if (name.starts_with("mma_") && !name.starts_with("mma_attention_")) sum += of_kernel[i];
  }
  return sum;
}

std::unique_ptr<gpu::Platform> make_watched_platform(std::unique_ptr<gpu::Platform> platform,
                                                     LaunchCounts& counts) {
  return std::make_unique<WatchedPlatform>(std::move(platform), counts);
}

}  // namespace moeflux::testing
