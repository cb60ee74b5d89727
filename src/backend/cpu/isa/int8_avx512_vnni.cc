// Int8 kernels for x86-64 with AVX-512 VNNI (and F, BW, VL, DQ); compiled with exactly those flags.
#include <immintrin.h>

#include "backend/cpu/kernels/int8_table.h"

#define MF_INLINE inline __attribute__((always_inline))

namespace moeflux::cpu {
namespace isa_int8_avx512_vnni {
#include "backend/cpu/kernels/vec_int8_avx512-inl.h"
//
#include "backend/cpu/kernels/int8_quantize-inl.h"
//
#include "backend/cpu/kernels/int8-inl.h"
}  // namespace isa_int8_avx512_vnni

const Int8Kernels kAvx512VnniInt8Kernels = {"avx512_vnni", isa_int8_avx512_vnni::int8_quantize,
                                            isa_int8_avx512_vnni::int8_panel};

}  // namespace moeflux::cpu
