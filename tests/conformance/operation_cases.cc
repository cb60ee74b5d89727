#include "tests/conformance/operation_cases.h"

#include <string_view>

namespace moeflux::conformance {
namespace {

/// Numbers that follow from a tensor's name alone.
std::vector<float> numbers(std::string_view name, int64_t count, float low, float high) {
  uint64_t seed = 0;
  for (const char c : name) seed = seed * 131 + static_cast<uint64_t>(c);
  return Random(seed).floats(count, low, high);
}

Tensor made(Session& s, std::string_view name, const Shape& shape, float low = -1.0f,
            float high = 1.0f) {
  return s.floats(shape, numbers(name, shape.num_elements(), low, high));
}

Weight matrix(Session& s, std::string_view name, int64_t rows, int64_t cols) {
  Weight w;
  w.format = QuantFormat::plain(DType::kF32);
  w.rows = rows;
  w.cols = cols;
  w.parts.codes = made(s, name, {rows, cols});
  return w;
}

Tensor positions(Session& s, std::vector<int32_t> at) {
  return s.ints({static_cast<int64_t>(at.size())}, at);
}

/// Pages of four tokens for eight.
KvView pages_for(Session& s, Lists& lists, int64_t heads, int64_t k_dim, int64_t v_dim) {
  std::vector<Tensor> k;
  std::vector<Tensor> v;
  for (int i = 0; i < 2; ++i) {
    k.push_back(s.zeros({4, heads, k_dim}));
    v.push_back(v_dim == 0 ? k.back() : s.zeros({4, heads, v_dim}));
  }
  return {.k_pages = lists.list(k), .v_pages = lists.list(v), .page_tokens = 4, .length = 0};
}

constexpr int64_t kTokens = 3;

}  // namespace

template <>
ops::Copy make_case(Session& s, Lists&) {
  return {s.zeros({kTokens, 8}), made(s, "x", {kTokens, 8})};
}
template <>
ops::Add make_case(Session& s, Lists&) {
  return {s.zeros({kTokens, 8}), made(s, "a", {kTokens, 8}), made(s, "b", {kTokens, 8})};
}
template <>
ops::Scale make_case(Session& s, Lists&) {
  return {s.zeros({kTokens, 8}), made(s, "x", {kTokens, 8}), 0.5f};
}
template <>
ops::MulActivated make_case(Session& s, Lists&) {
  return {s.zeros({kTokens, 8}), made(s, "x", {kTokens, 8}), made(s, "gate", {kTokens, 8}),
          Activation::kSilu};
}
template <>
ops::Glu make_case(Session& s, Lists&) {
  return {s.zeros({kTokens, 8}), made(s, "gate", {kTokens, 8}), made(s, "up", {kTokens, 8}), {}};
}
template <>
ops::RmsNorm make_case(Session& s, Lists&) {
  return {s.zeros({kTokens, 8}), made(s, "x", {kTokens, 8}), made(s, "weight", {8}), 1e-6f};
}
template <>
ops::LayerNorm make_case(Session& s, Lists&) {
  return {s.zeros({kTokens, 8}), made(s, "x", {kTokens, 8}), made(s, "weight", {8}), 1e-6f};
}
template <>
ops::AddBias make_case(Session& s, Lists&) {
  return {made(s, "x", {kTokens, 8}), made(s, "bias", {8})};
}
template <>
ops::SoftCap make_case(Session& s, Lists&) {
  return {made(s, "x", {kTokens, 8}, -9.0f, 9.0f), 4.0f};
}
template <>
ops::RoundBlocks make_case(Session& s, Lists&) {
  return {made(s, "x", {kTokens, 64}, -9.0f, 9.0f), BlockRounding::kE2m1};
}
template <>
ops::TopRows make_case(Session& s, Lists&) {
  return {s.zeros({kTokens, 4}), s.zeros({kTokens, 4}, DType::kI32), made(s, "x", {kTokens, 40})};
}
template <>
ops::ReadStreams make_case(Session& s, Lists&) {
  return {s.zeros({kTokens, 8}),
          {s.zeros({kTokens, 4}), s.zeros({kTokens, 4, 4})},
          made(s, "x", {kTokens, 4, 8}),
          made(s, "logits", {kTokens, 24}),
          {made(s, "scale", {3}), made(s, "base", {24}), 2, 1e-6f}};
}
template <>
ops::ExpandStreams make_case(Session& s, Lists&) {
  return {s.zeros({kTokens, 4, 8}),
          made(s, "x", {kTokens, 4, 8}),
          made(s, "branch", {kTokens, 8}),
          {made(s, "write", {kTokens, 4}), made(s, "mix", {kTokens, 4, 4})}};
}
template <>
ops::SumGated make_case(Session& s, Lists&) {
  return {s.zeros({kTokens, 8}), made(s, "x", {kTokens, 4, 8}), made(s, "gates", {kTokens, 4, 8})};
}
template <>
ops::RootDots make_case(Session& s, Lists&) {
  return {s.zeros({kTokens, 4}),
          made(s, "a", {kTokens, 4, 8}),
          made(s, "b", {kTokens, 4, 8}),
          {.scale = 0.5f, .least = 1e-6f}};
}
template <>
ops::ShareWeights make_case(Session& s, Lists&) {
  return {s.zeros({kTokens, 2}), made(s, "weights", {kTokens, 4}, 0.1f, 1.0f),
          made(s, "logits", {kTokens, 2}), 2.0f};
}
template <>
ops::MixBlocks make_case(Session& s, Lists&) {
  return {s.zeros({kTokens, 8}),
          made(s, "blocks", {2, kTokens, 8}),
          made(s, "last", {kTokens, 8}),
          made(s, "query", {8}),
          {.scale = 0.5f, .eps = 1e-6f}};
}
template <>
ops::ClipRows make_case(Session& s, Lists&) {
  return {made(s, "x", {kTokens, 8}), 1.5f};
}
template <>
ops::Embed make_case(Session& s, Lists&) {
  return {s.zeros({kTokens, 32}), matrix(s, "table", 5, 32), positions(s, {4, 0, 2})};
}
template <>
ops::Linear make_case(Session& s, Lists&) {
  return {s.zeros({kTokens, 16}), made(s, "x", {kTokens, 32}), matrix(s, "weight", 16, 32)};
}
template <>
ops::HeadLinear make_case(Session& s, Lists&) {
  return {s.zeros({kTokens, 2, 8}),
          made(s, "x", {kTokens, 2, 16}),
          matrix(s, "weight", 24, 16),
          {.head_stride = 12, .row_begin = 4, .rows_per_head = 8}};
}
template <>
ops::HeadLinearTransposed make_case(Session& s, Lists&) {
  return {s.zeros({kTokens, 2, 16}),
          made(s, "x", {kTokens, 2, 8}),
          matrix(s, "weight", 24, 16),
          {.head_stride = 12, .row_begin = 4, .rows_per_head = 8}};
}
template <>
ops::Rope make_case(Session& s, Lists&) {
  return {made(s, "x", {kTokens, 2, 8}),
          positions(s, {0, 1, 2}),
          made(s, "frequencies", {3}, 0.01f, 1.0f),
          {.rotary_dim = 6}};
}
template <>
ops::Attention make_case(Session& s, Lists& lists) {
  const KvView kv = pages_for(s, lists, 2, 32, 32);
  return {s.zeros({kTokens, 4, 32}),      made(s, "q", {kTokens, 4, 32}),
          made(s, "k", {kTokens, 2, 32}), made(s, "v", {kTokens, 2, 32}),
          lists.one(KvRows{kTokens, kv}), {.scale = 0.2f, .sinks = made(s, "sinks", {4})}};
}
template <>
ops::LatentAttention make_case(Session& s, Lists& lists) {
  const KvView pages = pages_for(s, lists, 1, 40, 0);
  std::vector<Tensor> values;
  for (const Tensor& page : pages.k_pages) values.push_back(page.slice(2, 0, 32));
  const KvView kv{pages.k_pages, lists.list(values), pages.page_tokens, 0};
  return {s.zeros({kTokens, 2, 16}),
          made(s, "q", {kTokens, 2, 24}),
          made(s, "latent", {kTokens, 40}),
          positions(s, {0, 1, 2}),
          lists.one(KvRows{kTokens, kv}),
          {.norm = made(s, "norm", {32}),
           .norm_eps = 1e-6f,
           .inverse_frequencies = made(s, "frequencies", {4}, 0.01f, 1.0f),
           .rope = {.rotary_dim = 8},
           .k_up = matrix(s, "k_up", 32, 32),
           .k_rows = {16, 0, 16},
           .v_up = matrix(s, "v_up", 32, 32),
           .v_rows = {16, 0, 16},
           .scale = 0.2f}};
}
template <>
ops::SelectKeys make_case(Session& s, Lists& lists) {
  return {s.zeros({kTokens, 1, 2}, DType::kI32),
          made(s, "q", {kTokens, 2, 32}),
          made(s, "k", {kTokens, 1, 32}),
          made(s, "head_weights", {kTokens, 2}, 0.1f, 1.0f),
          lists.one(KvRows{kTokens, pages_for(s, lists, 1, 32, 0)}),
          {}};
}
template <>
ops::PoolRows make_case(Session& s, Lists& lists) {
  return {s.zeros({kTokens, 8}),
          made(s, "x", {kTokens, 8}),
          {made(s, "gate", {kTokens, 8}), made(s, "bias", {2, 8})},
          positions(s, {0, 1, 2}),
          lists.one(StateRows{kTokens, s.zeros({1, 16})}),
          2};
}
template <>
ops::CausalConv make_case(Session& s, Lists& lists) {
  return {s.zeros({kTokens, 8}),
          made(s, "x", {kTokens, 8}),
          made(s, "weight", {8, 4}),
          {Activation::kSilu, made(s, "bias", {8})},
          lists.one(StateRows{kTokens, made(s, "state", {3, 8})})};
}
template <>
ops::TokenConv make_case(Session& s, Lists& lists) {
  return {s.zeros({kTokens, 8}), made(s, "x", {kTokens, 8}), made(s, "weight", {4, 8}),
          made(s, "shares", {kTokens, 2, 4}),
          lists.one(StateRows{kTokens, made(s, "state", {3, 8})})};
}
template <>
ops::GatedDelta make_case(Session& s, Lists& lists) {
  return {s.zeros({kTokens, 2, 16}),
          made(s, "qkv", {kTokens, 64}),
          made(s, "a", {kTokens, 2}),
          made(s, "b", {kTokens, 2}),
          made(s, "a_log", {2}),
          made(s, "dt_bias", {2}),
          lists.one(StateRows{kTokens, made(s, "state", {2, 16, 16})}),
          {1, 2, 16, 16}};
}
template <>
ops::SelectiveScan make_case(Session& s, Lists& lists) {
  return {s.zeros({kTokens, 2, 16}),
          made(s, "xbc", {kTokens, 64}),
          made(s, "dt", {kTokens, 2}),
          {made(s, "a_log", {2}), made(s, "dt_bias", {2}), made(s, "skip", {2})},
          lists.one(StateRows{kTokens, made(s, "state", {2, 16, 16})}),
          {.heads = 2, .head_dim = 16, .groups = 1, .state_dim = 16}};
}
template <>
ops::Route make_case(Session& s, Lists&) {
  return {{s.zeros({kTokens, 2}, DType::kI32), s.zeros({kTokens, 2})},
          made(s, "logits", {kTokens, 8}, -3.0f, 3.0f),
          {.correction_bias = made(s, "correction", {8}, 0.0f, 0.1f),
           .num_groups = 2,
           .groups_kept = 1,
           .expert_scale = made(s, "expert_scale", {8}, 0.5f, 1.0f)}};
}
template <>
ops::ExpertFfn make_case(Session& s, Lists& lists) {
  for (int e = 0; e < 2; ++e) {
    lists.experts.push_back({ExpertId{e}, matrix(s, "gate", 32, 16), matrix(s, "up", 32, 16),
                             matrix(s, "down", 16, 32), made(s, "gate_bias", {32}),
                             made(s, "up_bias", {32}), made(s, "down_bias", {16})});
  }
  return {s.zeros({kTokens, 2, 16}),
          s.zeros({kTokens, 2, 32}),
          made(s, "x", {kTokens, 16}),
          {s.ints({kTokens, 2}, std::vector<int32_t>{0, 1, 1, 0, 0, 1}), s.zeros({kTokens, 2})},
          lists.experts,
          {}};
}
template <>
ops::CombineExperts make_case(Session& s, Lists&) {
  return {s.zeros({kTokens, 8}),
          made(s, "slots", {kTokens, 2, 8}),
          {s.zeros({kTokens, 2}, DType::kI32), made(s, "weights", {kTokens, 2})}};
}
template <>
ops::GatedFfn make_case(Session& s, Lists&) {
  return {s.zeros({kTokens, 16}),
          made(s, "x", {kTokens, 16}),
          {matrix(s, "gate", 32, 16), matrix(s, "up", 32, 16), matrix(s, "down", 16, 32)},
          made(s, "out_gate", {kTokens, 1}),
          {}};
}

}  // namespace moeflux::conformance
