// The Encoder of every GPU: turns ops into launch plans for a platform's executor. Knows shapes,
// strides and formats; knows nothing about a vendor.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "backend/encoder.h"
#include "backend/gpu/device_tables.h"
#include "backend/gpu/executor.h"
#include "backend/gpu/plan.h"
#include "backend/gpu/split_rows.h"
#include "backend/gpu/waiting.h"

namespace moeflux::gpu {

class GpuEncoder : public Encoder {
 public:
  /// The platform must outlive the encoder; `scratch` is what scratch() hands out.
  GpuEncoder(Platform& platform, std::unique_ptr<Executor> executor,
             std::unique_ptr<Buffer> scratch);
  ~GpuEncoder() override;

  Tensor scratch(const Shape& shape, DType dtype) override;
  size_t scratch_mark() const override { return scratch_used_; }
  void scratch_release(size_t mark) override { scratch_used_ = mark; }
  void keep_alive(std::unique_ptr<Retained> resource) override;

  void write(Tensor to, std::span<const std::byte> from) override;
  Status read(std::span<std::byte> to, Tensor from) override;

  void copy(Tensor out, Tensor x) override;
  void add(Tensor out, Tensor a, Tensor b) override;
  void mul_activated(Tensor out, Tensor x, Tensor gate, Activation activation) override;
  void rms_norm(Tensor out, Tensor x, Tensor weight, float eps) override;
  void add_bias(Tensor x, Tensor bias) override;
  void scale(Tensor out, Tensor x, float factor) override;
  void soft_cap(Tensor x, float cap) override;
  void top_rows(Tensor values, Tensor ids, Tensor x) override;
  void gated_ffn(Tensor out, Tensor x, const GluWeights& weights, Tensor out_gate,
                 const GluOptions& options) override;
  void glu(Tensor out, Tensor gate, Tensor up, const GluOptions& options) override;

  void embed(Tensor out, const Weight& table, Tensor token_ids) override;
  void linear(Tensor out, Tensor x, const Weight& weight) override;
  void head_linear(Tensor out, Tensor x, const Weight& weight, const HeadRows& rows) override;
  void head_linear_transposed(Tensor out, Tensor x, const Weight& weight,
                              const HeadRows& rows) override;

  void rope(Tensor x, Tensor positions, Tensor inverse_frequencies,
            const RopeOptions& options) override;
  void attention(Tensor out, Tensor q, Tensor k, Tensor v, const KvView& kv,
                 const AttentionOptions& options) override;
  void latent_attention(Tensor out, Tensor q, Tensor latent, Tensor positions, const KvView& kv,
                        const LatentHeads& heads) override;

  void causal_conv(Tensor out, Tensor x, Tensor weight, Tensor state) override;
  void gated_delta(Tensor out, Tensor qkv, Tensor a, Tensor b, Tensor a_log, Tensor dt_bias,
                   Tensor state, const GatedDeltaOptions& options) override;

  void route(const Routes& out, Tensor logits, const RouterOptions& options) override;
  void expert_ffn(Tensor slots, Tensor intermediate, Tensor x, const Routes& routes,
                  std::span<const ExpertWeights> ready, const GluOptions& glu) override;
  void experts_stay(const std::shared_ptr<const std::vector<ExpertWeights>>& experts) override;
  void combine_experts(Tensor out, Tensor slots, const Routes& routes) override;

  EventId submit() override;
  Status wait(EventId event) override;

 private:
  struct InFlight {
    EventId event{};
    std::unique_ptr<Retained> resource;
  };
  /// What the launches of one expert_ffn share.
  struct ExpertLaunch;
  struct StayingExperts;
  struct FewSlots;
  /// Routes that the launch of the experts may choose itself.
  struct WaitingRoute {
    RouteParams params{};
    Routes routes;
    Tensor logits;
    Tensor correction_bias;
    Tensor expert_scale;
  };
  /// A network that may share the launches of the experts.
  struct WaitingFfn {
    Tensor out;
    Tensor x;
    Tensor out_gate;
    Tensor intermediate;
    GluWeights weights;
    GluOptions glu;
  };
  /// The down products of few slots, which may go on through the sum of the slots.
  struct WaitingDown {
    Plan plan;  // what they are if no sum follows
    Tensor slots;
    Tensor slot_weights;
    Tensor shared_out;  // null: no shared expert
    uint32_t tokens = 0;
  };

