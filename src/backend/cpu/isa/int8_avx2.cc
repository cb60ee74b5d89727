// Int8 kernels for x86-64 with AVX2, FMA and F16C; compiled with exactly those flags.
#include <immintrin.h>

#include "backend/cpu/kernels/int8_table.h"

#define MF_INLINE inline __attribute__((always_inline))

namespace moeflux::cpu {
namespace isa_int8_avx2 {
#include "backend/cpu/kernels/vec_int8_avx2-inl.h"
//
#include "backend/cpu/kernels/int8_quantize-inl.h"
//
#include "backend/cpu/kernels/int8-inl.h"
}  // namespace isa_int8_avx2

const Int8Kernels kAvx2Int8Kernels = {"avx2", isa_int8_avx2::int8_quantize,
                                      isa_int8_avx2::int8_panel};

}  // namespace moeflux::cpu
