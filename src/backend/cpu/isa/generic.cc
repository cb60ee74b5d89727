// Kernels for any machine: portable C++.
#include "backend/cpu/kernels/kernel_table.h"

#define MF_INLINE inline __attribute__((always_inline))

namespace moeflux::cpu {
namespace isa_generic {
#include "backend/cpu/kernels/vec_generic-inl.h"
//
#include "backend/cpu/kernels/kernels-inl.h"
}  // namespace isa_generic

const KernelTable kGenericKernels = isa_generic::make_table("generic");

}  // namespace moeflux::cpu
