// Replaces what routers choose by recorded routes. So a cache can be measured on natural routing
// with a model whose weights are random and whose output means nothing, and two devices can be
// compared on the same routes.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/step_rows.h"
#include "experts/expert_table.h"
#include "experts/routes/route_readback.h"
#include "experts/routes/route_trace.h"

namespace moeflux {

struct ForcedRoutesOptions {
  /// The trace's weights too, not the router's. The trace must have as many ranks as the model.
  bool with_weights = false;
};

/// Overwrites routes.ids: everything that follows, lease and arithmetic, sees the trace's experts;
/// the weights stay the router's unless options say otherwise. Rows of decode take the trace's
/// decode tokens in turn, others its prompt tokens, each from the start again after the last. Where
/// n sequences decode in a step, number i is i/n of the trace ahead of the first: sequences that
/// took neighbours would share more experts than independent ones. The model's n-th routed layer
/// takes the trace's n-th, modulo their number; experts are taken modulo the layer's number, the
/// next free one when two fall together; ranks beyond the trace's take the experts of the tokens
/// that follow. The table must outlive it. Fails with kInvalidArgument when the trace has no decode
/// tokens; with weights, leases fail so where trace and model differ in ranks.
Result<RouteReplacement> force_routes(const RouteTrace& trace, const ExpertTable& table,
                                      const ForcedRoutesOptions& options);

/// Bytes of the distinct experts that a layer reads, summed over layers, in a step of `rows`: the
/// mean of `steps` steps that begin where the trace does. `top_k` is by layer, 0 where the table
/// has no experts. Fails as force_routes().
Result<double> forced_expert_bytes(const RouteTrace& trace, const ExpertTable& table,
                                   std::span<const int64_t> top_k, std::span<const StepRows> rows,
                                   int64_t steps);

/// One line on how the trace is mapped to a model of that many routed layers, experts and ranks.
std::string describe_forced_routes(const RouteTrace& trace, int64_t layers, int64_t experts,
                                   int64_t top_k);

}  // namespace moeflux
