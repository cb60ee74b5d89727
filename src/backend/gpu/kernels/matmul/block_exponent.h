// Numbers of a block as multiples of one power of two: of the exponent of the largest.
#pragma once

namespace moeflux {
namespace gpu {
namespace kernels {

#include "backend/unit_text.h"

}  // namespace kernels
}  // namespace gpu
}  // namespace moeflux
