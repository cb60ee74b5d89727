// Sums that end in a norm as one plan, and norms that end in a gate: combining experts, adding
// their shared part and the residual stream, and the norm of the next layer are a launch each
// otherwise.
#include <algorithm>

#include "backend/gpu/gpu_encoder.h"
#include "backend/gpu/mma_plans.h"
#include "backend/gpu/plan_building.h"

namespace moeflux::gpu {
namespace {

constexpr uint32_t kSumThreads = 64;

int64_t chain_vectors(int64_t cols) {
  return norm_threads(cols) == kNormLongThreads ? kChainLongVectors : kChainVectorsMax;
}

bool can_chain(const Tensor& tensor) {
  const int64_t cols = tensor.shape.back();
  return tensor.is_contiguous() && is_wide(tensor) && cols % 4 == 0 && cols > 0 &&
         cols <= 4 * int64_t{norm_threads(cols)} * chain_vectors(cols);
}

// A thread sees its own elements only.
bool are_same_or_apart(const Tensor& a, const Tensor& b) {
  return a.is_null() || b.is_null() || are_same(a, b) || !have_overlap(a, b);
}

ChainParams chain_params(const WaitingChain& chain) {
  ChainParams p{};
  p.cols = static_cast<u32>(chain.value.shape.back());
  p.top_k = chain.slots.is_null() ? 0 : static_cast<u32>(chain.slot_weights.dim(1));
  p.adds = chain.adds;
  p.epsilon = chain.norm.eps;
  return p;
}

void bind_parts(Plan& plan, const WaitingChain& chain) {
  plan.bind(range_of(chain.slots, Access::kRead));
  plan.bind(range_of(chain.slot_weights, Access::kRead));
  plan.bind(range_of(chain.base, Access::kRead));
  for (const Tensor& addend : chain.addends) plan.bind(range_of(addend, Access::kRead));
}

// True when a chain may write `out` besides.
bool fits_chain(const WaitingChain& chain, const Tensor& out) {
  const auto fits = [&](const Tensor& other) { return are_same_or_apart(out, other); };
  return can_chain(out) && fits(chain.base) && !have_overlap(out, chain.slots) &&
         !have_overlap(out, chain.slot_weights) &&
         std::all_of(chain.addends.begin(), chain.addends.end(), fits) &&
         std::all_of(chain.sums.begin(), chain.sums.end(), fits);
}

}  // namespace

bool GpuEncoder::start_chain(const Tensor& out, const Tensor& slots, const Routes& routes) {
  const bool fits = rows_of(out) > 0 && can_chain(out) && can_chain(slots) &&
                    !have_overlap(out, slots) && !have_overlap(out, routes.weights) &&
                    routes.weights.is_contiguous();
  const bool after_down = fits && waiting_down_ && !waiting_.chain.after_down &&
                          are_same(waiting_down_->slots, slots) &&
                          are_same(waiting_down_->slot_weights, routes.weights) &&
                          !have_overlap(waiting_down_->shared_out, routes.weights) &&
                          fits_down(out, {});
  if (!after_down) flush_waiting();
  if (!fits) return false;
  WaitingChain& chain = waiting_.chain;
  chain.slots = slots;
  chain.after_down = after_down;
  chain.slot_weights = routes.weights;
  chain.sums[0] = chain.value = out;
  return true;
}

bool GpuEncoder::join_chain(const Tensor& out, const Tensor& a, const Tensor& b) {
  WaitingChain& chain = waiting_.chain;
  const bool open = waiting_.has_chain() && chain.norm.out.is_null() && chain.adds < 2;
  const bool after_a = open && are_same(a, chain.value);
  const Tensor& addend = after_a ? b : a;
  if ((after_a || (open && are_same(b, chain.value))) && can_chain(addend) &&
      fits_chain(chain, out) && (!chain.after_down || fits_down(out, addend)) &&
      are_same_or_apart(out, addend) &&
      std::none_of(chain.sums.begin(), chain.sums.end(), [&](const Tensor& sum) {
        return have_overlap(sum, addend);  // all addends are read before any sum is written
      })) {
    chain.addends[chain.adds] = addend;
  } else {
    flush_waiting();
    if (rows_of(out) == 0 || !can_chain(out) || !can_chain(a) || !can_chain(b) ||
        !are_same_or_apart(out, a) || !are_same_or_apart(out, b)) {
      return false;
    }
    chain.base = a;
    chain.addends[0] = b;
  }
  chain.sums[++chain.adds] = chain.value = out;
  return true;
}

bool GpuEncoder::join_norm(const WaitingNorm& norm) {
  WaitingChain& chain = waiting_.chain;
  const bool fits = !norm.weight.is_null() && is_wide(norm.weight);
  const bool joins = fits && waiting_.has_chain() && chain.norm.out.is_null() &&
                     are_same(chain.value, norm.x) && fits_chain(chain, norm.out);
  if (joins) chain.norm = norm;
  if (joins || join_delta(norm)) return true;
  if (norm.x.shape.rank() == 3 && norm.x.shape.back() <= int64_t{kNormNarrowCols}) {
    add_heads({.x = norm.out, .norm = norm});
    return true;
  }
  flush_waiting();
  // Products may follow.
  if (!fits || rows_of(norm.x) > kSingleTokensMax || !can_chain(norm.x) || !can_chain(norm.out) ||
      !platform_.has_matrix_units()) {
    return false;
  }
  chain.base = chain.value = norm.x;
  chain.norm = norm;
  return true;
}

void GpuEncoder::record_chain(const WaitingChain& chain) {
  const bool has_sums = chain.adds > 0 || !chain.slots.is_null();
  if (chain.norm.out.is_null()) return record_sums(chain);
  const ChainParams p = chain_params(chain);
  const uint32_t threads = norm_threads(p.cols);
  const uint32_t rows = rows_of(chain.value);
  const bool is_long = threads == kNormLongThreads;
  if (chain.after_down) record_down_sum(chain);
  if (is_long && rows <= kSingleTokensMax && (p.top_k == 0 || chain.after_down)) {
    return record_long_chain(chain);
  }
  if (!has_sums || chain.after_down) return record_norm(chain.norm, {}, {});
  const bool is_short =
      !is_long && rows > kSingleTokensMax && p.cols <= 4 * threads * kChainVectorsShort;
  const KernelId kernel = is_long    ? KernelId::rms_norm_chain_long
                          : is_short ? KernelId::rms_norm_chain_short
                                     : KernelId::rms_norm_chain;
  Plan plan = make_plan(kernel, {rows, 1, 1}, threads,
                        threads / kSimdLanes * static_cast<uint32_t>(sizeof(float)));
  plan.set_params(p);
  bind_parts(plan, chain);
  plan.bind(range_of(chain.norm.weight, Access::kRead));
  for (const Tensor& sum : chain.sums) bind_output(plan, sum);
  bind_output(plan, chain.norm.out);
  record(plan);
}

// A long row of a few tokens, of which a launch before has summed all, or slots are no part.
void GpuEncoder::record_long_chain(const WaitingChain& chain) {
  ChainParams p = chain_params(chain);
  if (chain.after_down) p.adds = 0;
  constexpr uint32_t kWords = kNormLongSimds + kChainLongVectors * 4 * kNormLongThreads;
  Plan plan =
      make_plan(KernelId::rms_norm_chain_few, {rows_of(chain.value), 1, 1}, kNormLongThreads);
  plan.shared_bytes = kWords * static_cast<uint32_t>(sizeof(float));
  plan.set_params(p);
  plan.bind(range_of(chain.after_down ? chain.value : chain.base, Access::kRead));
  for (uint32_t i = 0; i < 2; ++i) {
    plan.bind(range_of(i < p.adds ? chain.addends[i] : Tensor{}, Access::kRead));
  }
  plan.bind(range_of(chain.norm.weight, Access::kRead));
  for (uint32_t i = 0; i < 2; ++i) bind_output(plan, i < p.adds ? chain.sums[i + 1] : Tensor{});
  bind_output(plan, chain.norm.out);
  record(plan);
}

void GpuEncoder::record_sums(const WaitingChain& chain) {
  if (chain.after_down) return record_down_sum(chain);
  const ChainParams p = chain_params(chain);
  Plan plan =
      make_plan(KernelId::chain_sums,
                {groups_for(p.cols / 4, kSumThreads), rows_of(chain.value), 1}, kSumThreads);
  plan.set_params(p);
  bind_parts(plan, chain);
  for (const Tensor& sum : chain.sums) bind_output(plan, sum);
  record(plan);
}

bool GpuEncoder::join_gate(const Tensor& out, const Tensor& x, const Tensor& gate,
                           Activation activation) {
  if (join_attention(out, x, gate, activation)) return true;
  const Waiting& waiting = waiting_;
  const bool is_delta =
      waiting.has_delta() && !waiting.delta.norm.out.is_null() && activation == Activation::kSilu;
  const AllHeads& heads = waiting.heads;
  const bool is_heads = heads.size() == 1 && !heads[0].has_rope;
  const bool follows = (is_delta || is_heads) &&
                       are_same(is_delta ? waiting.delta.out : heads[0].x, x) && are_same(x, out) &&
                       gate.shape == x.shape && !have_overlap(gate, out) &&
                       (is_heads || (is_wide(gate) && !have_overlap(gate, waiting.delta.state)));
  if (!follows) flush_waiting();
  if (!follows) return false;
  const Waiting taken = waiting_;
  waiting_.clear();
  if (is_delta) {
    record_delta(taken.delta, gate);
  } else {
    record_norm(taken.heads[0].norm, gate, activation);
  }
  return true;
}

}  // namespace moeflux::gpu
