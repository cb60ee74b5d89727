// Kernels that choose keys, for any machine, with the bits of select_avx2.cc.
#include "backend/cpu/kernels/portable_tables.h"
//
#include "backend/cpu/kernels/inline_macros-inl.h"

namespace moeflux::cpu {
namespace isa_select_portable {
#include "backend/cpu/kernels/vec_portable-inl.h"
//
#include "backend/cpu/kernels/math-inl.h"
//
#include "backend/cpu/kernels/halves_any-inl.h"
//
#include "backend/cpu/kernels/select-inl.h"
}  // namespace isa_select_portable

const SelectKernels kPortableSelect = isa_select_portable::make_select_kernels();

}  // namespace moeflux::cpu
