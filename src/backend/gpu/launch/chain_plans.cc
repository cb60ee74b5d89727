// Sums that may end in a norm as plans: combining experts, adding their shared part and the
// residual stream, and the norm of the next layer are a launch each otherwise.
#include "backend/gpu/launch/chain_plans.h"

#include "backend/gpu/launch/mma_plans.h"
#include "backend/gpu/launch/plan_building.h"
#include "backend/gpu/ops/plans.h"

namespace moeflux::gpu {
namespace {

constexpr uint32_t kSumThreads = 64;

ChainParams chain_params(const Chain& chain) {
  ChainParams p{};
  p.cols = static_cast<u32>(chain.value.shape.back());
  p.top_k = chain.slots.is_null() ? 0 : static_cast<u32>(chain.slot_weights.dim(1));
  p.adds = chain.adds;
  p.epsilon = chain.norm.eps;
  p.order = kRowsNone;
  return p;
}

void bind_parts(Plan& plan, const Chain& chain) {
  plan.bind(range_of(chain.slots, Access::kRead));
  plan.bind(range_of(chain.slot_weights, Access::kRead));
  plan.bind(range_of(chain.base, Access::kRead));
  for (const Tensor& addend : chain.addends) plan.bind(range_of(addend, Access::kRead));
}

// A long row of a few tokens, of which a launch before has summed all, or slots are no part.
Plan plan_long_chain(const Chain& chain) {
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
  return plan;
}

bool is_short_chain(const Chain& chain, uint32_t threads) {
  return threads != kNormLongThreads && rows_of(chain.value) > kFewTokensMax &&
         chain.value.shape.back() <= int64_t{4} * threads * kChainVectorsShort;
}

// `made`: integers of an order that short chains make on the way.
Plan plan_normed_chain(const Chain& chain, uint32_t threads, const QuantizedRows* made = nullptr) {
  ChainParams p = chain_params(chain);
  if (made != nullptr) p.order = made->order;
  const uint32_t rows = rows_of(chain.value);
  const bool is_long = threads == kNormLongThreads;
  const bool is_short = is_short_chain(chain, threads);
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
  if (is_short) {
    for (Binding out :
         {made != nullptr ? made->integers : Binding{}, made != nullptr ? made->sums : Binding{}}) {
      if (made != nullptr) out.access = Access::kOverwrite;
      plan.bind(out);
    }
  }
  return plan;
}

// True when the norm has been recorded, and its integers with it.
bool record_quantized_chain(Recorder& recorder, const Chain& chain, bool after_down,
                            uint32_t threads, uint32_t order) {
  const int64_t cols = chain.value.shape.back();
  if (order == kRowsNone || threads != kNormThreads || !is_short_chain(chain, threads) ||
      cols % kMmaBlock != 0 || chain.norm.weight.is_null()) {
    return false;
  }
  Chain own = chain;
  if (after_down) {  // all sums are there
    own = Chain{};
    own.base = own.value = chain.value;
    own.norm = chain.norm;
  }
  const Result<const QuantizedRows*> rows = recorder.quantized().add(chain.norm.out, order);
  if (!rows.ok()) {
    recorder.fail(rows.error());
    return true;
  }
  recorder.record(plan_normed_chain(own, threads, *rows));
  recorder.quantized().keep(**rows, chain.norm.out);
  return true;
}

}  // namespace

Plan plan_sums(const Chain& chain) {
  const ChainParams p = chain_params(chain);
  Plan plan =
      make_plan(KernelId::chain_sums,
                {groups_for(p.cols / 4, kSumThreads), rows_of(chain.value), 1}, kSumThreads);
  plan.set_params(p);
  bind_parts(plan, chain);
  for (const Tensor& sum : chain.sums) bind_output(plan, sum);
  return plan;
}

void record_chain(Recorder& recorder, const Chain& chain, const DownOp* down, uint32_t order) {
  if (down != nullptr) recorder.record(plan_down_sum(chain, *down));
  if (chain.norm.out.is_null()) {
    if (down == nullptr) recorder.record(plan_sums(chain));
    return;
  }
  const bool has_sums = chain.adds > 0 || !chain.slots.is_null();
  const uint32_t threads = norm_threads(chain.value.shape.back());
  const bool is_long = threads == kNormLongThreads;
  if (record_quantized_chain(recorder, chain, down != nullptr, threads, order)) return;
  if (is_long && rows_of(chain.value) <= kFewTokensMax && !chain.norm.weight.is_null() &&
      (chain.slots.is_null() || down != nullptr)) {
    recorder.record(plan_long_chain(chain));
  } else if (!has_sums || down != nullptr) {
    recorder.record(plan_norm(chain.norm, {}, {}));
  } else {
    recorder.record(plan_normed_chain(chain, threads));
  }
}

}  // namespace moeflux::gpu
