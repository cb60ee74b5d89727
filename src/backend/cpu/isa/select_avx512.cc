// Kernels that choose keys, for x86-64 with AVX-512 F, BW, VL and DQ.
#include <immintrin.h>

#include "backend/cpu/kernels/kernel_table.h"
#include "backend/cpu/kernels/select_table.h"
//
#include "backend/cpu/kernels/inline_macros-inl.h"

namespace moeflux::cpu {
namespace isa_select_avx512 {
#include "backend/cpu/kernels/vec_avx512-inl.h"
//
#include "backend/cpu/kernels/math-inl.h"
//
#include "backend/cpu/kernels/halves_avx512-inl.h"
//
#include "backend/cpu/kernels/halves_x86-inl.h"
//
#include "backend/cpu/kernels/select-inl.h"
}  // namespace isa_select_avx512

const SelectKernels kAvx512Select = isa_select_avx512::make_select_kernels();

}  // namespace moeflux::cpu