  /// The last launch of attention, which may go on through a gate.
  struct WaitingAttention {
    Plan plan;  // with no gate, which is its last binding
    AttentionParams params{};
    Tensor out;
  };

  /// What attention computes once its keys and values are in their pages.
  struct AttentionHeads {
    Tensor out;
    Tensor q;
    int64_t kv_heads = 0;
    const KvView& kv;
    AttentionOptions options;
    Binding k_table;
    Binding v_table;
    bool may_leave_tiles = false;  // what follows merges the tiles of splits, too
  };

  /// False, and a sticky kUnsupported, when no kernel reads the weight as it lies.
  bool supports(const char* op, const Weight& weight);
  bool fail(Error error);
  void release_through(EventId event);
  uint64_t address_of(const Tensor& tensor) const;
  ExpertMatrix addresses_of(const Weight& weight, const Tensor& bias) const;
  void record_product(Plan& plan, const Tensor& out, const Tensor& x, const Weight& weight);
  /// One token; false if the rows are too many or too long for it.
  bool record_few_rows(const LinearParams& p, const Tensor& out, const Tensor& x,
                       const Weight& weight);

  /// Every plan goes through here: what waits comes first.
  void record(const Plan& plan);
  void flush_waiting();
  // An op joins what waits, or waits itself, or gives false: then nothing waits.
  bool start_chain(const Tensor& out, const Tensor& slots, const Routes& routes);
  bool join_chain(const Tensor& out, const Tensor& a, const Tensor& b);
  bool join_gate(const Tensor& out, const Tensor& x, const Tensor& gate, Activation activation);
  bool join_norm(const WaitingNorm& norm);
  bool join_delta(const WaitingNorm& norm);
  void record_delta(const WaitingDelta& delta, const Tensor& gate);
  /// True when the launch before the next one may write to it.
  bool has_just_written(const Tensor& tensor) const;
  void record_chain(const WaitingChain& chain);
  void record_sums(const WaitingChain& chain);
  void record_long_chain(const WaitingChain& chain);
  bool join_rope(const Tensor& x, const Tensor& positions, const Tensor& frequencies,
                 const RopeOptions& options);
  void add_heads(const WaitingHeads& heads);
  /// Appends k and v to the pages, with all that waits for them and q.
  void place_heads(const Tensor& q, const Tensor& k, const Tensor& v, const KvView& kv,
                   const Binding& k_table, const Binding& v_table);
  void record_each(const AllHeads& all);
  void record_rope(const Tensor& x, const Tensor& positions, const Tensor& frequencies,
                   const RopeOptions& options);
  bool join_conv(const Tensor& out, const Tensor& x, const Tensor& weight, const Tensor& state);
  void record_products(const Waiting& waiting);
  void record_add(const Tensor& out, const Tensor& a, const Tensor& b);
  void record_combine(const Tensor& out, const Tensor& slots, const Tensor& weights);
  void record_mul(const Tensor& out, const Tensor& x, const Tensor& gate, Activation activation);
  void record_norm(const WaitingNorm& norm, const Tensor& gate, Activation activation);
  /// Routes and a network that wait for the launch of the experts.
  void flush_experts();
  void record_route(const WaitingRoute& route);
  bool uses_mma(const Weight& weight) const;
  void add_mma_product(const Tensor& out, const Tensor& x, const Weight& weight);
  void record_products_of_many(const Products& products);
  /// x as integers: as the last such launch left them, if nothing was written to x since. Null, and
  /// the encoder fails, if there is no room.
  const SplitRows* split_rows(const Tensor& x);
  void record_split(const SplitRows& split);
  void forget_splits();
  void launch_mma_experts(const ExpertWeights& like, const ExpertLaunch& launch,
                          const Tensor& slots, const Tensor& intermediate, const Tensor& x,
                          const GluOptions& glu);
  void launch_few_slots(const ExpertWeights& like, const ExpertLaunch& launch, const Tensor& slots,
                        const Tensor& intermediate, const Tensor& x, const GluOptions& glu);
  void launch_ffn(const WaitingFfn& ffn);
  void launch(const FewSlots& s);
  Plan plan_step(MmaExpertsOneParams& p, const FewSlots& s, bool is_down) const;
  void record_or_keep(const Plan& down, const MmaExpertsOneParams& p, const FewSlots& s);
  /// True when the down products that wait may write `out` besides, and add `addend`.
  bool fits_down(const Tensor& out, const Tensor& addend) const;
  void record_down_sum(const WaitingChain& chain);
  /// Tables::place(), behind what waits for a table that this one might take the place of.
  Result<Binding> place_table();
  bool place_pages(std::span<const Tensor> pages, Binding& table);
  void await_gate(const Plan& plan, const AttentionParams& params, const Tensor& out);
  bool join_attention(const Tensor& out, const Tensor& x, const Tensor& gate,
                      Activation activation);
  bool take_partials(const AttentionParams& p, Binding& partials);
  bool record_many(const AttentionHeads& heads, AttentionParams& p, bool is_large,
                   Binding& partials);
  bool record_wide_tiles(const AttentionHeads& heads, AttentionParams& p, Binding& partials);
  /// Fills `p` in; unless a group walks all parts, the result is in `partials`, not in out. What
  /// is launched last may wait for a gate.
  bool record_attention(const AttentionHeads& heads, AttentionParams& p, Binding& partials);
  void record_latent_queries(const Tensor& query, const Tensor& q, const Tensor& latent,
                             const Tensor& positions, const KvView& kv, const LatentHeads& heads,
                             const Binding& k_table);
  void record_latent_values(const Tensor& out, const LatentHeads& heads,
                            const AttentionParams& attention, const Tensor& mixed,
                            const Binding& partials);
  bool check_expert(const ExpertWeights& expert);
  bool place_experts(std::span<const ExpertWeights> ready, size_t like, ExpertLaunch& launch,
                     StayingExperts* stay);
  /// Null unless the span is all of some experts that stay.
  StayingExperts* find_staying(std::span<const ExpertWeights> experts);
  void forget_absent_experts();
  static void find_stride(std::span<const ExpertWeights> experts,
                          std::span<const std::byte> entries, ExpertLaunch& launch);
  Result<Binding> keep_table(StayingExperts& stay);
  bool list_slots(const Routes& routes, ExpertLaunch& launch);
  void launch_any(const ExpertWeights& like, const ExpertLaunch& launch, const Tensor& slots,
                  const Tensor& intermediate, const Tensor& x, const GluOptions& glu);
  void launch_experts(const ExpertWeights& like, const ExpertLaunch& launch, const Tensor& slots,
                      const Tensor& intermediate, const Tensor& x, const GluOptions& glu);

  Platform& platform_;
  std::unique_ptr<Executor> executor_;
  std::unique_ptr<Buffer> scratch_;
  size_t scratch_used_ = 0;
  Waiting waiting_;
  Few<Binding, Plan::kBindingsMax> written_;  // by the last launch
  std::optional<WaitingRoute> waiting_route_;
  std::optional<WaitingFfn> waiting_ffn_;
  std::optional<WaitingAttention> waiting_attention_;
  std::optional<WaitingDown> waiting_down_;  // for a chain, or for what it waits for
  std::array<SplitRows, 2> splits_;  // of a layer's input and of what networks make in between
  size_t next_split_ = 0;
  DeviceTables tables_;
  Workspace workspace_;
  std::vector<std::unique_ptr<Retained>> recorded_;  // work that uses them is not submitted yet
  std::vector<InFlight> in_flight_;
  std::vector<std::byte> table_bytes_;
  std::vector<uint8_t> experts_done_;
  std::vector<StayingExperts> staying_;
  Status status_;
};

}  // namespace moeflux::gpu
