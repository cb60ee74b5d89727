// The Encoder of the reference device: executes each op in the call.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "backend/encoder.h"
#include "backend/host_buffer.h"

namespace moeflux {

class ReferenceEncoder : public Encoder {
 public:
  explicit ReferenceEncoder(ScratchArena arena) : arena_(std::move(arena)) {}

  Tensor scratch(const Shape& shape, DType dtype) override { return arena_.take(shape, dtype); }
  size_t scratch_mark() const override { return arena_.mark(); }
  void scratch_release(size_t mark) override { arena_.release(mark); }
  void keep_alive(std::unique_ptr<Retained>) override {}  // everything recorded has run already

  void write(Tensor to, std::span<const std::byte> from) override;
  Status read(std::span<std::byte> to, Tensor from) override;

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

  void causal_conv(Tensor out, Tensor x, Tensor weight, const ConvOptions& options,
                   std::span<const StateRows> sequences) override;
  void gated_delta(Tensor out, Tensor qkv, Tensor a, Tensor b, Tensor a_log, Tensor dt_bias,
                   std::span<const StateRows> sequences, const GatedDeltaOptions& options) override;
  void selective_scan(Tensor out, Tensor xbc, Tensor dt, const ScanWeights& weights,
                      std::span<const StateRows> sequences, const ScanOptions& options) override;

  void route(const Routes& out, Tensor logits, const RouterOptions& options) override;
  void expert_ffn(Tensor slots, Tensor intermediate, Tensor x, const Routes& routes,
                  std::span<const ExpertWeights> ready, const GluOptions& glu) override;
  void combine_experts(Tensor out, Tensor slots, const Routes& routes) override;

  void glu(Tensor out, Tensor gate, Tensor up, const GluOptions& options) override;

  EventId submit() override { return EventId{0}; }
  Status wait(EventId) override { return status_; }

 private:
  void attend(const Tensor& out, const Tensor& q, const Tensor& k, const Tensor& v,
              const KvView& kv, const AttentionOptions& options);

  /// Zeros, and a sticky kUnsupported, when no definition says what the weight's bytes mean.
  std::span<const float> decoded_row(const Weight& weight, int64_t row);

  ScratchArena arena_;
  std::vector<float> row_;
  Status status_;
};

}  // namespace moeflux
