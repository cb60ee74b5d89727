// Kernels for x86-64 with AVX2, FMA and F16C; compiled with exactly those flags.
#include <immintrin.h>

#include "backend/cpu/kernels/kernel_table.h"

#define MF_INLINE inline __attribute__((always_inline))

namespace moeflux::cpu {
namespace isa_avx2 {
#include "backend/cpu/kernels/vec_avx2-inl.h"
//
#include "backend/cpu/kernels/kernels-inl.h"
}  // namespace isa_avx2

const KernelTable kAvx2Kernels = isa_avx2::make_table("avx2");

}  // namespace moeflux::cpu
