// Sums that may end in a norm as plans.
#pragma once

#include "backend/gpu/launch/recorder.h"
#include "backend/gpu/launch/waiting.h"

namespace moeflux::gpu {

/// The sums of a chain, which down products in a launch of their own go before.
Plan plan_sums(const Chain& chain);
/// The sums of a chain with the down products before it.
Plan plan_down_sum(const Chain& chain, const DownOp& down);
/// The whole chain; with `down`, the products that wait for it. `order`: the norm is wanted as
/// integers, whose bytes have that order; they are made on the way where a kernel can.
void record_chain(Recorder& recorder, const Chain& chain, const DownOp* down,
                  uint32_t order = kRowsNone);

}  // namespace moeflux::gpu
