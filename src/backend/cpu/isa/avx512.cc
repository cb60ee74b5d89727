// Kernels for x86-64 with AVX-512 F, BW, VL and DQ; compiled with exactly those flags.
#include <immintrin.h>

#include "backend/cpu/kernels/kernel_table.h"

#define MF_INLINE inline __attribute__((always_inline))

namespace moeflux::cpu {
namespace isa_avx512 {
#include "backend/cpu/kernels/vec_avx512-inl.h"
//
#include "backend/cpu/kernels/kernels-inl.h"
}  // namespace isa_avx512

const KernelTable kAvx512Kernels = isa_avx512::make_table("avx512");

}  // namespace moeflux::cpu
