// Planners: from operations to launches. Plans are pure; what takes several launches, tables or
// workspace records them. Nothing that waits may be left when one is recorded.
#pragma once

#include <optional>

#include "backend/gathered_pages.h"
#include "backend/gpu/expert_launch.h"
#include "backend/gpu/fusion.h"
#include "backend/gpu/plan.h"
#include "backend/gpu/recorder.h"

namespace moeflux::gpu {

// --- Rows: rows_plans.cc, top_plans.cc ---

Plan plan_copy(const Tensor& out, const Tensor& x);
Plan plan_add(const AddOp& op);
Plan plan_scale(const Tensor& out, const Tensor& x, float factor);
Plan plan_soft_cap(const Tensor& x, float cap);
Plan plan_add_bias(const Tensor& x, const Tensor& bias);
Plan plan_gate(const GateOp& op);
Plan plan_glu(const Tensor& out, const Tensor& gate, const Tensor& up, const GluOptions& options);
/// A gate may follow where rows are narrow; null: none.
Plan plan_norm(const NormOp& op, const Tensor& gate, Activation activation);
Plan plan_layer_norm(const NormOp& op);
Plan plan_rope(const RopeOp& op);
void record_top_rows(Recorder& recorder, const Tensor& values, const Tensor& ids, const Tensor& x);

// --- Residuals of several streams: stream_plans.cc ---

struct ReadStreamsOp {
  Tensor out;
  const StreamGates& gates;
  Tensor x;
  Tensor logits;
  const StreamGateOptions& options;
};
Plan plan_read_streams(const ReadStreamsOp& op);
struct ExpandOp {
  Tensor out;
  Tensor x;
  Tensor branch;
  const StreamGates& gates;
};
Plan plan_expand_streams(const ExpandOp& op);
Plan plan_sum_gated(const Tensor& out, const Tensor& x, const Tensor& gates);
Plan plan_root_dots(const Tensor& out, const Tensor& a, const Tensor& b,
                    const RootDotOptions& options);

// --- Sums: chain_plans.cc, down_sum_plans.cc ---

/// The sums of a chain, which down products in a launch of their own go before.
Plan plan_sums(const Chain& chain);
/// The sums of a chain with the down products before it.
Plan plan_down_sum(const Chain& chain, const DownOp& down);
/// The whole chain; with `down`, the products that wait for it.
void record_chain(Recorder& recorder, const Chain& chain, const DownOp* down);

// --- Heads and attention: heads_plans.cc, attention_plans.cc, latent_plans.cc ---

/// Heads that attention does not follow.
void record_heads(Recorder& recorder, const AllHeads& all);
struct HeadsOp {
  Tensor q;  // null: only keys and values
  Tensor k;
  Tensor v;  // null: values are parts of keys
  const KvView& kv;
  Binding k_table;
  Binding v_table;
};
/// Appends k and v to the pages, with what waits for them and q.
Plan plan_write_heads(const Recorder& recorder, const AllHeads& waiting, const HeadsOp& op);

/// Attention once its keys and values are in their pages.
struct AttentionHeads {
  Tensor out;
  Tensor q;
  int64_t kv_heads = 0;
  const KvView& kv;
  AttentionOptions options;
  Binding k_table;
  Binding v_table;
  bool may_leave_tiles = false;  // the next launch merges tiles of splits, too
  bool are_all_new = false;      // the last launch has written keys before the queries' own, too
};
/// The result of the launches of attention, before a gate.
struct AttentionResult {
  AttentionParams params{};
  Binding partials;                 // unless a group walks all parts: what has to be merged
  std::optional<AttentionOp> last;  // a launch that is not recorded yet, as a gate may join it
};
/// Records all launches but one that a gate may join. False if the recorder fails.
bool record_attention(Recorder& recorder, const AttentionHeads& heads, AttentionResult& result);
/// The launch that merges parts.
AttentionOp merge_op(const AttentionHeads& heads, const AttentionResult& result);
/// With the gate, which joins the last launch.
Plan plan_gated(const AttentionOp& attention, const Tensor& gate);

/// Whether latent attention has kernels for these few tokens.
bool fits_latent_kernels(const Tensor& q, const Tensor& latent, const LatentHeads& heads);
struct LatentOp {
  Tensor out;
  Tensor q;
  Tensor latent;
  Tensor positions;
  const KvView& kv;
  const LatentHeads& heads;
  Tensor query;  // scratch, [n, heads, rank + rope_dim]
  Tensor mixed;  // and [n, heads, rank]
};
void record_latent_attention(Recorder& recorder, const LatentOp& op);

// --- Selected keys: select_plans.cc ---

/// False where candidates or heads are larger than the kernels take.
bool fits_select_kernels(const Tensor& q, const SelectOptions& options);
/// Rows that see more candidates than they choose, and whose keys are in their pages.
struct SelectOp {
  Tensor ids;
  Tensor q;
  Tensor head_weights;   // null: none
  const KvView& keys;    // with a row a key
  int64_t position = 0;  // of the first row
  SelectOptions options;
  Binding k_table;
};
void record_select(Recorder& recorder, const SelectOp& op);
/// The rows of a sequence.
struct PoolOp {
  Tensor out;
  Tensor x;
  PoolGates gates;
  Tensor positions;
  Tensor state;
  int64_t unit = 0;
};
Plan plan_pool(const PoolOp& op);
/// The chosen keys and values of a row, into pages of its own.
struct GatherOp {
  const KeySelection& selected;
  const KvView& kv;  // the selection's first row is at its length
  int64_t row = 0;
  const GatheredPages& pages;
  bool has_values = false;  // which are no parts of keys
  Binding k_table;
  Binding v_table;
};
Plan plan_gather(const GatherOp& op);
/// The keys of pools and of tokens that the token at `position` attends to, into a page of its own.
struct GatherPooledOp {
  const PooledKeys& pooled;
  const KvView& pools;  // with a row a key
  const KvView& kv;
  int64_t row = 0;       // of the ids
  int64_t position = 0;  // of the token
  int64_t window = 0;
  Tensor keys;
  Binding pool_table;
  Binding k_table;

