// Products of quantised matrices with few tokens on matrix units as plans. Products of the same
// activations share a launch, with what makes the activations and a convolution after them.
#include <algorithm>

#include "backend/gpu/gpu_encoder.h"
#include "backend/gpu/mma_plans.h"
#include "backend/gpu/plan_building.h"

namespace moeflux::gpu {
namespace {

// Tiles of all matrices, and how their groups walk over them.
MmaOneLaunch launch_of(const Waiting& waiting, const Platform& platform) {
  MmaOneNeeds needs;
  needs.cols = static_cast<uint32_t>(waiting.products.front().x.shape.back());
  needs.tiles = 0;
  for (const WaitingProduct& product : waiting.products) {
    needs.tiles += groups_for(static_cast<uint64_t>(product.weight.rows), kMmaRows);
    needs.bits = std::max(needs.bits, static_cast<uint32_t>(product.weight.format.bits));
  }
  needs.rows = rows_of(waiting.products.front().x);
  needs.makes_row = waiting.has_chain();
  return mma_one_launch(needs, platform.cores(), platform.shared_bytes_max());
}

MmaLinearParams linear_params(const Waiting& waiting, const MmaWalk& walk) {
  const Products& products = waiting.products;
  const Tensor& x = products.front().x;
  MmaLinearParams p{};
  p.x_stride = row_stride(x);
  p.cols = static_cast<u32>(x.shape.back());
  p.walk = walk;
  p.wide = is_wide(x) ? 1 : 0;
  p.tokens = rows_of(x);
  const WaitingConv& conv = waiting.conv;
  p.conv_matrix = conv.out.is_null() ? uint32_t{kMmaMatricesMax} : conv.product;
  p.conv_taps = conv.out.is_null() ? 0 : static_cast<u32>(conv.weight.dim(1));
  return p;
}

}  // namespace

bool can_norm(const WaitingChain& chain, const Tensor& x) {
  const Tensor& normed = chain.norm.out;
  return !normed.is_null() && are_same(normed, x) && !have_overlap(normed, chain.value);
}

bool can_sum(const WaitingChain& chain) {
  if (!chain.slots.is_null() || chain.adds > 1) return false;
  for (const Tensor& part : {chain.base, chain.addends[0]}) {
    if (have_overlap(chain.norm.out, part) || have_overlap(chain.sums[1], part)) return false;
  }
  return true;
}

bool is_apart(const Waiting& waiting, const Tensor& out) {
  const WaitingChain& chain = waiting.chain;
  bool apart = !have_overlap(out, chain.value) && !have_overlap(out, chain.norm.out);
  if (can_sum(chain)) {
    apart = apart && !have_overlap(out, chain.base) && !have_overlap(out, chain.addends[0]);
  }
  for (const WaitingProduct& other : waiting.products) {
    apart = apart && !have_overlap(out, other.out) && !have_overlap(out, other.x);
  }
  return apart;
}

void GpuEncoder::add_mma_product(const Tensor& out, const Tensor& x, const Weight& weight) {
  if (rows_of(x) == 0) return;
  Products& products = waiting_.products;
  const bool joins = products.empty()
                         ? rows_of(x) <= kSingleTokensMax &&
                               x.shape.back() <= int64_t{kMmaMadeColsMax} &&
                               can_norm(waiting_.chain, x)
                         : products.size() < kMmaMatricesMax && are_same(products[0].x, x);
  if (!joins || !is_apart(waiting_, out) || have_overlap(x, out)) flush_waiting();
  products.push_back({out, x, weight});
}

bool GpuEncoder::join_conv(const Tensor& out, const Tensor& x, const Tensor& weight,
                           const Tensor& state) {
  if (waiting_.products.empty() || rows_of(x) != 1 || weight.dim(1) > int64_t{kConvOneTapsMax} ||
      !out.is_contiguous() || !is_apart(waiting_, out) || !is_apart(waiting_, state) ||
      have_overlap(out, state)) {
    return false;
  }
  const Products& products = waiting_.products;
  const auto product = std::find_if(products.begin(), products.end(),
                                    [&](const auto& other) { return are_same(other.out, x); });
  if (product == products.end()) return false;
  waiting_.conv = {out, weight, state, static_cast<uint32_t>(product - products.begin())};
  flush_waiting();
  return true;
}

void GpuEncoder::record_products(const Waiting& waiting) {
  const Products& products = waiting.products;
  if (rows_of(products.front().x) > kSingleTokensMax) return record_products_of_many(products);
  const WaitingChain& chain = waiting.chain;
  const bool normed = waiting.has_chain();
  const bool sums = normed && can_sum(chain);
  if (normed && !sums) record_sums(chain);
  const MmaOneLaunch launch = launch_of(waiting, platform_);
  MmaLinearParams p = linear_params(waiting, launch.walk);
  uint32_t groups = list_matrices(p, products, launch.walk.tiles * kMmaRows);
  if (products.size() == 1) {
    groups = launch.groups;
  } else {
    p.walk.full = groups;  // whatever the last of a matrix has
  }
  const bool only4 =
      std::all_of(products.begin(), products.end(),
                  [](const WaitingProduct& product) { return product.weight.format.bits == 4; });
  const KernelId made = only4 ? KernelId::mma_normed_linear_w4_t1 : KernelId::mma_normed_linear_t1;
  const KernelId plain = only4 ? KernelId::mma_linear_w4_t1 : KernelId::mma_linear_t1;
  Plan plan = make_plan(normed ? made : plain, {groups, p.tokens, 1}, launch.threads);
  plan.shared_bytes = launch.bytes;
  for (const WaitingProduct& product : products) bind_weight(plan, product.weight);
  for (size_t i = products.size(); i < kMmaMatricesMax; ++i) bind_weight(plan, {});
  if (normed) {
    plan.set_params(MmaNormedParams{p, sums ? chain.adds : 0, chain.norm.eps});
    plan.bind(range_of(sums ? chain.base : chain.value, Access::kRead));
    plan.bind(range_of(sums ? chain.addends[0] : Tensor{}, Access::kRead));
    plan.bind(range_of(chain.norm.weight, Access::kRead));
  } else {
    plan.set_params(p);
    plan.bind(range_of(products.front().x, Access::kRead));
  }
  plan.bind(range_of(waiting.conv.weight, Access::kRead));
  plan.bind(range_of(waiting.conv.state, Access::kReadWrite));
  for (const WaitingProduct& product : products) bind_output(plan, product.out);
  for (size_t i = products.size(); i < kMmaMatricesMax; ++i) plan.bind({});
  if (normed) {
    bind_output(plan, sums ? chain.sums[1] : Tensor{});
    bind_output(plan, chain.norm.out);
  }
  bind_output(plan, waiting.conv.out);
  record(plan);
}

}  // namespace moeflux::gpu
