#include "backend/trace/trace_encoder.h"

#include <algorithm>
#include <cstring>

#include "backend/gathered_pages.h"
#include "backend/host_buffer.h"
#include "backend/sequence_rows.h"
#include "backend/trace/trace_device.h"
#include "base/format.h"

namespace moeflux {
namespace {

std::string text_of(const Tensor& tensor) { return tensor.shape.to_string(); }

uint64_t product(int64_t a, int64_t b, int64_t c) {
  return static_cast<uint64_t>(a) * static_cast<uint64_t>(b) * static_cast<uint64_t>(c);
}

std::string_view activation_name(Activation activation) {
  switch (activation) {
    case Activation::kSilu:
      return "silu";
    case Activation::kSigmoid:
      return "sigmoid";
    case Activation::kGeluTanh:
      return "gelu_tanh";
    case Activation::kIdentity:
      return "identity";
    case Activation::kRelu:
      return "relu";
    case Activation::kCappedSilu:
      return "capped_silu";
    case Activation::kSoftplus:
      return "softplus";
  }
  __builtin_unreachable();
}

}  // namespace

// Large enough for the scratch of any model.
TraceEncoder::TraceEncoder() : unbacked_(make_unbacked_buffer(SIZE_MAX / 2)) {}

void TraceEncoder::record(std::string text, uint64_t weight_bytes, uint64_t multiply_adds) {
  ops_.push_back({std::move(text), weight_bytes, multiply_adds});
}

uint64_t TraceEncoder::weight_bytes() const {
  uint64_t sum = 0;
  for (const TraceOp& op : ops_) sum += op.weight_bytes;
  return sum;
}

uint64_t TraceEncoder::multiply_adds() const {
  uint64_t sum = 0;
  for (const TraceOp& op : ops_) sum += op.multiply_adds;
  return sum;
}

std::string TraceEncoder::to_string() const {
  std::string text;
  for (const TraceOp& op : ops_) text += op.text + "\n";
  return text;
}

Tensor TraceEncoder::scratch(const Shape& shape, DType dtype) {
  const size_t bytes =
      static_cast<size_t>(shape.num_elements()) * static_cast<size_t>(dtype_bits(dtype)) / 8;
  const ScratchExtent extent = next_scratch_extent(scratch_used_, bytes);
  scratch_used_ = extent.end;
  scratch_max_ = std::max(scratch_max_, scratch_used_);
  return Tensor::view(*unbacked_, extent.begin, shape, dtype);
}

void TraceEncoder::write(Tensor to, std::span<const std::byte> from) {
  MF_CHECK(to.is_contiguous() && to.size_bytes() == from.size());
  record("write " + text_of(to));
}

Status TraceEncoder::read(std::span<std::byte> to, Tensor from) {
  MF_CHECK(from.is_contiguous() && from.size_bytes() == to.size());
  if (!to.empty()) std::memset(to.data(), 0, to.size());
  record("read " + text_of(from));
  return {};
}

void TraceEncoder::copy(Tensor out, Tensor x) {
  MF_CHECK(out.shape == x.shape);
  record("copy " + text_of(out));
}

void TraceEncoder::add(Tensor out, Tensor a, Tensor b) {
  MF_CHECK(out.shape == a.shape && out.shape == b.shape);
  record("add " + text_of(out));
}

void TraceEncoder::mul_activated(Tensor out, Tensor x, Tensor gate, Activation activation) {
  MF_CHECK(out.shape == x.shape);
  record(formatted("mul_{} {} = {} * {}", activation_name(activation), text_of(out), text_of(x),
                   text_of(gate)));
}

void TraceEncoder::rms_norm(Tensor out, Tensor x, Tensor weight, float) {
  MF_CHECK(out.shape == x.shape);
  MF_CHECK(weight.is_null() || weight.shape.back() == x.shape.back());
  record("rms_norm " + text_of(out));
}

void TraceEncoder::layer_norm(Tensor out, Tensor x, Tensor weight, float) {
  MF_CHECK(out.shape == x.shape && weight.num_elements() == x.shape.back());
  record("layer_norm " + text_of(out));
}

void TraceEncoder::add_bias(Tensor x, Tensor bias) {
  MF_CHECK(bias.num_elements() == x.shape.back());
  record("add_bias " + text_of(x));
}

void TraceEncoder::scale(Tensor out, Tensor x, float) {
  MF_CHECK(out.shape == x.shape);
  record("scale " + text_of(out));
}

void TraceEncoder::soft_cap(Tensor x, float) { record("soft_cap " + text_of(x)); }

void TraceEncoder::top_rows(Tensor values, Tensor, Tensor x) {
  record(formatted("top_rows {} of {}", text_of(values), text_of(x)));
}

void TraceEncoder::read_streams(Tensor out, const StreamGates&, Tensor x, Tensor logits,
                                const StreamGateOptions&) {
  MF_CHECK(out.num_elements() * x.dim(1) == x.num_elements() && logits.dim(0) == x.dim(0));
  record(formatted("read_streams {} of {} by {}", text_of(out), text_of(x), text_of(logits)));
}

void TraceEncoder::expand_streams(Tensor out, Tensor x, Tensor branch, const StreamGates& gates) {
  MF_CHECK(out.shape == x.shape);
  record(formatted("expand_streams {} + {}{}", text_of(out), text_of(branch),
                   gates.mix.is_null() ? "" : " mixed"));
}

void TraceEncoder::sum_gated(Tensor out, Tensor x, Tensor gates) {
  MF_CHECK(x.shape == gates.shape && out.num_elements() * x.dim(1) == x.num_elements());
  record(formatted("sum_gated {} of {}", text_of(out), text_of(x)));
}

void TraceEncoder::root_dots(Tensor out, Tensor a, Tensor b, const RootDotOptions&) {
  MF_CHECK(a.shape == b.shape && out.num_elements() * a.shape.back() == a.num_elements());
  record(formatted("root_dots {} = {}", text_of(out), text_of(a)));
}

void TraceEncoder::embed(Tensor out, const Weight& table, Tensor token_ids) {
  const int64_t n = token_ids.num_elements();
  record(formatted("embed {} from {} {}", text_of(out), Shape{table.rows, table.cols}.to_string(),
                   table.format.to_string()),
         moeflux::weight_bytes(table.format, n, table.cols));
}

void TraceEncoder::linear(Tensor out, Tensor x, const Weight& weight) {
  MF_CHECK(x.shape.back() == weight.cols && out.shape.back() == weight.rows);
  const int64_t n = x.num_elements() / weight.cols;
  record(formatted("linear {} = {} x {}", text_of(out), text_of(x), weight.format.to_string()),
         weight.size_bytes(), product(n, weight.rows, weight.cols));
}

void TraceEncoder::head_linear(Tensor out, Tensor x, const Weight& weight, const HeadRows& rows) {
  const int64_t heads = x.dim(1);
  MF_CHECK(x.shape.back() == weight.cols && out.shape.back() == rows.rows_per_head);
  record(formatted("head_linear {} = {} x {}", text_of(out), text_of(x), weight.format.to_string()),
         moeflux::weight_bytes(weight.format, heads * rows.rows_per_head, weight.cols),
         product(x.num_elements(), rows.rows_per_head, 1));
}

void TraceEncoder::head_linear_transposed(Tensor out, Tensor x, const Weight& weight,
                                          const HeadRows& rows) {
  const int64_t heads = x.dim(1);
  MF_CHECK(out.shape.back() == weight.cols && x.shape.back() == rows.rows_per_head);
  record(formatted("head_linear_transposed {} = {} x {}", text_of(out), text_of(x),
                   weight.format.to_string()),
         moeflux::weight_bytes(weight.format, heads * rows.rows_per_head, weight.cols),
         product(x.num_elements(), weight.cols, 1));
}

void TraceEncoder::rope(Tensor x, Tensor, Tensor, const RopeOptions& options) {
  record(formatted("rope {} rotary {}{}{}", text_of(x), options.rotary_dim,
                   options.interleaved ? " interleaved" : "",
                   options.unit > 1 ? formatted(" by {}", options.unit) : ""));
}

void TraceEncoder::attention(Tensor out, Tensor q, Tensor k, Tensor v,
                             std::span<const KvRows> sequences, const AttentionOptions& options) {
  const KeySelection& selected = options.selected;
  for_each_sequence(sequences, q.dim(0), [&](const KvRows& s, const auto& part) {
    const Tensor queries = part(q);
    const int64_t stored = s.kv.length + s.rows;
    const bool chooses = !selected.is_null() && stored > selected.dense_end();
    int64_t seen = chooses ? std::min(stored, selected.dense_end()) : stored;
    const PooledKeys& pooled = options.pooled;
    if (!pooled.is_null()) {
      seen = std::min(stored, options.window) + pooled.count_at(stored - 1);
    }
    record(formatted("attention {} = {} over {} + {}{}{}{}{}", text_of(part(out)), text_of(queries),
                     text_of(part(k)), s.kv.length,
                     options.window > 0 ? formatted(" {} {}", options.chunked ? "chunks" : "window",
                                                    options.window)
                                        : "",
                     options.sinks.is_null() ? "" : " sinks",
                     selected.is_null() ? "" : formatted(" selected {}", selected.dense_end()),
                     pooled.is_null() ? "" : formatted(" and pools of {}", pooled.unit)),
           0, 2 * product(queries.num_elements(), seen, 1));
    if (selected.is_null()) return;
    ScratchScope scope(*this);
    (void)take_gathered_pages(*this, selected, s.kv, !v.is_null());
  });
}

void TraceEncoder::select_keys(Tensor ids, Tensor q, Tensor k, Tensor,
                               std::span<const KvRows> sequences, const SelectOptions& options) {
  for_each_sequence(sequences, q.dim(0), [&](const KvRows& s, const auto& part) {
    const Tensor queries = part(q);
    const int64_t stored = s.kv.length + s.rows;
    const bool chooses = stored > options.selection(ids).dense_end();
    record(formatted("select_keys {} = {} over {} + {} of {}", text_of(part(ids)), text_of(queries),
                     text_of(part(k)), s.kv.length, options.unit),
           0, chooses ? product(queries.num_elements(), stored / options.key_tokens(), 1) : 0);
  });
}

void TraceEncoder::pool_rows(Tensor out, Tensor x, const PoolGates& gates, Tensor,
                             std::span<const StateRows> sequences, int64_t unit) {
  MF_CHECK(out.dim(0) == x.dim(0) && out.dim(1) * (gates.overlaps ? 2 : 1) == x.dim(1));
  for_each_sequence(sequences, x.dim(0), [&](const StateRows&, const auto& part) {
    record(formatted("pool_rows {} of {}{}{}", text_of(part(out)), unit,
                     gates.gate.is_null() ? "" : " weighed", gates.overlaps ? " overlapped" : ""));
  });
}

void TraceEncoder::causal_conv(Tensor out, Tensor, Tensor weight, const ConvOptions& options,
                               std::span<const StateRows> sequences) {
  for_each_sequence(sequences, out.dim(0), [&](const StateRows&, const auto& part) {
    record(formatted("causal_conv {} taps {} {}{}", text_of(part(out)), weight.dim(1),
                     activation_name(options.activation), options.bias.is_null() ? "" : " bias"));
  });
}

void TraceEncoder::gated_delta(Tensor out, Tensor qkv, Tensor, Tensor, Tensor, Tensor,
                               std::span<const StateRows> sequences,
                               const GatedDeltaOptions& options) {
  for_each_sequence(sequences, qkv.dim(0), [&](const StateRows& s, const auto& part) {
    record(formatted("gated_delta {} = {} state {}{}", text_of(part(out)), text_of(part(qkv)),
                     text_of(s.state), options.row_decay ? " by rows" : ""),
           0, 3 * product(s.rows, s.state.num_elements(), 1));
  });
}

void TraceEncoder::selective_scan(Tensor out, Tensor xbc, Tensor, const ScanWeights&,
                                  std::span<const StateRows> sequences, const ScanOptions&) {
  for_each_sequence(sequences, xbc.dim(0), [&](const StateRows& s, const auto& part) {
    record(formatted("selective_scan {} = {} state {}", text_of(part(out)), text_of(part(xbc)),
                     text_of(s.state)),
           0, 2 * product(s.rows, s.state.num_elements(), 1));
  });
}

void TraceEncoder::route(const Routes& out, Tensor logits, const RouterOptions& options) {
  record(formatted("route {} from {}{}", text_of(out.ids), text_of(logits),
                   options.table.is_null() ? "" : " listed"));
}

void TraceEncoder::expert_ffn(Tensor slots, Tensor, Tensor x, const Routes&,
                              std::span<const ExpertWeights> ready, const GluOptions&) {
  record(formatted("expert_ffn {} = {} experts {}", text_of(slots), text_of(x), ready.size()));
}

void TraceEncoder::combine_experts(Tensor out, Tensor slots, const Routes&) {
  record(formatted("combine_experts {} = {}", text_of(out), text_of(slots)));
}

void TraceEncoder::glu(Tensor out, Tensor gate, Tensor up, const GluOptions& options) {
  MF_CHECK(out.shape == gate.shape && out.shape == up.shape);
  record(formatted("glu_{} {}", activation_name(options.activation), text_of(out)));
}

}  // namespace moeflux
