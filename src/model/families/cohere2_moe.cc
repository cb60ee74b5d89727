// Cohere's Command A+ line: one norm a layer, whose result attention and the experts both see;
// positions in neighbouring pairs where a layer sees a window, none where it sees all.
#include <utility>

#include "base/format.h"
#include "model/blocks/decoder.h"
#include "model/family/family.h"
#include "model/family/spec_fields.h"
#include "model/mixers/attention.h"

namespace moeflux::cohere2_moe {
namespace {

MoeSpec read_moe(Config& c) {
  MoeSpec moe = read_experts(c, "intermediate_size");
  const std::string score = c.string_or("expert_selection_fn", "softmax");
  if (score == "sigmoid") {
    moe.router.score = RouterScore::kSigmoid;
    moe.router.normalize = c.bool_or("norm_topk_prob", true);
  } else {
    c.expect_string("expert_selection_fn", "softmax");
    c.ignore("norm_topk_prob");  // a softmax over the chosen sums to 1
  }
  moe.shared_intermediate_size =
      moe.moe_intermediate_size * c.int_or("num_shared_experts", 0, {0, 1024});
  const std::string sum = c.string_or("shared_expert_combination_strategy", "average");
  if (sum != "sum" && sum != "average") {
    c.fail(
        ErrorCode::kUnsupported,
        formatted("shared_expert_combination_strategy is \"{}\", known are sum and average", sum));
  }
  if (sum == "average" && moe.shared_intermediate_size > 0) moe.out_multiplier = 0.5f;
  return moe;
}

// layer_types; else every sliding_window_pattern-th layer sees all, counted from the first one with
// experts, and those before it have a pattern of their own.
std::vector<bool> read_sliding(Config& c, int64_t num_layers, int64_t prefix_interval) {
  const int64_t interval = c.int_or("sliding_window_pattern", 4, {1, 4096});
  if (c.has("layer_types")) return read_sliding_layers(c, num_layers);
  const int64_t prefix = c.int_or("first_k_dense_replace", 0, {0, 4096});
  std::vector<bool> sliding;
  for (int64_t i = 0; i < num_layers; ++i) {
    const bool is_prefix = i < prefix;
    const int64_t nth = is_prefix ? i + 1 : i - prefix + 1;
    sliding.push_back(nth % (is_prefix ? prefix_interval : interval) != 0);
  }
  return sliding;
}

Result<ModelSpec> read_spec(Config& c) {
  ModelSpec spec = read_trunk(c);
  spec.norms_subtract_mean = !c.has("rms_norm_eps");
  c.ignore("layer_norm_eps");
  spec.tie_word_embeddings = c.bool_or("tie_word_embeddings", true);
  spec.logit_multiplier = static_cast<float>(c.number_or("logit_scale", 0.0625, 1e-6, 1e6));
  const int64_t num_layers = read_num_layers(c);
  AttentionSpec attention = read_heads(c, spec.hidden_size);
  read_attention_bias(c, attention);
  c.expect_bool("use_qk_norm", false);
  const RopeSpec rope = read_rope(c, {.head_dim = attention.head_dim, .interleaved = true});
  const int64_t prefix_interval = c.int_or("prefix_dense_sliding_window_pattern", 1, {1, 4096});
  const int64_t window = c.require_int("sliding_window", {1, 1 << 30});
  const MoeSpec moe = read_moe(c);
  const std::vector<bool> sliding = read_sliding(c, num_layers, prefix_interval);
  const std::vector<bool> dense = read_dense_layers(c, num_layers);
  const int64_t dense_size = c.int_or("prefix_dense_intermediate_size", moe.moe_intermediate_size);
  spec.layers = make_layers({}, moe, dense, dense_size);
  for (size_t i = 0; i < dense.size(); ++i) {
    attention.window = sliding[i] ? window : 0;
    attention.rope = sliding[i] || (dense[i] && prefix_interval == 1) ? rope : RopeSpec{};
    spec.layers[i].mixer = share_mixer(attention);
  }
  return finish_spec(c, std::move(spec));
}

std::unique_ptr<Model> create(const ModelSpec& spec, WeightStore& weights) {
  blocks::DecoderOptions options;
  options.names.ffn_norm = "";
  return blocks::make_decoder(spec, weights, options);
}

}  // namespace

extern const Family family = {{"cohere2_moe"}, read_spec, usual_names, create};

}  // namespace moeflux::cohere2_moe
