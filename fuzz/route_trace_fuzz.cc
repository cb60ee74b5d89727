// The bytes of a route trace: refused, or visits whose ids are within its shape and replay.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "lab/replay.h"

namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

// Tables of a header's full size would cost more than the parser does.
constexpr size_t kReplayedExpertsMax = 4096;

void check(const moeflux::RouteTrace& trace) {
  uint64_t uses = 0;
  for (const moeflux::RouteTrace::Visit& visit : trace.visits()) {
    const moeflux::LayerRoutes routes = trace.routes(visit);
    require(routes.tokens > 0 && !routes.ids.empty());
    require(routes.ids.size() == routes.weights.size());
    require(routes.ids.size() % static_cast<size_t>(routes.tokens) == 0);
    require(index(visit.layer) < trace.header().num_layers);
    for (const int32_t id : routes.ids) require(id >= 0 && id < trace.header().num_experts);
    uses += routes.ids.size();
  }
  if (trace.shape().size() > kReplayedExpertsMax) return;
  const moeflux::ReplayResult result = moeflux::replay(trace, {.num_slots = 3});
  const moeflux::ReplayResult best = moeflux::replay_belady(trace, {.num_slots = 3});
  require(result.decode.hits + result.decode.misses + result.prefill.hits + result.prefill.misses <=
          uses);
  require(best.decode.hits >= result.decode.hits);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto trace = moeflux::RouteTrace::parse(text);
  if (trace.ok()) check(*trace);
  return 0;
}
