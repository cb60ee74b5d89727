// Sums that end in a norm as one plan: combining experts, adding their shared part and the residual
// stream, and the norm of the next layer are a launch each otherwise.
#include "backend/gpu/gpu_encoder.h"
#include "backend/gpu/plan_building.h"

namespace moeflux::gpu {
namespace {

bool can_chain(const Tensor& tensor) {
  const int64_t cols = tensor.shape.back();
  return tensor.is_contiguous() && is_wide(tensor) && cols % 4 == 0 && cols > 0 &&
         cols <= int64_t{4} * kChainThreads * kChainVectorsMax;
}

// A thread sees its own elements only.
bool are_same_or_apart(const Tensor& a, const Tensor& b) {
  return a.is_null() || b.is_null() || are_same(a, b) || !have_overlap(a, b);
}

}  // namespace

void GpuEncoder::flush_waiting() {
  flush_products();
  flush_chain();
  flush_norm();
}

bool GpuEncoder::start_chain(const Tensor& out, const Tensor& slots, const Routes& routes) {
  flush_waiting();
  if (!can_chain(out) || !can_chain(slots) || have_overlap(out, slots) ||
      !routes.weights.is_contiguous() || rows_of(out) == 0) {
    return false;
  }
  chain_.slots = slots;
  chain_.slot_weights = routes.weights;
  chain_.sums[0] = out;
  chain_.value = out;
  return true;
}

bool GpuEncoder::join_chain(const Tensor& out, const Tensor& a, const Tensor& b) {
  bool fits = can_chain(out) && can_chain(a) && can_chain(b) && are_same_or_apart(out, a) &&
              are_same_or_apart(out, b) && rows_of(out) > 0;
  const bool continues = !chain_.value.is_null() && chain_.adds < 2 && fits &&
                         (are_same(a, chain_.value) || are_same(b, chain_.value)) &&
                         !have_overlap(out, chain_.slots);
  const Tensor& addend = continues && !are_same(a, chain_.value) ? a : b;
  if (continues) {
    for (const Tensor& sum : chain_.sums) {
      fits = fits && are_same_or_apart(sum, addend) && are_same_or_apart(sum, out);
    }
    for (const Tensor& other : {chain_.base, chain_.addends[0]}) {
      fits = fits && are_same_or_apart(other, out);
    }
  }
  if (!continues || !fits) {
    flush_waiting();
    if (!fits) return false;
    chain_.base = a;
  }
  chain_.addends[chain_.adds] = addend;
  chain_.sums[++chain_.adds] = out;
  chain_.value = out;
  return true;
}

// What no norm followed: one launch each.
void GpuEncoder::flush_chain() {
  if (chain_.value.is_null()) return;
  const WaitingChain chain = chain_;
  chain_ = {};
  if (!chain.slots.is_null()) record_combine(chain.sums[0], chain.slots, chain.slot_weights);
  Tensor value = chain.slots.is_null() ? chain.base : chain.sums[0];
  for (uint32_t i = 0; i < chain.adds; ++i) {
    record_add(chain.sums[i + 1], value, chain.addends[i]);
    value = chain.sums[i + 1];
  }
}

void GpuEncoder::record_chain_norm(const Tensor& out, const Tensor& weight, float eps) {
  const WaitingChain chain = chain_;
  chain_ = {};
  ChainParams p{};
  p.cols = static_cast<u32>(out.shape.back());
  p.top_k = chain.slots.is_null() ? 0 : static_cast<u32>(chain.slot_weights.dim(1));
  p.adds = chain.adds;
  p.epsilon = eps;
  Plan plan = make_plan(KernelId::rms_norm_chain, {rows_of(out), 1, 1}, kChainThreads,
                        kChainThreads / kSimdLanes * static_cast<uint32_t>(sizeof(float)));
  plan.set_params(p);
  plan.bind(range_of(chain.slots, Access::kRead));
  plan.bind(range_of(chain.slot_weights, Access::kRead));
  plan.bind(range_of(chain.base, Access::kRead));
  for (const Tensor& addend : chain.addends) plan.bind(range_of(addend, Access::kRead));
  plan.bind(range_of(weight, Access::kRead));
  for (const Tensor& sum : chain.sums) {
    if (sum.is_null()) {
      plan.bind({});
    } else {
      bind_output(plan, sum);
    }
  }
  bind_output(plan, out);
  record(plan);
}

}  // namespace moeflux::gpu
