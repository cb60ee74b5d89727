// Kernels that choose keys, for x86-64 with AVX2, FMA and F16C.
#include <immintrin.h>

#include "backend/cpu/kernels/kernel_table.h"
#include "backend/cpu/kernels/select_table.h"
//
#include "backend/cpu/kernels/inline_macros-inl.h"

namespace moeflux::cpu {
namespace isa_select_avx2 {
#include "backend/cpu/kernels/vec_avx2-inl.h"
//
#include "backend/cpu/kernels/math-inl.h"
//
#include "backend/cpu/kernels/halves_avx2-inl.h"
//
#include "backend/cpu/kernels/halves_x86-inl.h"
//
#include "backend/cpu/kernels/select-inl.h"
}  // namespace isa_select_avx2

const SelectKernels kAvx2Select = isa_select_avx2::make_select_kernels();

}  // namespace moeflux::cpu
