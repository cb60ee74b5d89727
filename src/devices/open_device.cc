#include "devices/open_device.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>

#include "backend/cpu/cpu_device.h"
#include "backend/cuda/cuda_device.h"
#include "backend/gpu/gpu_device.h"
#include "backend/metal/metal_device.h"
#include "backend/reference/reference_device.h"
#include "backend/split/split_device.h"
#include "base/format.h"
#include "base/units.h"

namespace moeflux {
namespace {

constexpr int kThreadsMax = 1024;
// A GPU group's shared memory: what any kernel may take, and the most there is.
constexpr int kSharedKibLeast = gpu::kSharedBytesMax / 1024;
constexpr int kSharedKibMost = gpu::kMmaSharedBytesMax / 1024;

// The number that is left of `text` behind a prefix.
std::optional<int> number_after(std::string_view prefix, std::string_view text) {
  if (!text.starts_with(prefix)) return std::nullopt;
  text.remove_prefix(prefix.size());
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool is_whole = error == std::errc() && end == text.data() + text.size();
  return is_whole && number >= 0 ? std::optional(number) : std::nullopt;
}

// "emulator" or "emulator:1", which is one like all others; behind a comma each, "memory=MIB" of
// its own, and "bandwidth=GBS" that it is said to give.
Result<gpu::EmulatorOptions> parse_emulator(std::string_view name) {
  gpu::EmulatorOptions options;
  const std::string_view device = name.substr(0, name.find(','));
  if (device != "emulator" && !number_after("emulator:", device)) {
    return make_error(ErrorCode::kInvalidArgument,
                      "device {}: expected emulator, emulator:0 or another number", name);
  }
  for (std::string_view rest = name.substr(device.size()); !rest.empty();) {
    rest.remove_prefix(1);
    const std::string_view limit = rest.substr(0, rest.find(','));
    rest.remove_prefix(limit.size());
    const int mib = number_after("memory=", limit).value_or(0);
    const int rate = number_after("bandwidth=", limit).value_or(0);
    if (mib == 0 && rate == 0) {
      return make_error(ErrorCode::kInvalidArgument,
                        "device {}: limit {}: expected memory=MIB or bandwidth=GBS", name, limit);
    }
    if (mib > 0) options.memory_bytes = static_cast<uint64_t>(mib) * kMiB;
    if (rate > 0) options.memory_bytes_per_second = rate * 1e9;
  }
  return options;
}

// "cuda" means the first; behind a comma each, how much of it counts: "cuda:0,shared=99".
Result<CudaOptions> parse_cuda(std::string_view name) {
  CudaOptions options;
  const std::string_view device = name.substr(0, name.find(','));
  const std::optional<int> number = device == "cuda" ? 0 : number_after("cuda:", device);
  if (!number) {
    return make_error(ErrorCode::kInvalidArgument, "device {}: expected cuda:0 or another number",
                      name);
  }
  options.device = *number;
  for (std::string_view rest = name.substr(device.size()); !rest.empty();) {
    rest.remove_prefix(1);
    const std::string_view limit = rest.substr(0, rest.find(','));
    rest.remove_prefix(limit.size());
    const std::optional<int> shared = number_after("shared=", limit);
    const std::optional<int> cores = number_after("multiprocessors=", limit);
    const std::optional<int> mib = number_after("memory=", limit);
    const int any = shared.value_or(cores.value_or(mib.value_or(0)));
    if (any == 0 || shared.value_or(0) > kSharedKibMost || (shared && *shared < kSharedKibLeast)) {
      return make_error(
          ErrorCode::kInvalidArgument,
          "device {}: limit {}: expected shared={} to {} KiB, multiprocessors=N or memory=MIB",
          name, limit, kSharedKibLeast, kSharedKibMost);
    }
    if (mib) options.memory_bytes_max = static_cast<uint64_t>(*mib) * kMiB;
    if (shared) options.shared_kib_max = static_cast<uint32_t>(*shared);
    if (cores) options.multiprocessors_max = static_cast<uint32_t>(*cores);
  }
  return options;
}

Result<Precision> parse_precision(std::string_view text) {
  if (text == "auto") return Precision::kAuto;
  if (text == "f32") return Precision::kF32;
  if (text == "int8") return Precision::kInt8;
  if (text == "q16") return Precision::kQ16;
  return make_error(ErrorCode::kInvalidArgument, "precision {}: expected auto, f32, int8 or q16",
                    text);
}

// numactl: threads stay on the cores and memory on the nodes that it gave the process.
Result<NumaMode> parse_numa(std::string_view text) {
  if (text == "auto" || text == "distribute") return NumaMode::kDistribute;
  if (text == "isolate") return NumaMode::kIsolate;
  if (text == "off" || text == "numactl") return NumaMode::kOff;
  return make_error(ErrorCode::kInvalidArgument,
                    "numa {}: expected auto, off, distribute, isolate or numactl", text);
}

CpuOptions cpu_options(const DeviceOptions& options, Precision precision, NumaMode numa) {
  return {.threads = options.threads,
          .pin_threads = options.pin_threads,
          .numa = numa,
          .isa = options.isa,
          .precision = precision};
}

// The first option that only a CPU has; empty: none was given.
std::string_view cpu_only(const DeviceOptions& options) {
  if (!options.isa.empty()) return "an instruction set is asked for";
  if (options.precision != "auto") return "a precision is asked for";
  if (options.pin_threads) return "threads are to be pinned";
  return {};
}

}  // namespace

DeviceChoice choose_device(const DeviceOptions& options) {
  if (options.name != "auto") return {options.name, {}};
  const Result<std::unique_ptr<gpu::Platform>> gpu = make_cuda_platform({});
  if (!gpu.ok()) {
    const bool is_built = gpu.error().code() != ErrorCode::kUnsupported;
    return {"cpu", is_built ? gpu.error().message() : std::string()};
  }
  if (const std::string_view why = cpu_only(options); !why.empty()) {
    return {"cpu", formatted("{}, which only the cpu has", why)};
  }
  return {std::string((*gpu)->name()), std::string((*gpu)->description())};
}

std::vector<ListedDevice> list_devices() {
  std::vector<ListedDevice> devices;
  const auto add = [&](const std::string& name) {
    const Result<std::unique_ptr<Device>> device = open_device({.name = name});
    if (!device.ok()) {
      devices.push_back({.name = name, .description = device.error().message()});
      return false;
    }
    devices.push_back({.name = name,
                       .description = std::string((*device)->description()),
                       .is_there = true,
                       .free_bytes = (*device)->free_bytes()});
    return true;
  };
  add("cpu");
  constexpr int kGpusMax = 64;
  for (int i = 0; i < kGpusMax; ++i) {
    if (add(formatted("cuda:{}", i))) continue;
    if (i > 0) devices.pop_back();  // there are so many
    break;
  }
  add("metal");
  add("reference");
  add("emulator");
  return devices;
}

static Result<std::unique_ptr<Device>> open_part(const DeviceOptions& part,
                                                 const std::shared_ptr<gpu::EmulatedHost>& host) {
  if (!part.name.starts_with("emulator")) return open_device(part);
  MF_ASSIGN_OR_RETURN(gpu::EmulatorOptions emulator, parse_emulator(part.name));
  MF_RETURN_IF_ERROR(gpu::check_emulator_runs());
  emulator.host = host;
  return make_emulator_device(emulator);
}

size_t count_cuda_gpus() {
  int count = 0;
  while (make_cuda_platform({.device = count}).ok()) ++count;
  return static_cast<size_t>(count);
}

// "cuda:all,memory=8192": every GPU, each with what follows its name. There are two emulators.
static std::string all_gpus(std::string_view kind, std::string_view properties) {
  constexpr size_t kEmulators = 2;
  std::string name;
  const size_t count = kind == "emulator" ? kEmulators : count_cuda_gpus();
  for (size_t i = 0; i < count; ++i) {
    name += formatted("{}{}:{}{}", i == 0 ? "" : "+", kind, i, properties);
  }
  return name.empty() ? formatted("{}:0{}", kind, properties) : name;
}

// "cuda:0+cuda:1,memory=8192".
static Result<std::unique_ptr<Device>> open_together(const DeviceOptions& options) {
  std::vector<std::unique_ptr<Device>> parts;
  const std::shared_ptr<gpu::EmulatedHost> host = gpu::make_emulated_host();
  for (std::string_view rest = options.name; !rest.empty();) {
    DeviceOptions part = options;
    part.name = rest.substr(0, rest.find('+'));
    rest.remove_prefix(std::min(rest.size(), part.name.size() + 1));
    if (!part.name.starts_with("cuda") && !part.name.starts_with("emulator")) {
      return make_error(ErrorCode::kInvalidArgument,
                        "device {}: {} computes alone, expected GPUs: cuda:0+cuda:1", options.name,
                        part.name);
    }
    MF_ASSIGN_OR_RETURN(std::unique_ptr<Device> device, open_part(part, host));
    parts.push_back(std::move(device));
  }
  return parts.size() == 1 ? std::move(parts.front()) : make_split_device(std::move(parts));
}

Result<std::unique_ptr<Device>> open_device(const DeviceOptions& options) {
  MF_ASSIGN_OR_RETURN(const Precision precision, parse_precision(options.precision));
  MF_ASSIGN_OR_RETURN(const NumaMode numa, parse_numa(options.numa));
  if (options.threads < 0 || options.threads > kThreadsMax) {
    return make_error(ErrorCode::kInvalidArgument, "{} threads: expected 0 to {}", options.threads,
                      kThreadsMax);
  }
  if (options.name == "auto") {
    DeviceOptions chosen = options;
    chosen.name = choose_device(options).name;
    return open_device(chosen);
  }
  for (const std::string_view kind : {"cuda", "emulator"}) {
    const std::string every = formatted("{}:all", kind);
    if (options.name.substr(0, options.name.find(',')) != every) continue;
    DeviceOptions all = options;
    all.name = all_gpus(kind, std::string_view(options.name).substr(every.size()));
    return open_device(all);
  }
  if (options.name.find('+') != std::string::npos) return open_together(options);
  if (options.name == "cpu") {
    return make_cpu_device(cpu_options(options, precision, numa));
  }
  if (precision == Precision::kInt8 || precision == Precision::kQ16) {
    return make_error(ErrorCode::kInvalidArgument,
                      "precision {}: only the cpu device has it, not device {}", options.precision,
                      options.name);
  }
  if (options.pin_threads) {
    return make_error(ErrorCode::kInvalidArgument,
                      "pinned threads: only the cpu device has threads to pin, not device {}",
                      options.name);
  }
  if (options.name == "reference") return make_reference_device();
  if (options.name.starts_with("emulator")) {
    MF_ASSIGN_OR_RETURN(const gpu::EmulatorOptions emulator, parse_emulator(options.name));
    MF_RETURN_IF_ERROR(gpu::check_emulator_runs());
    return make_emulator_device(emulator);
  }
  if (options.name == "metal") return make_metal_device();
  if (options.name.starts_with("cuda")) {
    MF_ASSIGN_OR_RETURN(const CudaOptions cuda, parse_cuda(options.name));
    return make_cuda_device(cuda);
  }
  return make_error(
      ErrorCode::kInvalidArgument,
      "device {}: no such device; known are auto, cpu, cuda:0, metal, reference and emulator",
      options.name);
}

Result<std::unique_ptr<Device>> open_helper(const DeviceOptions& options) {
  // Its experts lie where the GPU's driver took memory: numa is for the CPU alone.
  return make_cpu_device({.threads = options.threads,
                          .isa = options.isa,
                          .precision = Precision::kQ16,
                          .helps = true});
}

Result<std::string> activation_precision(const DeviceOptions& options) {
  // Matrix units of GPUs multiply integers of 16 bits; see
  // backend/gpu/kernels/matmul/mma_product.h.
  const std::string name = choose_device(options).name;
  if (name.starts_with("cuda")) return std::string("int16");
  if (name != "cpu") return std::string("f32");
  MF_ASSIGN_OR_RETURN(const Precision asked, parse_precision(options.precision));
  MF_ASSIGN_OR_RETURN(const Precision chosen,
                      chosen_precision({.isa = options.isa, .precision = asked}));
  return std::string(precision_name(chosen));
}

}  // namespace moeflux
