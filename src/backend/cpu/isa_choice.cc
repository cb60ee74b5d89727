#include "backend/cpu/isa_choice.h"

#include <string>

#include "base/format.h"
#if defined(MOEFLUX_CPU_X86)
#include <cpuid.h>
#endif

namespace moeflux::cpu {
#if defined(MOEFLUX_CPU_X86)
namespace {

/// clang 14's __builtin_cpu_supports does not know this one.
bool has_f16c() {
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}

}  // namespace
#endif

std::vector<const KernelTable*> supported_kernels() {
  std::vector<const KernelTable*> kernels;
#if defined(MOEFLUX_CPU_X86)
  // The builtin also asks whether the operating system saves the wide registers.
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") &&
                      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
                      __builtin_cpu_supports("avx512dq");
  if (avx512) kernels.push_back(&kAvx512Kernels);
  if (avx2) kernels.push_back(&kAvx2Kernels);
#elif defined(MOEFLUX_CPU_ARM64)
  kernels.push_back(&kNeonKernels);
#endif
  kernels.push_back(&kGenericKernels);
  return kernels;
}

std::vector<const Int8Kernels*> supported_int8_kernels() {
  std::vector<const Int8Kernels*> kernels;
#if defined(MOEFLUX_CPU_X86)
  const KernelTable* const best = supported_kernels().front();
  if (best == &kAvx512Kernels && __builtin_cpu_supports("avx512vnni")) {
    kernels.push_back(&kAvx512VnniInt8Kernels);
  }
  if (best != &kGenericKernels) kernels.push_back(&kAvx2Int8Kernels);
#endif
  kernels.push_back(&kGenericInt8Kernels);
  return kernels;
}

const Int8Kernels& choose_int8_kernels(const KernelTable& kernels) {
  const std::string_view wanted = kernels.name;
  for (const Int8Kernels* table : supported_int8_kernels()) {
    const std::string_view name = table->name;
    if (wanted == "avx512" || wanted == name) return *table;
  }
  return kGenericInt8Kernels;
}

Result<const KernelTable*> choose_kernels(std::string_view isa) {
  const std::vector<const KernelTable*> kernels = supported_kernels();
  if (isa.empty()) return kernels.front();
  std::string names;
  for (const KernelTable* table : kernels) {
    if (isa == table->name) return table;
    names += (names.empty() ? "" : ", ") + std::string(table->name);
  }
  for (const std::string_view known : {"avx2", "avx512", "neon"}) {
    if (isa == known) {
      return make_error(ErrorCode::kUnsupported, "this machine lacks {} kernels; it has {}", isa,
                        names);
    }
  }
  return make_error(ErrorCode::kInvalidArgument,
                    "unknown instruction set '{}'; this machine has {}", isa, names);
}

}  // namespace moeflux::cpu
