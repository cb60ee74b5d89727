#include "backend/cpu/isa_choice.h"

#include <string>

#include "base/format.h"
#if defined(MOEFLUX_CPU_X86)
#include <cpuid.h>
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif
#elif defined(MOEFLUX_CPU_ARM64) && defined(__linux__)
#include <sys/auxv.h>
#elif defined(MOEFLUX_CPU_ARM64) && defined(__APPLE__)
#include <sys/sysctl.h>
#endif

namespace moeflux::cpu {
namespace {

constexpr KernelSet kGeneric = {"generic",
                                &kGenericKernels,
                                &kGenericSelect,
                                &kGenericF32Tiles,
                                &kGenericInt8Tiles,
                                &kGenericQ16Tiles,
                                /*int8_is_fast=*/false};
#if defined(MOEFLUX_CPU_X86)
constexpr KernelSet kAvx2 = {"avx2",
                             &kAvx2Kernels,
                             &kAvx2Select,
                             &kAvx2F32Tiles,
                             &kAvx2Int8Tiles,
                             &kAvx2Q16Tiles,
                             /*int8_is_fast=*/true};
constexpr KernelSet kAvxVnni = {"avx-vnni",           &kAvx2Kernels,      &kAvx2Select,
                                &kAvx2F32Tiles,       &kAvxVnniInt8Tiles, &kAvxVnniQ16Tiles,
                                /*int8_is_fast=*/true};
constexpr KernelSet kAvx512 = {"avx512",
                               &kAvx512Kernels,
                               &kAvx512Select,
                               &kAvx512F32Tiles,
                               &kAvx2Int8Tiles,
                               &kAvx2Q16Tiles,
                               /*int8_is_fast=*/true};
constexpr KernelSet kAvx512Vnni = {
    "avx512-vnni",         &kAvx512Kernels,      &kAvx512Select,       &kAvx512F32Tiles,
    &kAvx512VnniInt8Tiles, &kAvx512VnniQ16Tiles, /*int8_is_fast=*/true};
constexpr KernelSet kAvx512Amx = {"avx512-amx",         &kAvx512Kernels,      &kAvx512Select,
                                  &kAvx512F32Tiles,     &kAvx512AmxInt8Tiles, &kAvx512VnniQ16Tiles,
                                  /*int8_is_fast=*/true};
#elif defined(MOEFLUX_CPU_ARM64)
constexpr KernelSet kNeon = {"neon",
                             &kNeonKernels,
                             &kNeonSelect,
                             &kNeonF32Tiles,
                             &kGenericInt8Tiles,
                             &kGenericQ16Tiles,
                             /*int8_is_fast=*/false};
constexpr KernelSet kNeonDotprod = {
    "neon-dotprod",         &kNeonKernels,         &kNeonSelect,         &kNeonF32Tiles,
    &kNeonDotprodInt8Tiles, &kNeonDotprodQ16Tiles, /*int8_is_fast=*/true};
constexpr KernelSet kNeonI8mm = {"neon-i8mm",          &kNeonKernels,       &kNeonSelect,
                                 &kNeonF32Tiles,       &kNeonI8mmInt8Tiles, &kNeonDotprodQ16Tiles,
                                 /*int8_is_fast=*/true};

bool has_dotprod() {
#if defined(__linux__)
  constexpr unsigned long kAsimdDp = 1ul << 20;  // HWCAP_ASIMDDP
  return (getauxval(AT_HWCAP) & kAsimdDp) != 0;
#else
  return true;  // every Apple processor of this kind
#endif
}

bool has_i8mm() {
#if defined(__linux__)
  constexpr unsigned long kI8mm = 1ul << 13;  // HWCAP2_I8MM
  return (getauxval(AT_HWCAP2) & kI8mm) != 0;
#elif defined(__APPLE__)
  int present = 0;
  size_t bytes = sizeof(present);
  return ::sysctlbyname("hw.optional.arm.FEAT_I8MM", &present, &bytes, nullptr, 0) == 0 &&
         present != 0;
#else
  return false;
#endif
}
#endif

#if defined(MOEFLUX_CPU_X86)

/// clang 14's __builtin_cpu_supports does not know this one.
bool has_f16c() {
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}

/// __builtin_cpu_supports does not know this one either. The operating system saves its registers
/// where it saves those of AVX2.
bool has_avx_vnni() {
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  constexpr unsigned kBit = 1u << 4;
  return __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0 && (a & kBit) != 0;
}

/// Whether the processor has AMX for int8 and the system lets this process, all threads of it, use
/// the tile registers: Linux keeps them off until asked, and refuses where it cannot save them.
bool may_use_amx() {
#if defined(__linux__)
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  constexpr unsigned kTileAndInt8 = 3u << 24;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0 || (d & kTileAndInt8) != kTileAndInt8) {
    return false;
  }
  constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM, which old headers lack
  constexpr long kTileData = 18;               // of XCR0
  return ::syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
  return false;
#endif
}
#endif

}  // namespace

std::vector<const KernelSet*> supported_kernels() {
  std::vector<const KernelSet*> kernels;
#if defined(MOEFLUX_CPU_X86)
  // The builtin also asks whether the operating system saves the wide registers.
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") &&
                      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
                      __builtin_cpu_supports("avx512dq");
  const bool vnni = avx512 && __builtin_cpu_supports("avx512vnni");
  if (vnni && may_use_amx()) kernels.push_back(&kAvx512Amx);
  if (vnni) kernels.push_back(&kAvx512Vnni);
  if (avx512) kernels.push_back(&kAvx512);
  if (avx2 && has_avx_vnni()) kernels.push_back(&kAvxVnni);
  if (avx2) kernels.push_back(&kAvx2);
#elif defined(MOEFLUX_CPU_ARM64)
  if (has_dotprod() && has_i8mm()) kernels.push_back(&kNeonI8mm);
  if (has_dotprod()) kernels.push_back(&kNeonDotprod);
  kernels.push_back(&kNeon);
#endif
  kernels.push_back(&kGeneric);
  return kernels;
}

Result<const KernelSet*> choose_kernels(std::string_view isa) {
  const std::vector<const KernelSet*> kernels = supported_kernels();
  if (isa.empty()) return kernels.front();
  std::string names;
  for (const KernelSet* set : kernels) {
    if (isa == set->name) return set;
    names += (names.empty() ? "" : ", ") + std::string(set->name);
  }
  for (const std::string_view known : {"avx2", "avx-vnni", "avx512", "avx512-vnni", "avx512-amx",
                                       "neon", "neon-dotprod", "neon-i8mm"}) {
    if (isa == known) {
      return make_error(ErrorCode::kUnsupported, "this machine lacks {} kernels; it has {}", isa,
                        names);
    }
  }
  return make_error(ErrorCode::kInvalidArgument,
                    "unknown instruction set '{}'; this machine has {}", isa, names);
}

}  // namespace moeflux::cpu
