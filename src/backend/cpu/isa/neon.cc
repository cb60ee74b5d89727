// Kernels for 64-bit Arm.
#include <arm_neon.h>

#include "backend/cpu/kernels/kernel_table.h"

#define MF_INLINE inline __attribute__((always_inline))

namespace moeflux::cpu {
namespace isa_neon {
#include "backend/cpu/kernels/vec_neon-inl.h"
//
#include "backend/cpu/kernels/kernels-inl.h"
}  // namespace isa_neon

const KernelTable kNeonKernels = isa_neon::make_table("neon");

}  // namespace moeflux::cpu
