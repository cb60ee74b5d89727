#include "backend/gpu/launch/fusion.h"

#include <algorithm>
#include <string_view>
#include <type_traits>

#include "backend/gpu/launch/mma_plans.h"
#include "backend/gpu/launch/plan_building.h"
#include "backend/gpu/ops/plans.h"

namespace moeflux::gpu {
namespace {

// --- Operands ---

// Calls visit(use, tensor) for each. Weights are constants that nothing writes.
template <typename Op, typename Visit>
void for_each_tensor(const Op& op, const Visit& visit) {
  op.operands([&](Use use, std::string_view /*name*/, const auto& x) {
    if constexpr (std::is_same_v<decltype(x), const Tensor&>) visit(use, x);
  });
}

// True when the operation reads or writes a byte of the tensor.
template <typename Op>
bool touches(const Op& op, const Tensor& tensor) {
  bool found = false;
  for_each_tensor(op, [&](Use, const Tensor& own) { found = found || have_overlap(own, tensor); });
  return found;
}

// True when the operation writes nothing that it reads as well.
template <typename Op>
bool keeps_inputs(const Op& op) {
  bool keeps = true;
  for_each_tensor(op, [&](Use use, const Tensor& written) {
    if (use != Use::kWrite) return;
    for_each_tensor(op, [&](Use other, const Tensor& read) {
      keeps = keeps && (other == Use::kWrite || !have_overlap(written, read));
    });
  });
  return keeps;
}

// --- Chains ---

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

// True when a chain may write `out` besides.
bool fits_chain(const Chain& chain, const Tensor& out) {
  const auto fits = [&](const Tensor& other) { return are_same_or_apart(out, other); };
  return can_chain(out) && fits(chain.base) && !have_overlap(out, chain.slots) &&
         !have_overlap(out, chain.slot_weights) &&
         std::all_of(chain.addends.begin(), chain.addends.end(), fits) &&
         std::all_of(chain.sums.begin(), chain.sums.end(), fits);
}

// True when the down products that wait may write `out` besides, and add `addend`. A group reads
// what other groups may write by then, but for the rows of the sum that are its own.
bool fits_down(const Waiting& waiting, const Tensor& out, const Tensor& addend) {
  const DownOp& down = *waiting.down;
  const bool is_made_here = !addend.is_null() && are_same(addend, down.shared_out);
  if (is_made_here && are_same(waiting.chain.addends[0], addend)) return false;
  const Binding written = range_of(out, Access::kWrite);
  for (uint32_t i = 0; i < down.plan.num_bindings; ++i) {
    if (have_overlap(written, down.plan.bindings[i])) return false;
  }
  return are_same(addend, down.shared_out) ||
         (!have_overlap(addend, down.slots) && !have_overlap(addend, down.shared_out));
}

// The side of the sum that is added to the chain's value.
const Tensor& addend_of(const Chain& chain, const ops::Add& op) {
  return are_same(op.a, chain.value) ? op.b : op.a;
}

// --- Heads ---

bool is_norm_of_heads(const ops::RmsNorm& op) {
  return op.x.shape.rank() == 3 && op.x.shape.back() <= int64_t{kNormNarrowCols};
}
Heads heads_of(const ops::RmsNorm& op) { return {.x = op.out, .norm = op, .rope = {}}; }
Heads heads_of(const ops::Rope& op) { return {.x = op.x, .norm = {}, .rope = op}; }

bool is_apart(const Heads& heads, const Tensor& tensor) {
  return !touches(heads.norm, tensor) && !touches(heads.rope, tensor);
}

bool fits_beside(const AllHeads& waiting, const Heads& heads) {
  return waiting.size() < 3 && std::all_of(waiting.begin(), waiting.end(), [&](const Heads& other) {
           return is_apart(other, heads.x) &&
                  (heads.norm.x.is_null() || is_apart(other, heads.norm.x));
         });
}

bool share_rope(const Heads& a, const Heads& b) {
  return !a.has_rope() || !b.has_rope() ||
         (are_same(a.rope.positions, b.rope.positions) &&
          are_same(a.rope.inverse_frequencies, b.rope.inverse_frequencies) &&
          a.rope.options == b.rope.options);
}

// True when `columns` are x or some columns of it.
bool are_columns_of(const Tensor& x, const Tensor& columns) {
  if (x.buffer != columns.buffer || columns.shape.rank() != 3 || x.shape.rank() != 3 ||
      columns.offset_bytes < x.offset_bytes) {
    return false;
  }
  const auto first = static_cast<int64_t>((columns.offset_bytes - x.offset_bytes) / sizeof(float));
  return first + columns.dim(2) <= x.dim(2) && are_same(x.slice(2, first, columns.dim(2)), columns);
}

// The heads that wait to turn, or null.
template <class All>
auto find_unturned(All& heads, const Tensor& x) -> decltype(heads.begin()) {
  for (auto& own : heads) {
    if (!own.has_rope() && are_columns_of(own.x, x)) return &own;
  }
  return nullptr;
}

// --- Products ---

// True when the launch of products may write `out` besides. An operand that an earlier launch
// computes may overlap `out`: its memory may have been reused by then.
bool is_apart(const Waiting& waiting, const Tensor& out) {
  const Chain& chain = waiting.chain;
  bool apart = !have_overlap(out, chain.value) && !have_overlap(out, chain.norm.out);
  if (can_sum(chain)) {
    apart = apart && !have_overlap(out, chain.base) && !have_overlap(out, chain.addends[0]);
  }
  for (const ops::Linear& other : waiting.products) {
    apart = apart && !touches(other, out);
  }
  return apart;
}

// True for a norm without weights that few rows can make, however long it is.
bool may_wait_for_few_rows(const ops::RmsNorm& op) {
  const auto fits = [](const Tensor& tensor) { return tensor.is_contiguous() && is_wide(tensor); };
  return rows_of(op.x) == 1 && op.x.shape.back() % 8 == 0 && fits(op.x) && fits(op.out);
}

// True when x is the norm that waits.
bool is_norm_of(const Chain& chain, const Tensor& x) {
  const Tensor& normed = chain.norm.out;
  return !normed.is_null() && are_same(normed, x) && !have_overlap(normed, chain.value);
}

// Products of few tokens make a norm by themselves; before those of more it has a launch that makes
// integers, too.
bool may_make_norm(const Tensor& x) {
  const uint32_t rows = rows_of(x);
  if (rows <= kFewTokensMax) return x.shape.back() <= int64_t{kMmaMadeColsMax};
  return rows <= kMmaFewTokensMost;
}

const ops::Linear* find_product(const Products& products, const Tensor& out) {
  const auto found = std::find_if(products.begin(), products.end(),
                                  [&](const ops::Linear& own) { return are_same(own.out, out); });
  return found == products.end() ? nullptr : found;
}

bool fits_product(const Waiting& waiting, const ops::MulActivated& op) {
  return op.activation == Activation::kSigmoid && are_same(op.x, op.gate) && rows_of(op.x) == 1 &&
         op.out.is_contiguous() && is_apart(waiting, op.out) &&
         find_product(waiting.products, op.x) != nullptr;
}

bool fits_attention(const AttentionOp& attention, const ops::MulActivated& op) {
  return op.activation == Activation::kSigmoid && are_same(attention.out, op.x) &&
         are_same(op.x, op.out) && op.gate.shape == op.x.shape && is_wide(op.gate) &&
         !have_overlap(op.gate, op.out);
}

}  // namespace

bool can_norm(const Chain& chain, const Tensor& x) {
  return is_norm_of(chain, x) && !chain.norm.weight.is_null();
}

bool can_sum(const Chain& chain) {
  if (!chain.slots.is_null() || chain.adds > 1) return false;
  for (const Tensor& part : {chain.base, chain.addends[0]}) {
    if (have_overlap(chain.norm.out, part) || have_overlap(chain.sums[1], part)) return false;
  }
  return true;
}

bool can_write_heads(const AllHeads& heads, const Tensor& q, const Tensor& k, const Tensor& v) {
  const bool fits = std::all_of(heads.begin(), heads.end(), [&](const Heads& own) {
    return (are_same(own.x, q) || are_same(own.x, k) || are_same(own.x, v)) &&
           (!own.has_norm() || are_same(own.norm.x, own.x)) &&
           std::all_of(heads.begin(), heads.end(),
                       [&](const Heads& other) { return share_rope(own, other); });
  });
  return fits && !have_overlap(q, k) && !have_overlap(q, v) && !have_overlap(k, v);
}

bool has_few_tokens(const DeltaOp& delta) {
  const ops::GatedDelta& op = delta.op;
  const GatedDeltaOptions& o = op.options;
  const uint32_t tokens = delta.states.tokens_each(rows_of(op.qkv));
  return tokens > 0 && tokens <= kDeltaOneTokensMax && o.key_dim == int64_t{kDeltaOneDim} &&
         o.value_dim == int64_t{kDeltaOneDim} && is_wide(op.qkv) && delta.states.are_wide &&
         is_wide(op.out) && (!o.row_decay || (is_wide(op.a) && is_wide(op.dt_bias)));
}

// --- Operations that join ---

bool fits(const Waiting& waiting, const ops::Add& op) {
  const Chain& chain = waiting.chain;
  if (chain.adds >= 2 || (!are_same(op.a, chain.value) && !are_same(op.b, chain.value))) {
    return false;
  }
  const Tensor& addend = addend_of(chain, op);
  return can_chain(addend) && fits_chain(chain, op.out) &&
         (!chain.after_down || fits_down(waiting, op.out, addend)) &&
         are_same_or_apart(op.out, addend) &&
         std::none_of(chain.sums.begin(), chain.sums.end(), [&](const Tensor& sum) {
           return have_overlap(sum, addend);  // all addends are read before any sum is written
         });
}

bool fits(const Waiting& waiting, const ops::CombineExperts& op) {
  const DownOp& down = *waiting.down;
  return may_wait(op, false) && are_same(down.slots, op.slots) &&
         are_same(down.slot_weights, op.routes.weights) &&
         !have_overlap(down.shared_out, op.routes.weights) && fits_down(waiting, op.out, {});
}

bool fits(const Waiting& waiting, const ops::RmsNorm& op) {
  const bool has_wide_weight = !op.weight.is_null() && is_wide(op.weight);
  if (waiting.state() == State::kHeads) {
    return is_norm_of_heads(op) && fits_beside(waiting.heads, heads_of(op));
  }
  if (waiting.state() == State::kDelta) {
    return has_wide_weight && are_same(waiting.delta.op.out, op.x) && are_same(op.x, op.out);
  }
  return has_wide_weight && are_same(waiting.chain.value, op.x) &&
         fits_chain(waiting.chain, op.out);
}

bool fits(const Waiting& waiting, const ops::MulActivated& op) {
  if (waiting.state() == State::kAttention) return fits_attention(*waiting.attention, op);
  if (waiting.state() == State::kProducts) return fits_product(waiting, op);
  const bool is_delta = waiting.state() == State::kDeltaNorm;
  const bool is_heads = waiting.heads.size() == 1 && !waiting.heads[0].has_rope();
  const bool has_unit = op.activation == Activation::kSilu || op.activation == Activation::kSigmoid;
  if (is_delta ? !has_unit : !is_heads) return false;
  const Tensor& x = is_delta ? waiting.delta.op.out : waiting.heads[0].x;
  return are_same(x, op.x) && are_same(op.x, op.out) && op.gate.shape == op.x.shape &&
         !have_overlap(op.gate, op.out) &&
         (is_heads || (is_wide(op.gate) && !have_overlap(op.gate, waiting.delta.states.state)));
}

bool fits(const Waiting& waiting, const ops::Rope& op) {
  return find_unturned(waiting.heads, op.x) != nullptr ||
         (may_wait(op, false) && fits_beside(waiting.heads, heads_of(op)));
}

bool fits(const Waiting& waiting, const ops::Linear& op) {
  const Products& products = waiting.products;
  const bool joins = products.empty()
                         ? may_make_norm(op.x) && can_norm(waiting.chain, op.x)
                         : products.size() < kMmaMatricesMax && are_same(products[0].x, op.x) &&
                               is_ggml(products[0].weight) == is_ggml(op.weight);
  return joins && is_apart(waiting, op.out) && keeps_inputs(op);
}

bool fits(const Waiting& waiting, const FewRowsOp& few) {
  const ops::Linear& op = few.op;
  return is_norm_of(waiting.chain, op.x) && can_sum(waiting.chain) && is_apart(waiting, op.out) &&
         keeps_inputs(op);
}

bool fits(const Waiting& waiting, const ops::AddBias& op) {
  if (waiting.few_rows) return are_same(waiting.few_rows->out, op.x);
  const ProductBiases& biases = waiting.biases;
  const ops::Linear* const product = find_product(waiting.products, op.x);
  return product != nullptr && waiting.conv.op.out.is_null() &&
         std::none_of(biases.begin(), biases.end(), [&](const ProductBias& other) {
           return &waiting.products[other.product] == product ||
                  other.bias.buffer != op.bias.buffer;
         });
}

bool fits(const Waiting& waiting, const ops::CausalConv& op) {
  const Tensor& state = op.sequences.front().state;
  return op.options.activation == Activation::kSilu && op.options.bias.is_null() &&
         rows_of(op.x) == 1 && op.weight.dim(1) > 1 &&
         op.weight.dim(1) <= int64_t{kConvOneTapsMax} && op.out.is_contiguous() &&
         is_apart(waiting, op.out) && is_apart(waiting, state) && keeps_inputs(op) &&
         find_product(waiting.products, op.x) != nullptr;
}

// --- Operations that may wait ---

bool may_wait(const ops::Add& op, bool) {
  return rows_of(op.out) > 0 && can_chain(op.out) && can_chain(op.a) && can_chain(op.b) &&
         are_same_or_apart(op.out, op.a) && are_same_or_apart(op.out, op.b);
}

bool may_wait(const ops::CombineExperts& op, bool) {
  return rows_of(op.out) > 0 && can_chain(op.out) && can_chain(op.slots) && keeps_inputs(op);
}

bool may_wait(const ops::RmsNorm& op, bool matrix_units) {
  if (is_norm_of_heads(op)) return true;
  if (!matrix_units) return false;
  if (op.weight.is_null()) return may_wait_for_few_rows(op);
  return is_wide(op.weight) && rows_of(op.x) <= kFewTokensMax && can_chain(op.x) &&
         can_chain(op.out);
}

bool may_wait(const ops::Rope& op, bool) { return op.x.dim(2) <= int64_t{kNormNarrowCols}; }

bool may_wait(const DeltaOp& op, bool) { return has_few_tokens(op); }

// For the experts, whose launch then chooses it.
bool may_wait(const ops::Route& op, bool) {
  const RouteParams p = route_params(op);
  return p.thread_experts != 0 && p.tokens * p.top_k <= kMmaDirectSlotsMax;
}

// --- The state after an operation has begun to wait ---

void add(Waiting& waiting, const ops::Add& op) {
  Chain& chain = waiting.chain;
  if (waiting.state() == State::kSums) {
    chain.addends[chain.adds] = addend_of(chain, op);
  } else {
    chain.base = op.a;
    chain.addends[0] = op.b;
  }
  chain.sums[++chain.adds] = chain.value = op.out;
}

void add(Waiting& waiting, const ops::CombineExperts& op) {
  Chain& chain = waiting.chain;
  chain.after_down = waiting.down.has_value();
  chain.slots = op.slots;
  chain.slot_weights = op.routes.weights;
  chain.sums[0] = chain.value = op.out;
}

void add(Waiting& waiting, const ops::RmsNorm& op) {
  if (waiting.state() == State::kDelta) {
    waiting.delta.norm = op;
  } else if (waiting.state() != State::kSums && is_norm_of_heads(op)) {
    waiting.heads.push_back(heads_of(op));
  } else {
    if (waiting.state() != State::kSums) waiting.chain.base = waiting.chain.value = op.x;
    waiting.chain.norm = op;
  }
}

void add(Waiting& waiting, const ops::Rope& op) {
  Heads* const heads = find_unturned(waiting.heads, op.x);
  if (heads == nullptr) return waiting.heads.push_back(heads_of(op));
  heads->rope = op;
}

void add(Waiting& waiting, const ops::Linear& op) { waiting.products.push_back(op); }

void add(Waiting& waiting, const ops::AddBias& op) {
  if (waiting.few_rows) {
    FewRows& few = *waiting.few_rows;
    few.params.has_bias = 1;
    few.plan.set_params(few.params);
    few.plan.bindings[few.plan.num_bindings - 1] = range_of(op.bias, Access::kRead);
    return;
  }
  const ops::Linear* const product = find_product(waiting.products, op.x);
  waiting.biases.push_back({op.bias, static_cast<uint32_t>(product - waiting.products.begin())});
}

void add(Waiting& waiting, const ops::CausalConv& op) {
  const ops::Linear* const product = find_product(waiting.products, op.x);
  const Tensor state = op.sequences.empty() ? Tensor{} : op.sequences.front().state;
  waiting.conv = {op, state, static_cast<uint32_t>(product - waiting.products.begin())};
}

void add_to_product(Waiting& waiting, const ops::MulActivated& op) {
  ops::CausalConv gate;
  gate.out = op.out;
  gate.x = op.x;
  add(waiting, gate);
}

void add(Waiting& waiting, const DeltaOp& op) { waiting.delta = op; }
void add(Waiting& waiting, const ops::Route& op) { waiting.route = op; }
void add(Waiting& waiting, const FfnOp& op) { waiting.ffn = op; }

}  // namespace moeflux::gpu
