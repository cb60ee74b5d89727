// Must not compile: a device pointer handed to a function that forgot its address space. Shows that
// the check of the Metal text sees what a Metal compiler would.
#pragma once

#include "backend/gpu/dialect/metal.h"

namespace moeflux {
namespace gpu {

MF_FN f32 first_of(const f32* values) { return values[0]; }

MF_KERNEL(forgets_the_qualifier, u32, MF_READ(0, f32, a), MF_WRITE(1, f32, out)) {
  MF_THREAD;
  out[t.index] = first_of(a);
}

}  // namespace gpu
}  // namespace moeflux
