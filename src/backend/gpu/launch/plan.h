// A launch plan: everything a GPU has to be told to run one kernel, as plain data. The encoder
// makes plans, an executor (CUDA stream, Metal command encoder, emulator) carries them out.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>

#include "backend/gpu/kernel_list.h"
#include "base/check.h"
#include "tensor/tensor.h"

namespace moeflux::gpu {

/// A kernel's use of a bound range. The emulator enforces it; Metal hazards follow from it.
enum class Access : uint8_t {
  kRead,
  kWrite,      // writes parts of the range
  kOverwrite,  // writes every byte of the range and reads none before it
  kReadWrite,
};

/// A range of memory that the executor's platform allocated. A null buffer is passed to the kernel
/// as a null pointer, which the kernel has been told not to follow.
struct Binding {
  Buffer* buffer = nullptr;
  uint64_t offset_bytes = 0;
  uint64_t size_bytes = 0;
  Access access = Access::kRead;
  bool moves = false;  // lies elsewhere in other steps: a table, or the state of a sequence
};

struct Extent3 {
  uint32_t x = 1;
  uint32_t y = 1;
  uint32_t z = 1;
};

/// Trivially copyable. Kernels take their bindings as pointers, in order, then one parameter
/// struct by value. Kernels may also follow device addresses that lie in tables (pages of keys and
/// values, weights of experts): everything the platform allocated must be reachable.
struct Plan {
  static constexpr size_t kBindingsMax = 25;
  static constexpr size_t kParamsBytesMax = 416;

  KernelId kernel{};
  uint32_t num_bindings = 0;
  std::array<Binding, kBindingsMax> bindings{};
  uint32_t params_bytes = 0;
  alignas(8) std::array<std::byte, kParamsBytesMax> params{};
  Extent3 groups;             // how many groups in each direction; none when any is 0
  uint32_t group_size = 1;    // threads of a group, one-dimensional, a multiple of 32
  uint32_t shared_bytes = 0;  // dynamic shared memory of a group

  template <typename Params>
  void set_params(const Params& value) {
    static_assert(std::is_trivially_copyable_v<Params> && sizeof(Params) <= kParamsBytesMax);
    MF_CHECK(sizeof(Params) == kernel_info(kernel).params_bytes);
    params_bytes = sizeof(Params);
    std::memcpy(params.data(), &value, sizeof(Params));
  }
  void bind(const Binding& binding) {
    MF_CHECK(num_bindings < kBindingsMax);
    bindings[num_bindings++] = binding;
  }
};

/// Lanes of a SIMD group (a warp): all dialects agree on it.
constexpr uint32_t kSimdLanes = 32;
constexpr uint32_t kGroupSizeMax = 1024;
/// The size on Apple's GPUs, the least of the three.
constexpr uint32_t kSharedBytesMax = 32 * 1024;
/// The most that kernels for matrix units ask for, where a platform has it: an H200's.
constexpr uint32_t kMmaSharedBytesMax = 227 * 1024;

/// "rms_norm 3x1x1 groups of 128, 16 shared; read 768 of #0; ...": one line, no addresses. Buffers
/// appear as numbers in the order a plan first names them.
std::string to_string(const Plan& plan);

}  // namespace moeflux::gpu
