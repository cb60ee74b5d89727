// Kernels that choose keys, for any machine: portable C++.
#include "backend/cpu/kernels/kernel_table.h"
#include "backend/cpu/kernels/select_table.h"
//
#include "backend/cpu/kernels/inline_macros-inl.h"

namespace moeflux::cpu {
namespace isa_select_generic {
#include "backend/cpu/kernels/vec_generic-inl.h"
//
#include "backend/cpu/kernels/math-inl.h"
//
#include "backend/cpu/kernels/halves_any-inl.h"
//
#include "backend/cpu/kernels/select-inl.h"
}  // namespace isa_select_generic

const SelectKernels kGenericSelect = isa_select_generic::make_select_kernels();

}  // namespace moeflux::cpu
