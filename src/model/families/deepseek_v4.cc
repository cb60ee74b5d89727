// DeepSeek-V4-Flash and V4-Pro: attention to a window and to compressed entries of the whole
// context, which in every other layer an index chooses; four residual streams; experts judged by
// the root of softplus, in the first layers listed by token.
#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "base/format.h"
#include "model/blocks/decoder.h"
#include "model/family/family.h"
#include "model/family/spec_fields.h"
#include "model/mixers/compressed_attention.h"
#include "state/sequence_state.h"

namespace moeflux {
namespace deepseek_v4 {
namespace {

constexpr std::string_view kSliding = "sliding_attention";
constexpr std::string_view kSparse = "compressed_sparse_attention";
constexpr std::string_view kHeavy = "heavily_compressed_attention";

/// Tokens of an entry where an index chooses among overlapping ones, which is what tells them from
/// those that are all attended to.
constexpr int64_t kSparseUnit = 4;

/// How a layer attends.
struct LayerKind {
  int64_t unit = 0;  // tokens of an entry; 0: there are none
  bool is_sparse = false;
};

void check_unit(Config& c, int64_t unit, std::string_view what, int64_t head_dim) {
  if (unit == 0) return;
  if (unit >= 2 && unit <= kPoolMax && head_dim % unit == 0 &&
      SequenceState::kPageTokens % unit == 0) {
    return;
  }
  c.fail(ErrorCode::kUnsupported,
         formatted("{}: {} tokens, expected a divisor of {} and {} from 2 to {}", what, unit,
                   head_dim, SequenceState::kPageTokens, kPoolMax));
}

// Transformers' spelling: a kind by name, whose entries compress_rates has the tokens of.
std::vector<LayerKind> read_named_kinds(Config& c) {
  Config rates = c.object("compress_rates");
  const auto rate = [&](std::string_view key, int64_t usual) {
    return rates.int_or(key, usual, {1, 1 << 20});
  };
  const int64_t sparse = rate(kSparse, kSparseUnit);
  const int64_t heavy = rate(kHeavy, 128);
  c.absorb(rates);
  std::vector<LayerKind> kinds;
  for (const std::string& type : c.require_strings("layer_types")) {
    if (type == kSliding) {
      kinds.push_back({});
    } else if (type == kSparse) {
      kinds.push_back({sparse, true});
    } else if (type == kHeavy) {
      kinds.push_back({heavy, false});
    } else {
      c.fail(ErrorCode::kUnsupported, formatted("layer_types has \"{}\", expected {}, {} or {}",
                                                type, kSliding, kSparse, kHeavy));
    }
  }
  return kinds;
}

// The publisher's list of tokens, with an entry more for each layer that predicts further tokens.
std::vector<LayerKind> read_kinds(Config& c, int64_t num_layers, int64_t head_dim) {
  std::vector<LayerKind> kinds;
  const bool is_named = c.has("layer_types");
  if (is_named) {
    kinds = read_named_kinds(c);
    c.ignore("compress_ratios");
  } else {
    c.expect_present("compress_ratios");
    for (const int64_t unit : c.ints_or("compress_ratios", {})) {
      kinds.push_back({unit, unit == kSparseUnit});
    }
    if (static_cast<int64_t>(kinds.size()) > num_layers) {
      kinds.resize(static_cast<size_t>(num_layers));
    }
  }
  if (static_cast<int64_t>(kinds.size()) != num_layers) {
    c.fail(ErrorCode::kInvalidArgument,
           formatted("{} has {} layers, num_hidden_layers is {}",
                     is_named ? "layer_types" : "compress_ratios", kinds.size(), num_layers));
    kinds.resize(static_cast<size_t>(num_layers));
  }
  for (const LayerKind& kind : kinds) {
    check_unit(c, kind.unit, is_named ? "compress_rates" : "compress_ratios", head_dim);
  }
  return kinds;
}

int64_t read_rope_dim(Config& c, int64_t head_dim) {
  if (c.has("qk_rope_head_dim")) return c.require_int("qk_rope_head_dim", {2, head_dim});
  const double share = c.require_number("partial_rotary_factor", 0.0, 1.0);
  return static_cast<int64_t>(std::lround(share * static_cast<double>(head_dim)));
}

/// Layers without entries and layers with them turn by other frequencies.
struct Ropes {
  RopeSpec sliding;
  RopeSpec compressed;
};

Ropes read_ropes(Config& c, int64_t head_dim) {
  const int64_t rope_dim = read_rope_dim(c, head_dim);
  const double share = static_cast<double>(rope_dim) / static_cast<double>(head_dim);
  Ropes ropes;
  ropes.compressed = read_rope(c, {.head_dim = rope_dim,
                                   .theta_key = "compress_rope_theta",
                                   .interleaved = true,
                                   .share_of_wider = share,
                                   .layer_type = "compress"});
  // YaRN's factor of cosines belongs to neither: keys are values here.
  ropes.compressed.attention_factor = 1.0f;
  if (c.has("rope_parameters")) {
    ropes.sliding = read_rope(
        c,
        {.head_dim = rope_dim, .interleaved = true, .share_of_wider = share, .layer_type = "main"});
    ropes.sliding.attention_factor = 1.0f;
  } else {
    ropes.sliding = ropes.compressed;
    ropes.sliding.inverse_frequencies =
        default_frequencies(c.require_number("rope_theta", 1.0, 1e12), rope_dim);
  }
  return ropes;
}

CompressedAttentionSpec read_attention(Config& c) {
  CompressedAttentionSpec attention;
  attention.num_heads = c.require_int("num_attention_heads", {1, 4096});
  attention.head_dim = c.require_int("head_dim", {2, 4096});
  c.expect_number("num_key_value_heads", 1.0);
  c.expect_bool("attention_bias", false);
  attention.q_lora_rank = c.require_int("q_lora_rank");
  attention.out_groups = c.require_int("o_groups", {1, 4096});
  attention.out_lora_rank = c.require_int("o_lora_rank");
  attention.window = c.require_int("sliding_window", {1, 1 << 20});
  attention.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(attention.head_dim)));
  if (attention.num_heads % attention.out_groups != 0) {
    c.fail(ErrorCode::kInvalidArgument,
           formatted("num_attention_heads is {}, expected a multiple of o_groups {}",
                     attention.num_heads, attention.out_groups));
  }
  return attention;
}

EntryIndexSpec read_index(Config& c, int64_t rope_dim) {
  EntryIndexSpec index;
  index.num_heads = c.require_int("index_n_heads", {1, 4096});
  index.head_dim = c.require_int("index_head_dim", {rope_dim, 4096});
  index.selected = c.require_int("index_topk", {1, 1 << 20});
  return index;
}

void read_mixers(Config& c, ModelSpec& spec) {
  CompressedAttentionSpec attention = read_attention(c);
  const std::vector<LayerKind> kinds = read_kinds(c, spec.num_layers(), attention.head_dim);
  const Ropes ropes = read_ropes(c, attention.head_dim);
  const EntryIndexSpec index = read_index(c, ropes.compressed.rotary_dim);
  for (size_t i = 0; i < kinds.size(); ++i) {
    CompressedAttentionSpec own = attention;
    own.unit = kinds[i].unit;
    own.overlaps = kinds[i].is_sparse;
    own.rope = own.unit == 0 ? ropes.sliding : ropes.compressed;
    if (kinds[i].is_sparse) {
      own.index = index;
      check_unit(c, own.unit, "index_head_dim", index.head_dim);
    }
    spec.layers[i].mixer = share_mixer(std::move(own));
  }
}

// The layers that list experts by token: the first ones, or those that are named.
std::vector<bool> read_listed_layers(Config& c, int64_t num_layers) {
  std::vector<bool> listed;
  if (c.has("mlp_layer_types")) {
    c.ignore("num_hash_layers");
    for (const std::string& type :
         read_layer_types(c, num_layers, {"mlp_layer_types", "moe", "hash_moe"})) {
      listed.push_back(type == "hash_moe");
    }
    return listed;
  }
  const int64_t first = c.require_int("num_hash_layers", {0, 4096});
  for (int64_t i = 0; i < num_layers; ++i) listed.push_back(i < first);
  return listed;
}

MoeSpec read_moe(Config& c) {
  MoeSpec moe = read_experts(c);
  c.expect_string("scoring_func", "sqrtsoftplus");
  c.expect_string("topk_method", "noaux_tc");
  c.expect_present("routed_scaling_factor");
  moe.router.score = RouterScore::kSqrtSoftplus;
  moe.router.normalize = c.bool_or("norm_topk_prob", true);
  moe.router.normalize_epsilon = 1e-20f;
  moe.router.scale = static_cast<float>(c.require_number("routed_scaling_factor", 0.0, 1e6));
  moe.glu = {.limit = static_cast<float>(c.require_number("swiglu_limit", 1e-6, 1e6))};
  c.expect_bool("mlp_bias", false);
  read_shared_experts(c, moe);
  return moe;
}

StreamSpec read_streams(Config& c) {
  StreamSpec streams;
  streams.count = c.require_int("hc_mult", {2, kStreamsMax});
  streams.iterations = c.require_int("hc_sinkhorn_iters", {1, 1000});
  streams.eps = static_cast<float>(c.require_number("hc_eps", 0.0, 1.0));
  streams.gated_end = true;
  return streams;
}

Result<ModelSpec> read_spec(Config& c) {
  ModelSpec spec = read_trunk(c);
  const int64_t num_layers = read_num_layers(c);
  spec.streams = read_streams(c);
  const MoeSpec moe = read_moe(c);
  for (const bool is_listed : read_listed_layers(c, num_layers)) {
    LayerSpec layer;
    layer.moe = moe;
    layer.moe.listed_tokens = is_listed ? spec.vocab_size : 0;
    layer.moe.correction_bias = !is_listed;
    spec.layers.push_back(std::move(layer));
  }
  read_mixers(c, spec);
  c.ignore("expert_dtype");  // how they are stored
  return finish_spec(c, std::move(spec));
}

// As the publisher calls them; transformers saves some otherwise.
NameScheme names(const ModelSpec& spec) {
  NameScheme scheme = usual_names(spec);
  scheme.renamed = {{"lm_head", "head"}};
  scheme.otherwise = {{"embed_tokens", "embed"},
                      {"attn.kv_norm", "attn.norm"},
                      {"hc_head_fn", "hc_head.hc_fn"},
                      {"hc_head_base", "hc_head.hc_base"},
                      {"hc_head_scale", "hc_head.hc_scale"}};
  return scheme;
}

std::unique_ptr<Model> create(const ModelSpec& spec, WeightStore& weights) {
  blocks::DecoderOptions options;
  options.names.input_norm = "attn_norm";
  options.names.ffn_norm = "ffn_norm";
  options.names.moe = "ffn";
  options.names.router = "ffn.gate";
  options.names.correction_bias = "ffn.gate.bias";
  options.names.shared = "ffn.shared_experts";
  options.names.table = "ffn.gate.tid2eid";
  return blocks::make_decoder(spec, weights, options);
}

}  // namespace
}  // namespace deepseek_v4

extern const Family deepseek_v4_family;
const Family deepseek_v4_family = {
    {"deepseek_v4"}, deepseek_v4::read_spec, deepseek_v4::names, deepseek_v4::create};

}  // namespace moeflux
