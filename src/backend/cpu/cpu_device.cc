#include "backend/cpu/cpu_device.h"

#include <sys/mman.h>

#include "backend/cpu/cpu_encoder.h"
#include "backend/cpu/isa_choice.h"
#include "backend/host_buffer.h"
#include "base/format.h"
#include "base/thread_pool.h"
#include "base/units.h"

namespace moeflux {
namespace {

constexpr int kThreadsMax = 1024;

class CpuDevice : public Device {
 public:
  /// `int8` may be null: f32.
  CpuDevice(const cpu::KernelTable& kernels, const cpu::Int8Kernels* int8, int threads)
      : kernels_(kernels),
        int8_(int8),
        threads_(threads),
        description_(format("cpu ({}{}, {} thread{})", int8 == nullptr ? kernels.name : int8->name,
                            int8 == nullptr ? "" : " int8", threads, threads == 1 ? "" : "s")) {}

  std::string_view name() const override { return "cpu"; }
  std::string_view description() const override { return description_; }

  Result<std::unique_ptr<Buffer>> allocate(size_t bytes, MemoryKind) override {
    MF_ASSIGN_OR_RETURN(std::unique_ptr<Buffer> buffer, allocate_host_buffer(bytes));
#if defined(MADV_HUGEPAGE)
    // Weights are read front to back: with 4 KiB pages address translation shows. Only a hint.
    constexpr size_t kWorthHugePages = 4 * kMiB;
    if (bytes >= kWorthHugePages) madvise(buffer->host_data(), bytes, MADV_HUGEPAGE);
#endif
    return buffer;
  }

  Result<std::unique_ptr<Encoder>> create_encoder(size_t scratch_bytes) override {
    MF_ASSIGN_OR_RETURN(ScratchArena arena, ScratchArena::create(scratch_bytes));
    return std::unique_ptr<Encoder>(
        std::make_unique<cpu::CpuEncoder>(kernels_, int8_, threads_, std::move(arena)));
  }

 private:
  const cpu::KernelTable& kernels_;
  const cpu::Int8Kernels* int8_;
  int threads_;
  std::string description_;
};

}  // namespace

Result<std::unique_ptr<Device>> make_cpu_device(const CpuOptions& options) {
  if (options.threads < 0 || options.threads > kThreadsMax) {
    return make_error(ErrorCode::kInvalidArgument, "{} threads; expected 0 (all cores) to {}",
                      options.threads, kThreadsMax);
  }
  MF_ASSIGN_OR_RETURN(const cpu::KernelTable* const kernels, cpu::choose_kernels(options.isa));
  const int threads = options.threads == 0 ? usable_cores() : options.threads;
  const cpu::Int8Kernels* const int8 =
      options.precision == Precision::kInt8 ? &cpu::choose_int8_kernels(*kernels) : nullptr;
  return std::unique_ptr<Device>(std::make_unique<CpuDevice>(*kernels, int8, threads));
}

}  // namespace moeflux