  int64_t begin() const { return first_seen(position, window, false); }
  int64_t num_keys() const { return pooled.count_at(position) + position + 1 - begin(); }
};
Plan plan_gather_pooled(const GatherPooledOp& op);

// --- Recurrent layers: delta_plans.cc, conv_plans.cc ---

/// The writes of a launch with these states: all of them, or nothing but the tensors it binds.
inline Writes writes_of(const StateTable& states) {
  return states.is_null() ? Writes::kBound : Writes::kByAddress;
}
/// Many tokens, or heads of other sizes than the kernel for one knows.
Plan plan_delta(const DeltaOp& op, const Platform& platform);
/// One token of each sequence; the gate, of SiLU or sigmoid, follows the norm. Null: none.
Plan plan_delta_one(const Recorder& recorder, const Delta& delta, const Tensor& gate,
                    Activation activation);
Plan plan_scan(const ScanOp& op, const Platform& platform);
void record_conv(Recorder& recorder, const ConvOp& op);

// --- Products: matmul_plans.cc, mma_linear_plans.cc ---

Plan plan_embed(const Tensor& out, const Weight& table, const Tensor& token_ids);
Plan plan_linear(const Tensor& out, const Tensor& x, const Weight& weight);
/// One token times few rows of plain numbers, made from `made` on the way unless that is null;
/// nothing if rows are too many or too long for it.
std::optional<Plan> plan_few_rows(const FewRowsOp& op, const Weight& weight, const Chain* made,
                                  const Platform& platform);
Plan plan_head_linear(const Tensor& out, const Tensor& x, const Weight& weight,
                      const HeadRows& rows);
Plan plan_head_linear_transposed(const Tensor& out, const Tensor& x, const Weight& weight,
                                 const HeadRows& rows);
/// Products on matrix units, with the chain that makes their x and a convolution.
void record_products(Recorder& recorder, const Waiting& waiting);
/// x as integers: as the last such launch left them, if nothing was written to x since. Null, and
/// the recorder fails, if there is no room. `by_halves`: as products of GGML's types read them.
const QuantizedRows* quantize_rows(Recorder& recorder, const Tensor& x, bool by_halves);

// --- Experts: expert_plans.cc, mma_expert_plans.cc, few_slots_plans.cc ---

RouteOp route_op(const Routes& out, const Tensor& logits, const RouterOptions& options);
Plan plan_route(const RouteOp& op);
Plan plan_combine(const CombineOp& op);
/// Completes a launch whose table is placed.
void set_slots(const Routes& routes, ExpertLaunch& launch);
/// True when plan_fetch() is to be recorded before: then experts are read where it leaves them.
bool fetches(const ExpertLaunch& launch);
Plan plan_fetch(const Recorder& recorder, const ExpertLaunch& launch);
/// True when record_few_slots() has the launches of these experts, otherwise record_experts() has.
bool takes_few_slots(const ExpertLaunch& launch);
void record_experts(Recorder& recorder, ExpertLaunch& launch, const ExpertTensors& tensors);
void record_mma_experts(Recorder& recorder, const ExpertLaunch& launch,
                        const ExpertTensors& tensors);
/// True when both launches of few slots may choose the routes anew, which the first writes down;
/// `network`: what else they compute, null tensors if nothing.
bool may_choose(const FewSlots& slots, const RouteOp& route, const FfnOp& network);
/// True when they may compute the network besides.
bool may_compute(const FewSlots& slots, const FfnOp& ffn);
/// The down products, where they may wait for the sum of the slots; otherwise all is recorded.
std::optional<DownOp> record_few_slots(Recorder& recorder, const FewSlots& slots);
/// The network alone.
void record_ffn(Recorder& recorder, const FfnOp& ffn);
std::optional<DownOp> down_that_waits(const Plan& down, const MmaExpertsOneParams& p,
                                      const FewSlots& slots, const Platform& platform);

}  // namespace moeflux::gpu
