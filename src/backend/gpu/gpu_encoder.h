// The Encoder of every GPU: operations wait for each other (fusion.h), planners make launches of
// them (planners.h), and a recorder hands these to a platform's executor (recorder.h).
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "backend/encoder.h"
#include "backend/gpu/expert_tables.h"
#include "backend/gpu/planners.h"
#include "backend/gpu/recorder.h"
#include "backend/gpu/waiting.h"

namespace moeflux::gpu {

class GpuEncoder : public Encoder {
 public:
  /// The platform must outlive the encoder; `scratch` is what scratch() hands out.
  GpuEncoder(Platform& platform, std::unique_ptr<Executor> executor,
             std::unique_ptr<Buffer> scratch);
  ~GpuEncoder() override;

  Tensor scratch(const Shape& shape, DType dtype) override;
  size_t scratch_mark() const override { return recorder_.scratch_mark(); }
  void scratch_release(size_t mark) override { recorder_.scratch_release(mark); }
  void keep_alive(std::unique_ptr<Retained> resource) override;

  void write(Tensor to, std::span<const std::byte> from) override;
  Status read(std::span<std::byte> to, Tensor from) override;

  CopyId copy_beside(std::span<const BufferCopy> copies, EventId after) override;
  void await_copies(CopyId last) override;
  bool has_copied(CopyId last) override;

  void copy(Tensor out, Tensor x) override;
  void add(Tensor out, Tensor a, Tensor b) override;
  void mul_activated(Tensor out, Tensor x, Tensor gate, Activation activation) override;
  void rms_norm(Tensor out, Tensor x, Tensor weight, float eps) override;
  void layer_norm(Tensor out, Tensor x, Tensor weight, float eps) override;
  void add_bias(Tensor x, Tensor bias) override;
  void scale(Tensor out, Tensor x, float factor) override;
  void soft_cap(Tensor x, float cap) override;
  void top_rows(Tensor values, Tensor ids, Tensor x) override;
  void read_streams(Tensor out, const StreamGates& gates, Tensor x, Tensor logits,
                    const StreamGateOptions& options) override;
  void expand_streams(Tensor out, Tensor x, Tensor branch, const StreamGates& gates) override;
  void sum_gated(Tensor out, Tensor x, Tensor gates) override;
  void root_dots(Tensor out, Tensor a, Tensor b, const RootDotOptions& options) override;
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
  void attention(Tensor out, Tensor q, Tensor k, Tensor v, std::span<const KvRows> sequences,
                 const AttentionOptions& options) override;
  void select_keys(Tensor ids, Tensor q, Tensor k, Tensor head_weights,
                   std::span<const KvRows> sequences, const SelectOptions& options) override;
  void pool_rows(Tensor out, Tensor x, const PoolGates& gates, Tensor positions,
                 std::span<const StateRows> sequences, int64_t unit) override;
  void latent_attention(Tensor out, Tensor q, Tensor latent, Tensor positions,
                        std::span<const KvRows> sequences, const LatentHeads& heads) override;

  void causal_conv(Tensor out, Tensor x, Tensor weight, const ConvOptions& options,
                   std::span<const StateRows> sequences) override;
  void gated_delta(Tensor out, Tensor qkv, Tensor a, Tensor b, Tensor a_log, Tensor dt_bias,
                   std::span<const StateRows> sequences, const GatedDeltaOptions& options) override;
  void selective_scan(Tensor out, Tensor xbc, Tensor dt, const ScanWeights& weights,
                      std::span<const StateRows> sequences, const ScanOptions& options) override;

  void route(const Routes& out, Tensor logits, const RouterOptions& options) override;
  void expert_ffn(Tensor slots, Tensor intermediate, Tensor x, const Routes& routes,
                  std::span<const ExpertWeights> ready, const GluOptions& glu) override;
  void experts_stay(const std::shared_ptr<const std::vector<ExpertWeights>>& experts,
                    const ExpertMemory& memory) override;
  void experts_moved(const std::vector<ExpertWeights>& experts,
                     std::span<const size_t> which) override;
  void combine_experts(Tensor out, Tensor slots, const Routes& routes) override;

  EventId submit() override;
  Status wait(EventId event) override;

 private:
  /// The action for an operation. If it joins or waits, it has been added to the waiting ones; if
  /// it waits alone, the others have been launched.
  template <class Op>
  Action fuse(const Op& op);
  /// Launches what waits.
  void flush();
  /// Launches what waits for a table that the next one may take the place of.
  void flush_tables();
  /// Launches what waits but a network for every token.
  void flush_routes();
  /// Launches what waits, then the plan.
  void record(const Plan& plan);
  // Ops along the sequence are these for each sequence.
  struct AttendedRows {
    Tensor out;
    Tensor q;
    Tensor k;
    Tensor v;  // null: values are parts of keys
    KvView kv;
    AttentionOptions options;
  };
  void attend_rows(const AttendedRows& rows);
  void attend(const AttendedRows& rows);
  /// All rows choose their keys.
  void attend_selected(const AttendedRows& rows);
  /// With keys of pools.
  void attend_pooled(const AttendedRows& rows);
  /// Places the tables of pages and writes keys and values to them. False where nothing is left to
  /// do.
  bool begin_attention(AttentionHeads& heads, const Tensor& k, const Tensor& v);
  void write_heads(const HeadsOp& op);
  /// The same of keys alone: what waits of other heads goes on waiting.
  void write_keys(const HeadsOp& op);
  /// The pages with a row a key.
  KvView append_index_keys(const HeadsOp& op, const SelectOptions& options);
  struct GatheredTables {
    Binding k;
    Binding v;
  };
  bool place_gathered(const GatheredPages& pages, GatheredTables& tables);
  void attend_latent(const Tensor& out, const Tensor& q, const Tensor& latent,
                     const Tensor& positions, const KvRows& sequence, const LatentHeads& heads);
  void convolve(const ConvOp& op);
  /// Places the states of several sequences as a table, in place of one state; what waits is
  /// recorded before.
  bool place_states(std::span<const StateRows> sequences, Tensor& state, StateTable& states);
  /// False, and a sticky kUnsupported, when no kernel reads the weight as it lies.
  bool supports(const char* op, const Weight& weight);
  /// Two launches, with the routes and the network that wait if these can be part of them.
  void launch_few_slots(const ExpertLaunch& launch, const ExpertTensors& tensors);

  Recorder recorder_;
  Waiting waiting_;
  ExpertTables tables_;
  std::vector<Tensor> pooled_pages_;
};

}  // namespace moeflux::gpu
