#include "backend/cpu/isa_choice.h"

#include <string>

#include "backend/cpu/kernels/portable_tables.h"
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
                                "generic",
                                &kGenericKernels,
                                &kGenericSelect,
                                &kGenericF32Tiles,
                                &kGenericInt8Tiles,
                                &kGenericQ16Tiles,
                                /*int8_is_fast=*/false};

/// The portable bits with the integer products of `products`.
constexpr KernelSet portable_beside(const char* name, const KernelSet& lanes,
                                    const KernelSet& products) {
  return {name,
          "portable",
          lanes.ops,
          lanes.select,
          lanes.f32_tiles,
          products.int8_tiles,
          products.q16_tiles,
          /*int8_is_fast=*/true};  // everywhere: what "auto" means is part of the bits
}

constexpr KernelSet kEightLanes = {"portable-generic",   "portable",         &kPortableKernels,
                                   &kPortableSelect,     &kPortableF32Tiles, &kGenericInt8Tiles,
                                   &kGenericQ16Tiles,
                                   /*int8_is_fast=*/true};
#if defined(MOEFLUX_CPU_X86)
constexpr KernelSet kAvx2 = {"avx2",
                             "avx2",
                             &kAvx2Kernels,
                             &kAvx2Select,
                             &kAvx2F32Tiles,
                             &kAvx2Int8Tiles,
                             &kAvx2Q16Tiles,
                             /*int8_is_fast=*/true};
constexpr KernelSet kAvxVnni = {"avx-vnni",           "avx-vnni",     &kAvx2Kernels,
                                &kAvx2Select,         &kAvx2F32Tiles, &kAvxVnniInt8Tiles,
                                &kAvxVnniQ16Tiles,
                                /*int8_is_fast=*/true};
constexpr KernelSet kAvx512 = {"avx512",
                               "avx512",
                               &kAvx512Kernels,
                               &kAvx512Select,
                               &kAvx512F32Tiles,
                               &kAvx2Int8Tiles,
                               &kAvx2Q16Tiles,
                               /*int8_is_fast=*/true};
constexpr KernelSet kAvx512Vnni = {"avx512-vnni",        "avx512-vnni",    &kAvx512Kernels,
                                   &kAvx512Select,       &kAvx512F32Tiles, &kAvx512VnniInt8Tiles,
                                   &kAvx512VnniQ16Tiles,
                                   /*int8_is_fast=*/true};
constexpr KernelSet kAvx512Amx = {"avx512-amx",         "avx512-amx",     &kAvx512Kernels,
                                  &kAvx512Select,       &kAvx512F32Tiles, &kAvx512AmxInt8Tiles,
                                  &kAvx512VnniQ16Tiles,
                                  /*int8_is_fast=*/true};
constexpr KernelSet kPortableAvx2 = portable_beside("portable-avx2", kAvx2, kAvx2);
constexpr KernelSet kPortableAvxVnni = portable_beside("portable-avx-vnni", kAvx2, kAvxVnni);
constexpr KernelSet kPortableAvx512Vnni =
    portable_beside("portable-avx512-vnni", kAvx2, kAvx512Vnni);
constexpr KernelSet kPortableAvx512Amx = portable_beside("portable-avx512-amx", kAvx2, kAvx512Amx);
#elif defined(MOEFLUX_CPU_ARM64)
constexpr KernelSet kNeon = {"neon",
                             "neon",
                             &kNeonKernels,
                             &kNeonSelect,
                             &kNeonF32Tiles,
                             &kGenericInt8Tiles,
                             &kGenericQ16Tiles,
                             /*int8_is_fast=*/false};
constexpr KernelSet kNeonDotprod = {"neon-dotprod",        "neon-dotprod", &kNeonKernels,
                                    &kNeonSelect,          &kNeonF32Tiles, &kNeonDotprodInt8Tiles,
                                    &kNeonDotprodQ16Tiles,
                                    /*int8_is_fast=*/true};
constexpr KernelSet kNeonI8mm = {"neon-i8mm",           "neon-i8mm",    &kNeonKernels,
                                 &kNeonSelect,          &kNeonF32Tiles, &kNeonI8mmInt8Tiles,
                                 &kNeonDotprodQ16Tiles,
                                 /*int8_is_fast=*/true};
