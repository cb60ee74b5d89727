// Kernels that choose keys, for 64-bit Arm.
#include <arm_neon.h>

#include "backend/cpu/kernels/kernel_table.h"
#include "backend/cpu/kernels/select_table.h"
//
#include "backend/cpu/kernels/inline_macros-inl.h"

namespace moeflux::cpu {
namespace isa_select_neon {
#include "backend/cpu/kernels/vec_neon-inl.h"
//
#include "backend/cpu/kernels/math-inl.h"
//
#include "backend/cpu/kernels/halves_any-inl.h"
//
#include "backend/cpu/kernels/select-inl.h"
}  // namespace isa_select_neon

const SelectKernels kNeonSelect = isa_select_neon::make_select_kernels();

}  // namespace moeflux::cpu
