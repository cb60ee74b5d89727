#include "tests/support/key_choices.h"

#include <gtest/gtest.h>

#include <utility>

#include "backend/cpu/cpu_encoder.h"
#include "backend/reference/reference_device.h"
#include "backend/reference/reference_encoder.h"

namespace moeflux::testing {
namespace {

/// Null: another operation.
const ops::SelectKeys* select_keys(const ops::AnyOp& any) {
  return any.kind == ops::kind_of<ops::SelectKeys>() ? static_cast<const ops::SelectKeys*>(any.op)
                                                     : nullptr;
}

class RecordingEncoder : public ReferenceEncoder {
 public:
  RecordingEncoder(ScratchArena arena, KeyChoices& choices)
      : ReferenceEncoder(std::move(arena)), choices_(choices) {}

  void execute(const ops::AnyOp& any) override {
    ReferenceEncoder::execute(any);
    const ops::SelectKeys* const op = select_keys(any);
    if (op == nullptr) return;
    const Tensor& ids = op->ids;
    choices_.emplace_back(ids.size_bytes());
    EXPECT_TRUE(read(choices_.back(), ids).ok());
  }

 private:
  KeyChoices& choices_;
};

class OverruledEncoder : public cpu::CpuEncoder {
 public:
  OverruledEncoder(const cpu::KernelSet& kernels, const CpuOptions& options, ScratchArena arena,
                   const KeyChoices& choices)
      : CpuEncoder(kernels, options.precision, options.threads, ThreadCores(), kLookUsual,
                   std::move(arena)),
        choices_(choices) {}
  ~OverruledEncoder() override { EXPECT_EQ(calls_, choices_.size()) << "choices of keys"; }

  void execute(const ops::AnyOp& any) override {
    CpuEncoder::execute(any);
    const ops::SelectKeys* const op = select_keys(any);
    if (op == nullptr) return;
    const Tensor& ids = op->ids;
    const size_t call = calls_++;
    ASSERT_LT(call, choices_.size());
    ASSERT_EQ(choices_[call].size(), ids.size_bytes());
    write(ids, choices_[call]);
  }

 private:
  const KeyChoices& choices_;
  size_t calls_ = 0;
};

class RecordingReference : public Device {
 public:
  explicit RecordingReference(KeyChoices& choices)
      : inner_(make_reference_device()), choices_(choices) {}
  std::string_view name() const override { return inner_->name(); }
  std::string_view description() const override { return inner_->description(); }
  Result<std::unique_ptr<Buffer>> allocate(size_t bytes, MemoryKind kind) override {
    return inner_->allocate(bytes, kind);
  }
  bool takes_narrow_cache() const override { return inner_->takes_narrow_cache(); }
  Result<std::unique_ptr<Encoder>> create_encoder(size_t scratch_bytes) override {
    MF_ASSIGN_OR_RETURN(ScratchArena arena, ScratchArena::create(scratch_bytes));
    return std::unique_ptr<Encoder>(std::make_unique<RecordingEncoder>(std::move(arena), choices_));
  }

 private:
  std::unique_ptr<Device> inner_;
  KeyChoices& choices_;
};

/// All but its encoders is the CPU's own.
class OverruledCpu : public Device {
 public:
  OverruledCpu(std::unique_ptr<Device> inner, const CpuOptions& options, const KeyChoices& choices)
      : inner_(std::move(inner)), options_(options), choices_(choices) {}
  std::string_view name() const override { return inner_->name(); }
  std::string_view description() const override { return inner_->description(); }
  std::string_view bits_key() const override { return inner_->bits_key(); }
  Result<std::unique_ptr<Buffer>> allocate(size_t bytes, MemoryKind kind) override {
    return inner_->allocate(bytes, kind);
  }
  bool takes_unaligned_experts() const override { return inner_->takes_unaligned_experts(); }
  bool multiplies_rows_as_tiles(const QuantFormat& stored) const override {
    return inner_->multiplies_rows_as_tiles(stored);
  }
  bool multiplies_units(const Weight& matrix) const override {
    return inner_->multiplies_units(matrix);
  }
  bool takes_narrow_cache() const override { return inner_->takes_narrow_cache(); }
  DType preferred_cache_type() const override { return inner_->preferred_cache_type(); }
  WeightOrder preferred_order(const QuantFormat& stored, int64_t rows,
                              int64_t cols) const override {
    return inner_->preferred_order(stored, rows, cols);
  }
  Result<std::unique_ptr<Encoder>> create_encoder(size_t scratch_bytes) override {
    MF_ASSIGN_OR_RETURN(const cpu::KernelSet* const kernels, cpu::choose_kernels(options_.isa));
    MF_ASSIGN_OR_RETURN(ScratchArena arena, ScratchArena::create(scratch_bytes));
    return std::unique_ptr<Encoder>(
        std::make_unique<OverruledEncoder>(*kernels, options_, std::move(arena), choices_));
  }

 private:
  std::unique_ptr<Device> inner_;
  const CpuOptions options_;
  const KeyChoices& choices_;
};

}  // namespace

std::unique_ptr<Device> make_recording_reference(KeyChoices& choices) {
  return std::make_unique<RecordingReference>(choices);
}

std::unique_ptr<Device> make_overruled_cpu(const CpuOptions& options, const KeyChoices& choices) {
  auto cpu = make_cpu_device(options);
  EXPECT_TRUE(cpu.ok()) << (cpu.ok() ? "" : cpu.error().to_string());
  if (!cpu.ok()) return nullptr;
  return std::make_unique<OverruledCpu>(std::move(cpu).value(), options, choices);
}

}  // namespace moeflux::testing