constexpr KernelSet kPortableNeonDotprod =
    portable_beside("portable-neon-dotprod", kEightLanes, kNeonDotprod);
constexpr KernelSet kPortableNeonI8mm =
    portable_beside("portable-neon-i8mm", kEightLanes, kNeonI8mm);

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
[[maybe_unused]] bool has_avx_vnni() {
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  constexpr unsigned kBit = 1u << 4;
  return __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0 && (a & kBit) != 0;
}

/// Whether the processor has AMX for int8 and the system lets this process, all threads of it, use
/// the tile registers: Linux keeps them off until asked, and refuses where it cannot save them.
[[maybe_unused]] bool may_use_amx() {
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

/// A set and its portable twin, null where another set has the same one.
struct Candidate {
  const KernelSet* set;
  const KernelSet* portable;
};

/// The candidates that this machine runs, best first.
std::vector<Candidate> candidates() {
  std::vector<Candidate> kernels;
#if defined(MOEFLUX_CPU_X86)
  // The builtin also asks whether the operating system saves the wide registers.
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") &&
                      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
                      __builtin_cpu_supports("avx512dq");
  const bool vnni = avx512 && __builtin_cpu_supports("avx512vnni");
  if constexpr (MOEFLUX_CPU_INT8_AVX512_AMX) {
    if (vnni && may_use_amx()) kernels.push_back({&kAvx512Amx, &kPortableAvx512Amx});
  }
  if constexpr (MOEFLUX_CPU_INT8_AVX512_VNNI) {
    if (vnni) kernels.push_back({&kAvx512Vnni, &kPortableAvx512Vnni});
  }
  if constexpr (MOEFLUX_CPU_INT8_AVX2) {
    if (avx512) kernels.push_back({&kAvx512, nullptr});  // the twin would be AVX2's
  }
  if constexpr (MOEFLUX_CPU_INT8_AVX_VNNI) {
    if (avx2 && has_avx_vnni()) kernels.push_back({&kAvxVnni, &kPortableAvxVnni});
  }
  if constexpr (MOEFLUX_CPU_INT8_AVX2) {
    if (avx2) kernels.push_back({&kAvx2, &kPortableAvx2});
  }
#elif defined(MOEFLUX_CPU_ARM64)
  if (has_dotprod() && has_i8mm()) kernels.push_back({&kNeonI8mm, &kPortableNeonI8mm});
  if (has_dotprod()) kernels.push_back({&kNeonDotprod, &kPortableNeonDotprod});
  kernels.push_back({&kNeon, nullptr});  // the twin would be the generic one's
#endif
  kernels.push_back({&kGeneric, &kEightLanes});
  return kernels;
}

}  // namespace

std::vector<const KernelSet*> supported_kernels() {
  std::vector<const KernelSet*> kernels;
  for (const Candidate& candidate : candidates()) kernels.push_back(candidate.set);
  return kernels;
}

std::vector<const KernelSet*> portable_kernels() {
  std::vector<const KernelSet*> kernels;
  for (const Candidate& candidate : candidates()) {
    if (candidate.portable != nullptr) kernels.push_back(candidate.portable);
  }
  return kernels;
}

Result<const KernelSet*> choose_kernels(std::string_view isa) {
  const std::string_view portable = "portable";
  const bool is_portable = isa.starts_with(portable);
  const std::vector<const KernelSet*> kernels =
      is_portable ? portable_kernels() : supported_kernels();
  if (isa.empty() || isa == portable) return kernels.front();
  std::string names(is_portable ? "portable" : "");
  for (const KernelSet* set : kernels) {
    if (isa == set->name) return set;
    names += (names.empty() ? "" : ", ") + std::string(set->name);
  }
  std::string_view bare = isa;
  if (isa.starts_with("portable-")) bare.remove_prefix(portable.size() + 1);
  for (const std::string_view known : {"avx2", "avx-vnni", "avx512", "avx512-vnni", "avx512-amx",
                                       "neon", "neon-dotprod", "neon-i8mm"}) {
    if (bare == known) {
      return make_error(ErrorCode::kUnsupported, "this machine lacks {} kernels; it has {}", isa,
                        names);
    }
  }
  return make_error(ErrorCode::kInvalidArgument,
                    "unknown instruction set '{}'; this machine has {}{}", isa, names,
                    is_portable ? "" : ", portable");
}

}  // namespace moeflux::cpu
