// The CPU as a device: vector kernels chosen at run time, a thread pool per encoder.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "backend/device.h"
#include "base/numa.h"
#include "base/result.h"

namespace moeflux {

/// How activations meet tiled weights in linear and expert_ffn. Everything else is f32.
enum class Precision {
  kF32,
  kInt8,  // activations are rounded to int8 per group of the weight: faster, about 0.5 % off
  kQ16,   // to 16-bit integers per 64 columns where GPUs' matrix units do that, with their bits
  kAuto,  // int8 where the machine has fast kernels for it, else f32
};

/// As `--precision` has it: "int8".
std::string_view precision_name(Precision precision);

struct CpuOptions {
  int threads = 0;           // 0: default_cpu_threads()
  bool pin_threads = false;  // to one core each
  NumaMode numa = NumaMode::kOff;
  std::string system_root;  // of /sys, where tests make one up
  /// "": the best this machine has; or a name of isa_choice.cc: "avx512-vnni". "portable": the best
  /// one with the bits that every machine has.
  std::string isa;
  Precision precision = Precision::kF32;
  /// Another device, layer by layer: threads look longer for work before they sleep.
  bool helps = false;
};

/// Threads of a device that is not told how many: of the cores this process may use, as many as
/// read memory fastest. A process with more than 8 measures that once, in some 50 ms, distributed
/// over its nodes of memory. Thread-safe.
int default_cpu_threads();

/// The precision of a device of these options: never kAuto. Fails as make_cpu_device() on the
/// instruction set.
Result<Precision> chosen_precision(const CpuOptions& options);

/// Output bits depend on the instruction set (those of int8 and q16 products do not, nor anything
/// of "portable"), never on the number of threads. Fails with kUnsupported when the machine lacks
/// the instruction set or cannot pin threads, kInvalidArgument on a bad option.
Result<std::unique_ptr<Device>> make_cpu_device(const CpuOptions& options);

}  // namespace moeflux
