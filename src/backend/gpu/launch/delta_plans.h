// The common part of plans of the delta rule and of the selective scan, of many tokens or of heads
// of any size.
#pragma once

#include <cstdint>

#include "backend/gpu/launch/executor.h"
#include "backend/gpu/launch/operations.h"

namespace moeflux::gpu {

/// The most keys of a kernel's head: of a state that decays whole, or of rows that decay by
/// themselves, as those of scans do.
constexpr int64_t kDeltaKeyDimMax = 256;
constexpr int64_t kRowDeltaKeyDimMax = 128;

/// Units of 32 rows of keys that a kernel is made for.
uint32_t key_units(const DeltaParams& p);
/// A kernel of one sequence or of a token of each of several, and that of several sequences.
struct DeltaKernel {
  KernelId heads;
  KernelId segments;
};
/// A plan without bindings. Rows of keys: of the key and the query, and where rows decay by
/// themselves of decays and decayed keys.
Plan plan_delta_heads(const DeltaKernel& kernel, DeltaParams& p, uint32_t heads, uint32_t rows,
                      const StateTable& states, const Platform& platform);
/// Its last bindings.
void bind_states(Plan& plan, const StateTable& states, const Tensor& out);

}  // namespace moeflux::gpu
