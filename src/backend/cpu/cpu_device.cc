#include "backend/cpu/cpu_device.h"

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "backend/cpu/cpu_encoder.h"
#include "backend/cpu/isa_choice.h"
#include "backend/cpu/thread_choice.h"
#include "backend/host_buffer.h"
#include "base/format.h"
#include "base/thread_pool.h"
#include "quant/formats/tiled.h"

namespace moeflux {
namespace {

constexpr int kThreadsMax = 1024;

std::string nodes_text(std::span<const NumaNode> nodes) {
  if (nodes.empty()) return "";
  return nodes.size() == 1 ? formatted(" on node {}", nodes.front().id)
                           : formatted(" on {} nodes", nodes.size());
}

int cores_of(std::span<const NumaNode> nodes) {
  size_t cores = 0;
  for (const NumaNode& node : nodes) cores += node.cores.size();
  return static_cast<int>(cores);
}

class CpuDevice : public Device {
 public:
  CpuDevice(const cpu::KernelSet& kernels, Precision precision, int threads, ThreadCores cores,
            std::vector<NumaNode> nodes, std::chrono::microseconds look)
      : kernels_(kernels),
        precision_(precision),
        threads_(threads),
        cores_(std::move(cores)),
        nodes_(std::move(nodes)),
        look_(look),
        bits_key_(formatted("cpu {} {}", kernels.bits, precision_name(precision))),
        description_(formatted("cpu ({} {}, {} thread{}{})", kernels.name,
                               precision_name(precision), threads, threads == 1 ? "" : "s",
                               nodes_text(nodes_))) {}

  std::string_view name() const override { return "cpu"; }
  std::string_view description() const override { return description_; }
  std::string_view bits_key() const override { return bits_key_; }

  Result<std::unique_ptr<Buffer>> allocate(size_t bytes, MemoryKind) override {
    return allocate_host_buffer(bytes, nodes_);
  }

  Result<std::unique_ptr<Encoder>> create_encoder(size_t scratch_bytes) override {
    MF_ASSIGN_OR_RETURN(ScratchArena arena, ScratchArena::create(scratch_bytes));
    return std::unique_ptr<Encoder>(std::make_unique<cpu::CpuEncoder>(
        kernels_, precision_, threads_, cores_, look_, std::move(arena)));
  }

  Status supports(const ops::AnyOp& op) const override { return cpu::supported_by_cpu(op); }
  bool takes_unaligned_experts() const override { return true; }
  bool multiplies_rows_as_tiles(const QuantFormat& stored) const override {
    if (precision_ == Precision::kQ16) {
      return cpu::has_unit_products(stored, stored.group_size) && cpu::block_kind(stored);
    }
    return precision_ == Precision::kInt8 && cpu::block_kind(stored).has_value();
  }
  bool multiplies_units(const Weight& matrix) const override {
    return precision_ == Precision::kQ16 && matrix.rows % cpu::kTilePanelRows == 0 &&
           cpu::has_unit_products(matrix.format, matrix.cols);
  }
  bool takes_narrow_cache() const override { return true; }
  DType preferred_cache_type() const override { return DType::kF16; }

  WeightOrder preferred_order(const QuantFormat& stored, int64_t rows,
                              int64_t cols) const override {
    const bool fits = is_valid(stored, cols) && tiled::is_tileable(stored, rows);
    return fits ? WeightOrder::kTiled : WeightOrder::kRowMajor;
  }

 private:
  const cpu::KernelSet& kernels_;
  Precision precision_;
  int threads_;
  ThreadCores cores_;
  std::vector<NumaNode> nodes_;
  std::chrono::microseconds look_;
  std::string bits_key_;
  std::string description_;
};

}  // namespace

std::string_view precision_name(Precision precision) {
  switch (precision) {
    case Precision::kF32:
      return "f32";
    case Precision::kInt8:
      return "int8";
    case Precision::kQ16:
      return "q16";
    case Precision::kAuto:
      return "auto";
  }
  __builtin_unreachable();
}

int default_cpu_threads() {
  static const int all = usable_cores();
  static const int chosen = cpu::measured_threads(
      all, choose_numa_nodes(NumaMode::kDistribute, read_numa_nodes("", allowed_cores()), -1));
  return std::min(chosen, usable_cores());  // cores may have been taken away since
}

Result<Precision> chosen_precision(const CpuOptions& options) {
  if (options.precision != Precision::kAuto) return options.precision;
  MF_ASSIGN_OR_RETURN(const cpu::KernelSet* const kernels, cpu::choose_kernels(options.isa));
  return kernels->int8_is_fast ? Precision::kInt8 : Precision::kF32;
}

Result<std::unique_ptr<Device>> make_cpu_device(const CpuOptions& options) {
  if (options.threads < 0 || options.threads > kThreadsMax) {
    return make_error(ErrorCode::kInvalidArgument, "{} threads; expected 0 (measured) to {}",
                      options.threads, kThreadsMax);
  }
  if (options.pin_threads && !can_pin_threads()) {
    return make_error(ErrorCode::kUnsupported, "this system cannot pin threads to cores");
  }
  MF_ASSIGN_OR_RETURN(const cpu::KernelSet* const kernels, cpu::choose_kernels(options.isa));
  MF_ASSIGN_OR_RETURN(const Precision precision, chosen_precision(options));
  const std::vector<int> allowed = allowed_cores();
  std::vector<NumaNode> nodes = choose_numa_nodes(
      options.numa, read_numa_nodes(options.system_root, allowed), current_core());
  int threads = options.threads == 0 ? default_cpu_threads() : options.threads;
  if (options.threads == 0 && !nodes.empty()) threads = std::min(threads, cores_of(nodes));
  ThreadCores cores = place_threads(threads, options.pin_threads, nodes, allowed);
  return std::unique_ptr<Device>(
      std::make_unique<CpuDevice>(*kernels, precision, threads, std::move(cores), std::move(nodes),
                                  options.helps ? kLookBesideDevice : kLookUsual));
}

}  // namespace moeflux
