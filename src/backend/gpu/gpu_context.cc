#include "backend/gpu/gpu_context.h"

#include <algorithm>

#include "backend/gpu/kernels/delta/params.h"
#include "backend/gpu/launch/chain_plans.h"
#include "backend/gpu/launch/few_slots_plans.h"
#include "backend/gpu/launch/heads_plans.h"
#include "backend/gpu/launch/mma_linear_plans.h"
#include "backend/gpu/launch/plan_building.h"
#include "backend/gpu/ops/plans.h"

namespace moeflux::gpu {

void GpuContext::flush() {
  const Waiting& w = waiting_;
  switch (w.state()) {
    case State::kNothing:
      return;
    case State::kSums:
    case State::kNorm:
      record_chain(recorder_, w.chain, w.chain.after_down ? &*w.down : nullptr);
      break;
    case State::kProducts:
      record_products(recorder_, w);
      break;
    case State::kFewRows:
      recorder_.record(w.few_rows->plan);
      break;
    case State::kDelta:
    case State::kDeltaNorm:
      recorder_.record(plan_delta_one(recorder_, w.delta, {}, Activation::kSilu),
                       w.delta.states.writes());
      break;
    case State::kHeads:
      record_heads(recorder_, w.heads);
      break;
    case State::kAttention:
      recorder_.record(w.attention->plan);
      break;
    case State::kExperts:
      if (w.route) recorder_.record(plan_route(*w.route));
      if (w.ffn && rows_of(w.ffn->op.x) > kFewFfnTokensMax) {
        const FfnOp ffn = *w.ffn;
        waiting_.clear();
        ffn.op.compose(encoder_);
        return flush();
      }
      if (w.ffn) record_ffn(recorder_, *w.ffn);
      break;
    case State::kDown:
      recorder_.record(w.down->plan);
      break;
  }
  waiting_.clear();
}

void GpuContext::flush_routes() {
  if (waiting_.state() != State::kExperts) {
    flush();
  } else if (waiting_.route) {
    recorder_.record(plan_route(*waiting_.route));
    waiting_.route.reset();
  }
}

void GpuContext::flush_tables() {
  if (waiting_.down || waiting_.attention || !waiting_.delta.states.is_null()) flush();
}

void GpuContext::record(const Plan& plan) {
  flush();
  recorder_.record(plan);
}

bool GpuContext::place_states(std::span<const StateRows> sequences, StateTable& states) {
  states.are_wide = std::all_of(sequences.begin(), sequences.end(),
                                [](const StateRows& s) { return is_wide(s.state); });
  if (sequences.size() == 1) {
    states.state = sequences.front().state;
    return true;
  }
  flush();
  const auto rows = static_cast<uint32_t>(sequences.front().rows);
  const auto is_like_first = [&](const StateRows& s) { return s.rows == rows; };
  states.tokens = std::all_of(sequences.begin(), sequences.end(), is_like_first) ? rows : 0;
  list_segments(sequences, segments_);
  states_.clear();
  for (const Segment& segment : segments_) states_.push_back(sequences[segment.sequence].state);
  states.count = static_cast<uint32_t>(states_.size());
  if (states.tokens == 1) return recorder_.place_addresses(states_, states.addresses);
  const size_t bytes = states_.size() * sizeof(u64) + DeviceTables::kAlignment;
  return recorder_.make_room(bytes + segment_bytes(segments_, kConvTokens, 1)) &&
         place_segments(recorder_, segments_, kConvTokens, 1, states.segments) &&
         recorder_.place_addresses(states_, states.addresses);
}

}  // namespace moeflux::gpu
