// Llama 4 Scout and Maverick (text): attention in chunks with rotary positions, every fourth layer
// over everything without any; one expert a token, whose weight multiplies its input, and a shared
// one.
#include <utility>

#include "base/format.h"
#include "model/blocks/decoder.h"
#include "model/family/family.h"
#include "model/family/spec_fields.h"
#include "model/mixers/attention.h"

namespace moeflux::llama4_text {
namespace {

// no_rope_layers, of which 1 means positions; an empty list is as none: every interval-th has none.
std::vector<bool> read_rope_layers(Config& c, int64_t num_layers) {
  const int64_t interval = c.int_or("no_rope_layer_interval", 4, {1, 4096});
  std::vector<bool> rope;
  if (c.ints_or("no_rope_layers", {}).empty()) {
    for (int64_t i = 1; i <= num_layers; ++i) rope.push_back(i % interval != 0);
    return rope;
  }
  for (const int64_t has : read_layer_ints(c, "no_rope_layers", num_layers)) {
    rope.push_back(has != 0);
  }
  return rope;
}

// All but moe_layers, or but every interleave_moe_layer_step-th layer.
std::vector<bool> read_dense(Config& c, int64_t num_layers) {
  const int64_t step = c.int_or("interleave_moe_layer_step", 1, {1, 4096});
  std::vector<int64_t> usual;
  for (int64_t i = step - 1; i < num_layers; i += step) usual.push_back(i);
  std::vector<bool> layers(static_cast<size_t>(num_layers), false);
  mark_listed_layers(c, "moe_layers", layers, usual);
  layers.flip();
  return layers;
}

// True, or a number that is not 0, as the first files have.
bool read_tuning(Config& c) {
  const Json* tuning = c.find("attn_temperature_tuning");
  c.ignore("attn_temperature_tuning");
  return tuning == nullptr || (*tuning != false && *tuning != 0);
}

MoeSpec read_moe(Config& c) {
  MoeSpec moe = read_experts(c, "intermediate_size");
  if (moe.experts_per_token != 1) {
    c.fail(ErrorCode::kUnsupported,
           formatted("num_experts_per_tok is {}, which is not supported for models of type {}",
                     moe.experts_per_token, c.model_type()));
  }
  moe.router.score = RouterScore::kSigmoid;
  moe.router.normalize = false;
  moe.weighs_input = true;
  moe.shared_intermediate_size = moe.moe_intermediate_size;
  return moe;
}

Result<ModelSpec> read_spec(Config& c) {
  ModelSpec spec = read_trunk(c);
  const int64_t num_layers = read_num_layers(c);
  AttentionSpec heads = read_heads(c, spec.hidden_size);
  read_attention_bias(c, heads);
  c.ignore("for_llm_compressor");  // says how experts are computed
  AttentionSpec near = heads;
  near.qk_norm = c.bool_or("use_qk_norm", true) ? QkNorm::kPlain : QkNorm::kNone;
  near.rope = read_rope(c, {.head_dim = heads.head_dim, .interleaved = true});
  if (!c.mentions("attention_chunk_size")) c.assume("attention_chunk_size", 8192);
  near.window = c.int_or("attention_chunk_size", 0, {0, 1 << 30});
  near.chunked = near.window > 0;
  AttentionSpec far = heads;
  const double beta = c.number_or("attn_scale", 0.1, 0.0, 1e3);
  const int64_t period = c.int_or("floor_scale", 8192, {1, 1 << 30});
  if (read_tuning(c)) far.query_scale = {.beta = beta, .period = period, .offset = 1};
  const MoeSpec moe = read_moe(c);
  const int64_t dense_size = c.int_or("intermediate_size_mlp", moe.moe_intermediate_size);
  const std::vector<bool> rope = read_rope_layers(c, num_layers);
  spec.layers = make_layers({}, moe, read_dense(c, num_layers), dense_size);
  for (size_t i = 0; i < rope.size(); ++i) {
    spec.layers[i].mixer = share_mixer(rope[i] ? near : far);
  }
  return finish_spec(c, std::move(spec));
}

NameScheme names(const ModelSpec& spec) {
  return usual_names(spec, {{"mlp.gate", "feed_forward.router"},
                            {"mlp.shared_experts", "feed_forward.shared_expert"},
                            {"mlp", "feed_forward"}});
}

MlxNames mlx_names(std::string_view) {
  return {.prefix = "language_model.model.",
          .head_prefix = "language_model.",
          .experts = "experts",
          .outer_model_type = "llama4"};
}

}  // namespace

extern const Family family = {
    {"llama4_text", "llama4"}, read_spec, names, blocks::make_decoder, mlx_names};

}  // namespace moeflux::llama4_text
