// Products of the same activations share a launch; those of few tokens also with what makes the
// activations and a convolution after them.
#include "backend/gpu/launch/mma_linear_plans.h"

#include <algorithm>
#include <optional>

#include "backend/gpu/launch/chain_plans.h"
#include "backend/gpu/launch/fusion.h"
#include "backend/gpu/launch/mma_plans.h"
#include "backend/gpu/launch/plan_building.h"
#include "backend/gpu/launch/rows_plans.h"

namespace moeflux::gpu {
namespace {

// Kernels that all matrices have. GGML's types share no launch with others.
const OneKernels& kernels_of(const Products& products) {
  const uint32_t first = mma_matrix(products.front().weight).bits;
  const bool are_alike = std::all_of(
      products.begin(), products.end(),
      [&](const ops::Linear& product) { return mma_matrix(product.weight).bits == first; });
  const uint32_t of_any = is_ggml(products.front().weight) ? uint32_t{kMmaGgml} : 8;
  return one_kernels(are_alike ? first : of_any);
}

// Tiles of all matrices, and how their groups walk over them.
MmaOneLaunch launch_of(const Waiting& waiting, const Platform& platform) {
  MmaOneNeeds needs;
  needs.cols = static_cast<uint32_t>(waiting.products.front().x.shape.back());
  needs.tiles = 0;
  needs.bits = mma_matrix(waiting.products.front().weight).bits;
  for (const ops::Linear& product : waiting.products) {
    needs.tiles += groups_for(static_cast<uint64_t>(product.weight.rows), kMmaRows);
    const uint32_t bits = mma_matrix(product.weight).bits;
    if (mma_place_words(bits) > mma_place_words(needs.bits)) needs.bits = bits;
    needs.grid_words = std::max(needs.grid_words, grid_words(bits));
  }
  needs.rows = rows_of(waiting.products.front().x);
  needs.makes_row = !waiting.chain.value.is_null();
  needs.may_double = !needs.makes_row;
  needs.knows_type = kernels_of(waiting.products).knows_type;
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
  const ops::CausalConv& conv = waiting.conv.op;
  p.conv_matrix = conv.out.is_null() ? uint32_t{kMmaMatricesMax} : waiting.conv.product;
  if (!conv.out.is_null()) {
    p.conv_taps = conv.weight.is_null() ? 1 : static_cast<u32>(conv.weight.dim(1));
  }
  return p;
}

// Matrices, activations and results.
void bind_products(Plan& plan, const Products& products, const QuantizedRows& rows) {
  for (const ops::Linear& product : products) bind_weight(plan, product.weight);
  for (size_t i = products.size(); i < kMmaMatricesMax; ++i) bind_weight(plan, {});
  plan.bind(rows.integers);
  plan.bind(rows.sums);
  for (const ops::Linear& product : products) bind_output(plan, product.out);
  for (size_t i = products.size(); i < kMmaMatricesMax; ++i) plan.bind({});
}

// Tokens of a group. Large tiles where these take less time, though they leave more multiprocessors
// idle: small ones take some five eighths of theirs.
uint32_t tile_of_many(uint32_t cores, uint32_t groups, uint32_t tokens, uint32_t large) {
  const auto rounds = [&](uint32_t tile) {
    return groups_for(uint64_t{groups} * groups_for(tokens, tile), cores);
  };
  return 8 * rounds(large) <= 5 * rounds(kMmaTokens) ? large : uint32_t{kMmaTokens};
}

void record_products_of_many(Recorder& recorder, const Products& products) {
  const Tensor& x = products.front().x;
  const uint32_t n = rows_of(x);
  const bool has_ggml = is_ggml(products.front().weight);
  const QuantizedRows* const rows = quantize_rows(recorder, x, has_ggml);
  if (rows == nullptr) return;
  MmaLinearParams p{};
  p.cols = static_cast<u32>(x.shape.back());
  p.tokens = n;
  const uint32_t groups = list_matrices(p, products, kMmaGroupRows);
  for (const ops::Linear& product : products) {
    p.walk.place_words = std::max(p.walk.place_words, ggml_place_words(mma_matrix(product.weight)));
  }
  p.tile = kMmaTokens;
  p.stages = kMmaStages;
  if (has_ggml) {
    const Platform& platform = recorder.platform();
    p.tile = tile_of_many(platform.cores(), groups, n, ggml_tile(platform, p.walk.place_words));
    p.stages = ggml_stage_blocks(platform, p.tile, p.walk.place_words);
  }
  Plan plan =
      make_mma_many_plan(has_ggml ? KernelId::mma_linear_ggml : KernelId::mma_linear,
                         {groups, groups_for(n, p.tile), 1}, p.tile, p.stages, p.walk.place_words);
  plan.set_params(p);
  bind_products(plan, products, *rows);
  recorder.record(plan);
}

// The bits, or type, whose splits take most, where all matrices have kernels for few tokens.
std::optional<uint32_t> few_bits(const Products& products) {
  uint32_t most = mma_matrix(products.front().weight).bits;
  for (const ops::Linear& product : products) {
    const uint32_t bits = mma_matrix(product.weight).bits;
    if (!knows_few(bits)) return std::nullopt;
    if (mma_place_words(bits) > mma_place_words(most)) most = bits;
  }
  return most;
}

// Groups of a token tile, of so many rows.
uint32_t groups_of(const Products& products, uint32_t rows) {
  uint32_t groups = 0;
  for (const ops::Linear& product : products) {
    groups += groups_for(static_cast<uint64_t>(product.weight.rows), rows);
  }
  return groups;
}

constexpr uint32_t kKnownTokens = 8;
// Two groups of eight read a matrix twice. With 16 tokens that takes steps of the 35B in Q4_K on an
// H200 a twentieth less than one of 16, with 32 a sixth more than groups of many.
constexpr uint32_t kKnownTokensMax = 16;

// The type of all matrices, if eight tokens have a kernel of it.
const KnownType* known_type(const Products& products) {
  const KnownType* const type = find_known(mma_matrix(products.front().weight));
  if (type == nullptr || !type->linear8) return nullptr;
  const bool is_of_all = std::all_of(
      products.begin(), products.end(),
      [&](const ops::Linear& product) { return find_known(mma_matrix(product.weight)) == type; });
  return is_of_all ? type : nullptr;
}

// The launch of a few tokens, or of some where those of many would leave half of the
// multiprocessors idle.
std::optional<MmaFewLaunch> few_launch(const Platform& platform, const Products& products) {
  const uint32_t tokens = rows_of(products.front().x);
  const std::optional<uint32_t> bits = few_bits(products);
  if (tokens <= kFewTokensMax || tokens > kMmaFewTokensMost || !bits) return std::nullopt;
  const bool fills =
      2 * groups_of(products, kMmaGroupRows) * groups_for(tokens, kMmaTokens) >= platform.cores();
  if (tokens > kMmaFewTokensMax && fills) return std::nullopt;
  const bool is_known = tokens <= kKnownTokensMax && known_type(products) != nullptr;
  return mma_few_launch(*bits, static_cast<uint32_t>(products.front().x.shape.back()),
                        is_known ? std::min(tokens, kKnownTokens) : tokens, platform.cores(),
                        platform.shared_bytes_max(),
                        [&](uint32_t rows) { return groups_of(products, rows); });
}

// The type that a launch's kernel knows.
const KnownType* known_type(const MmaFewLaunch& launch, const Products& products) {
  return launch.tokens == kKnownTokens ? known_type(products) : nullptr;
}

KernelId kernel_of(const MmaFewLaunch& launch, const Products& products) {
  if (const KnownType* const type = known_type(launch, products)) return *type->linear8;
  const uint32_t bits = *few_bits(products);
  const auto choose = [&](KernelId w4, KernelId w8, KernelId ggml) {
    return bits == 4 ? w4 : bits == 8 ? w8 : ggml;
  };
  switch (launch.tokens) {
    case 8:
      return choose(KernelId::mma_linear_w4_t8, KernelId::mma_linear_t8,
                    KernelId::mma_linear_ggml_t8);
    case 16:
      return choose(KernelId::mma_linear_w4_t16, KernelId::mma_linear_t16,
                    KernelId::mma_linear_ggml_t16);
    default:
      return choose(KernelId::mma_linear_w4_t32, KernelId::mma_linear_t32,
                    KernelId::mma_linear_ggml_t32);
  }
}

uint32_t order_of(const MmaFewLaunch& launch, const Products& products) {
  if (const KnownType* const type = known_type(launch, products)) return type->order;
  return is_ggml(products.front().weight) ? kRowsByLanesOfHalves : kRowsByLanes;
}

void record_products_of_some(Recorder& recorder, const Products& products,
                             const MmaFewLaunch& launch) {
  const Tensor& x = products.front().x;
  const QuantizedRows* const rows = quantize_rows(recorder, x, order_of(launch, products));
  if (rows == nullptr) return;
  MmaLinearParams p{};
  p.cols = static_cast<u32>(x.shape.back());
  p.tokens = rows_of(x);
  p.walk = launch.walk;
  const uint32_t groups = list_matrices(p, products, launch.rows);
  Plan plan = make_plan(kernel_of(launch, products),
                        {groups, groups_for(p.tokens, launch.tokens), 1}, launch.threads);
  plan.shared_bytes = launch.bytes;
  plan.set_params(p);
  bind_products(plan, products, *rows);
  recorder.record(plan);
}

bool are_many(const Platform& platform, const Products& products) {
  const uint32_t tokens = rows_of(products.front().x);
  if (tokens <= kFewTokensMax || tokens > kSomeTokensMax) return tokens > kFewTokensMax;
  return uint64_t{groups_of(products, kMmaGroupRows)} * tokens > platform.cores();
}

// Biases as one binding, from where the first of them begins.
Binding bind_biases(MmaLinearParams& p, const ProductBiases& biases) {
  if (biases.empty()) return {};
  Binding all = range_of(biases.front().bias, Access::kRead);
  size_t end = all.offset_bytes + all.size_bytes;
  for (const ProductBias& own : biases) {
    const Binding range = range_of(own.bias, Access::kRead);
    all.offset_bytes = std::min(all.offset_bytes, range.offset_bytes);
    end = std::max(end, range.offset_bytes + range.size_bytes);
  }
  all.size_bytes = end - all.offset_bytes;
  for (const ProductBias& own : biases) {
    p.has_bias |= 1u << own.product;
    p.bias_at[own.product] = (own.bias.offset_bytes - all.offset_bytes) / sizeof(float);
  }
  return all;
}

// Few tokens.
void record_products_of_few(Recorder& recorder, const Waiting& waiting) {
  const Products& products = waiting.products;
  const Chain& chain = waiting.chain;
  const bool normed = !chain.value.is_null();
  const bool sums = normed && can_sum(chain);
  if (normed && !sums) {
    recorder.record(chain.after_down ? plan_down_sum(chain, *waiting.down) : plan_sums(chain));
  }
  const MmaOneLaunch launch = launch_of(waiting, recorder.platform());
  MmaLinearParams p = linear_params(waiting, launch.walk);
  uint32_t groups = list_matrices(p, products, launch.walk.tiles * kMmaRows);
  if (products.size() == 1) {
    groups = launch.groups;
  } else {
    p.walk.full = groups;  // whatever the last of a matrix has
  }
  const Binding biases = bind_biases(p, waiting.biases);
  const OneKernels& kernels = kernels_of(products);
  Plan plan = make_plan(normed ? kernels.normed_linear : kernels.linear, {groups, p.tokens, 1},
                        launch.threads);
  plan.shared_bytes = launch.bytes;
  for (const ops::Linear& product : products) bind_weight(plan, product.weight);
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
  plan.bind(range_of(waiting.conv.op.weight, Access::kRead));
  plan.bind(range_of_state(waiting.conv.state, Access::kReadWrite));
  for (const ops::Linear& product : products) bind_output(plan, product.out);
  for (size_t i = products.size(); i < kMmaMatricesMax; ++i) plan.bind({});
  if (normed) {
    bind_output(plan, sums ? chain.sums[1] : Tensor{});
    bind_output(plan, chain.norm.out);
  }
  bind_output(plan, waiting.conv.op.out);
  plan.bind(biases);
  recorder.record(plan);
}

}  // namespace

const QuantizedRows* quantize_rows(Recorder& recorder, const Tensor& x, uint32_t order) {
  const QuantizedRows* const known = recorder.quantized().find(x, order);
  if (known != nullptr) return known;
  const Result<const QuantizedRows*> rows = recorder.quantized().add(x, order);
  if (!rows.ok()) {
    recorder.fail(rows.error());
    return nullptr;
  }
  QuantizeRowsParams p{};
  p.order = order;
  p.x_stride = row_stride(x);
  p.cols = static_cast<u32>(x.shape.back());
  p.wide = is_wide(x) ? 1 : 0;
  Plan plan = make_plan(KernelId::mma_quantize_rows,
                        {groups_for(p.cols / 8, kMmaThreads), rows_of(x), 1}, kMmaThreads);
  plan.set_params(p);
  plan.bind(range_of(x, Access::kRead));
  for (Binding out : {(*rows)->integers, (*rows)->sums}) {
    out.access = Access::kOverwrite;
    plan.bind(out);
  }
  recorder.record(plan);
  return *rows;
}

void record_products(Recorder& recorder, const Waiting& waiting) {
  const Products& products = waiting.products;
  const bool may_share = std::all_of(
      products.begin(), products.end(),
      [&](const ops::Linear& product) { return takes_many(recorder.platform(), product.weight); });
  const std::optional<MmaFewLaunch> few = few_launch(recorder.platform(), products);
  const bool many = may_share && are_many(recorder.platform(), products);
  const Chain& chain = waiting.chain;
  if (!chain.value.is_null() && rows_of(products.front().x) > kFewTokensMax) {
    const uint32_t of_many = is_ggml(products.front().weight) ? kRowsByHalves : kRowsForTeams;
    const uint32_t order = few ? order_of(*few, products) : many ? of_many : uint32_t{kRowsNone};
    record_chain(recorder, chain, chain.after_down ? &*waiting.down : nullptr, order);
    Waiting alone;
    alone.products = products;
    alone.biases = waiting.biases;
    return record_products(recorder, alone);
  }
  if (!few && !many) return record_products_of_few(recorder, waiting);
  if (few) {
    record_products_of_some(recorder, products, *few);
  } else {
    record_products_of_many(recorder, products);
  }
  for (const ProductBias& own : waiting.biases) {
    recorder.record(bias_plan(products[own.product].out, own.bias));
  }
}

}  // namespace moeflux::gpu
