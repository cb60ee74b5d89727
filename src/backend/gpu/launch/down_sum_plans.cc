// The down products of few slots and the sum of the slots as one plan.
#include <algorithm>
#include <cstring>
#include <optional>

#include "backend/gpu/launch/chain_plans.h"
#include "backend/gpu/launch/few_slots_plans.h"
#include "backend/gpu/launch/mma_plans.h"
#include "backend/gpu/launch/plan_building.h"

namespace moeflux::gpu {
namespace {

constexpr uint32_t kChoosingTokensMax = 2;

uint32_t count_ranks(const MmaExpertParams& e, bool has_shared) {
  return e.top_k + (has_shared ? 1 : 0);
}

MmaOneLaunch down_sum_launch(const MmaExpertsOneParams& p, uint32_t ranks) {
  const uint32_t route_words = p.route.thread_experts != 0 ? uint32_t{kRouteWords} : 0;
  return mma_ranks_launch(p.expert.matrix.bits, ranks, route_words);
}

}  // namespace

std::optional<DownOp> down_that_waits(const Plan& down, const MmaExpertsOneParams& p,
                                      const FewSlots& s, const Platform& platform) {
  const MmaExpertParams& e = p.expert;
  const uint32_t ranks = count_ranks(e, s.has_ffn);
  const bool waits = s.launch.like != nullptr && e.top_k > 0 && s.launch.slots % e.top_k == 0 &&
                     e.cols <= uint32_t{kMmaSplit} && ranks <= kMmaDownRanks && e.wide != 0 &&
                     (e.matrix.wide != 0 || is_ggml(e.matrix)) &&
                     down_sum_launch(p, ranks).bytes <= platform.shared_bytes_max() &&
                     s.experts.routes.weights.is_contiguous();
  if (!waits) return std::nullopt;
  return DownOp{down, s.experts.slots, s.experts.routes.weights,
                s.has_ffn ? s.ffn.op.out : Tensor{}, s.launch.slots / e.top_k};
}

Plan plan_down_sum(const Chain& chain, const DownOp& down) {
  MmaDownSumParams p{};
  std::memcpy(&p.experts, down.plan.params.data(), sizeof(p.experts));
  const MmaExpertParams& e = p.experts.expert;
  const bool has_shared = !down.shared_out.is_null();
  p.has_shared = has_shared ? 1 : 0;
  p.adds = chain.adds;
  for (uint32_t i = 0; has_shared && i < chain.adds; ++i) {
    if (are_same(chain.addends[i], down.shared_out)) p.shared_addend = i + 1;
  }
  // Where groups come in several waves, each would choose anew what the launch before wrote down.
  if (down.tokens > kChoosingTokensMax && p.experts.route.thread_experts != 0) {
    p.experts.route.thread_experts = 0;
    p.late = 1;
  }
  const bool chooses = p.experts.route.thread_experts != 0;
  const uint32_t ranks = count_ranks(e, has_shared);
  const MmaOneLaunch launch = down_sum_launch(p.experts, ranks);
  // A thread writes a word of zeros.
  const uint32_t least =
      chooses ? uint32_t{kRouteThreads} : groups_for(kMmaZeroWords, kSimdLanes) * kSimdLanes;
  const uint32_t threads = std::max(ranks * kSimdLanes, least);
  p.experts.expert.walk = launch.walk;
  Plan plan = make_plan(one_kernels(e.matrix.bits).down_sum,
                        {groups_for(e.matrix.rows, kMmaRows), down.tokens, 1}, threads);
  plan.shared_bytes = launch.bytes;
  plan.set_params(p);
  for (uint32_t i = 0; i < down.plan.num_bindings; ++i) {
    const Binding& binding = down.plan.bindings[i];
    const bool is_weights = i == 1;
    const bool is_slots = i == 7;
    plan.bind(is_weights ? range_of(down.slot_weights, Access::kRead) : binding);
    // Slots of experts that were ready before are read.
    if (is_slots) plan.bindings[i].access = Access::kReadWrite;
  }
  for (const Tensor& addend : chain.addends) {
    const bool is_made_here = has_shared && are_same(addend, down.shared_out);
    plan.bind(is_made_here ? Binding{} : range_of(addend, Access::kRead));
  }
  for (const Tensor& sum : chain.sums) bind_output(plan, sum);
  return plan;
}

}  // namespace moeflux::gpu
