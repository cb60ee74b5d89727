// Qwen3.8-Flash-Next: Qwen3.5's layers with a residual of several gated streams, attention to
// blocks of tokens that an index has chosen, and an embedding of n-grams in some layers, whose
// table stays on the drive. Text only.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/format.h"
#include "model/blocks/decoder.h"
#include "model/family/family.h"
#include "model/family/spec_fields.h"
#include "model/mixers/attention.h"
#include "model/mixers/gated_delta.h"
#include "state/sequence_state.h"

namespace moeflux::qwen4_exp {
namespace {

// Each looks for primes behind those of the layers before it.
constexpr size_t kNgramLayersMax = 8;

constexpr std::string_view kLinear = "linear_attention";
constexpr std::string_view kFull = "full_attention";
// Other names of the same; the last is what transformers saves.
constexpr std::string_view kSparse[] = {"qwen_sparse_attention", "indexed_attention"};
constexpr int64_t kConvTapsMax = 16;  // of kernels, those between included

std::vector<bool> read_full_layers(Config& c, int64_t num_layers) {
  const int64_t interval = c.int_or("full_attention_interval", 4, {1, 1024});
  LayerTypes types{"layer_types", std::string(kLinear), std::string(kFull), interval};
  const Json* list = c.find("layer_types");
  for (const std::string_view name : kSparse) {
    if (list == nullptr || !list->is_array()) break;
    if (std::find(list->begin(), list->end(), Json(name)) != list->end()) types.periodic = name;
  }
  std::vector<bool> full;
  for (const std::string& type : read_layer_types(c, num_layers, types)) {
    full.push_back(type != kLinear);
  }
  return full;
}

KeyIndexSpec read_index(Config& c, const RopeSpec& rope) {
  KeyIndexSpec index;
  index.pooled = true;
  index.means = true;
  index.recent = 1;  // the block that is not whole yet
  index.num_heads = c.require_int("indexer_n_heads", {1, 4096});
  index.head_dim = c.require_int("indexer_head_dim", {1, 4096});
  index.unit = c.require_int("indexer_compress_ratio", {2, kPoolMax});
  index.rope = rope;
  const int64_t tokens = c.require_int("indexer_budget", {1, 1 << 20});
  index.selected = tokens / index.unit + 1;
  c.expect_number("indexer_kv_heads", 1);
  if (tokens % index.unit != 0 || index.head_dim % index.unit != 0 ||
      SequenceState::kPageTokens % index.unit != 0) {
    c.fail(ErrorCode::kUnsupported,
           formatted("indexer_compress_ratio is {}, expected a divisor of indexer_budget {}, "
                     "indexer_head_dim {} and {}",
                     index.unit, tokens, index.head_dim, SequenceState::kPageTokens));
  }
  if (rope.rotary_dim > index.head_dim) {
    c.fail(ErrorCode::kInvalidArgument,
           formatted("indexer_head_dim is {}, expected at least the {} columns that rotate",
                     index.head_dim, rope.rotary_dim));
  }
  return index;
}

AttentionSpec read_attention(Config& c, int64_t hidden_size) {
  for (const std::string_view key : {"head_dim", "num_key_value_heads"}) c.expect_present(key);
  AttentionSpec attention = read_heads(c, hidden_size);
  attention.qk_norm = QkNorm::kPerHead;
  attention.output_gate = true;
  attention.rope = read_rope(c, {.head_dim = attention.head_dim, .partial_rotary_factor = 0.25});
  attention.index = read_index(c, attention.rope);
  read_attention_bias(c, attention);
  c.expect_bool("attn_output_gate", true);
  return attention;
}

GatedDeltaSpec read_delta(Config& c) {
  GatedDeltaSpec delta = read_gated_delta(c);
  delta.tiled_value_heads = c.bool_or("linear_tiled_value_heads", false);  // GGUF's order
  const std::string gate = c.string_or("output_gate_type", "silu");
  if (gate == "sigmoid") {
    delta.gate = Activation::kSigmoid;
  } else if (gate != "silu" && gate != "swish") {
    c.fail(ErrorCode::kUnsupported,
           formatted("output_gate_type is \"{}\", expected sigmoid, silu or swish", gate));
  }
  return delta;
}

MoeSpec read_moe(Config& c) {
  MoeSpec moe = read_experts(c);
  moe.shared_intermediate_size = c.require_int("shared_expert_intermediate_size");
  moe.shared_gate = true;
  c.expect_bool("norm_topk_prob", true);
  return moe;
}

// The first of a list.
TokenId read_boundary(Config& c, int64_t vocab_size) {
  const Json* eos = c.find("eos_token_id");
  const Json first = eos != nullptr && eos->is_array() && !eos->empty() ? eos->front()
                     : eos != nullptr                                   ? *eos
                                                                        : Json();
  if (first.is_number_integer() && first >= 0 && first < vocab_size) return first.get<TokenId>();
  c.fail(ErrorCode::kInvalidArgument,
         formatted("eos_token_id is {}, expected a token of the vocabulary: n-grams end there",
                   eos == nullptr ? "missing" : json_excerpt(*eos)));
  return 0;
}

NgramEmbeddingSpec read_ngrams(Config& c, int64_t vocab_size) {
  NgramEmbeddingSpec ngrams;
  NgramSpec& rows = ngrams.rows;
  rows.ngram_size = c.require_int("ngram_size", {2, 8});
  rows.heads_per_ngram = c.require_int("heads_per_ngram", {1, 64});
  rows.embed_dim = c.require_int("ple_embed_dim", {1, 1 << 20});
  rows.vocab_base = c.require_int("ngram_vocab_size_base", {2, int64_t{1} << 32});
  rows.vocab_divisor = c.int_or("make_ngram_vocab_size_divisible_by", 128, {1, int64_t{1} << 40});
  rows.parts = c.require_int("split_ngram_parts", {1, 1 << 20});
  rows.seed = c.int_or("seed", 1234, {0, int64_t{1} << 62});
  rows.boundary = read_boundary(c, vocab_size);
  ngrams.conv_taps = c.require_int("ple_conv_kernel_size", {2, kConvTapsMax});
  ngrams.conv_step = rows.ngram_size;
  if (rows.embed_dim % rows.heads() != 0) {
    c.fail(ErrorCode::kInvalidArgument, formatted("ple_embed_dim {} is not a multiple of {} heads",
                                                  rows.embed_dim, rows.heads()));
  }
  if (ngrams.conv_past() >= kConvTapsMax) {
    c.fail(ErrorCode::kUnsupported,
           formatted("ple_conv_kernel_size is {}: with {} tokens from tap to tap it reaches {} "
                     "tokens, at most {}",
                     ngrams.conv_taps, ngrams.conv_step, ngrams.conv_past() + 1, kConvTapsMax));
  }
  return ngrams;
}

// The list counts layers from 1. Layers behind the last one are of a longer model.
void add_ngrams(Config& c, ModelSpec& spec) {
  std::vector<int64_t> ids = c.ints_or("ple_layer_ids", {});
  std::sort(ids.begin(), ids.end());
  if (ids.empty()) {
    return c.fail(ErrorCode::kUnsupported, "ple_layer_ids is empty, expected layers of n-grams");
  }
  if (ids.size() > kNgramLayersMax) {
    return c.fail(ErrorCode::kUnsupported, formatted("ple_layer_ids has {} layers, at most {}",
                                                     ids.size(), kNgramLayersMax));
  }
  NgramEmbeddingSpec ngrams = read_ngrams(c, spec.vocab_size);
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 1 || (i > 0 && ids[i] == ids[i - 1])) {
      return c.fail(
          ErrorCode::kInvalidArgument,
          formatted("ple_layer_ids has {}, expected numbers from 1 on, each once", ids[i]));
    }
    if (ids[i] > spec.num_layers()) break;
    ngrams.rows.number = static_cast<int64_t>(i);
    spec.layers[static_cast<size_t>(ids[i] - 1)].ngrams = ngrams;
  }
}

Result<ModelSpec> read_spec(Config& c) {
  ModelSpec spec = read_trunk(c);
  const int64_t num_layers = read_num_layers(c);
  spec.streams.count = c.require_int("hc_count", {2, kStreamsMax});
  spec.streams.gate_rank = c.require_int("hc_lowrank", {1, 1 << 20});
  AttentionSpec attending = read_attention(c, spec.hidden_size);
  const auto attention = share_mixer(attending);
  const auto delta = share_mixer(read_delta(c));
  LayerSpec layer;
  layer.moe = read_moe(c);
  for (const bool is_full : read_full_layers(c, num_layers)) {
    layer.mixer = is_full ? attention : delta;
    spec.layers.push_back(layer);
  }
  add_ngrams(c, spec);
  attending.index->keeps_tokens = true;
  layer.mixer = share_mixer(attending);
  read_draft_layer(c, spec, "mtp_num_hidden_layers", layer);
  if (spec.draft_layers > 0) c.expect_bool("mtp_use_dedicated_embeddings", false);
  c.ignore("number_of_conv_states");  // of a cache: follows from the convolutions
  return finish_spec(c, std::move(spec));
}

NameScheme names(const ModelSpec& spec) {
  NameScheme scheme = usual_names(spec);
  if (spec.draft_layers == 0) return scheme;
  const std::string draft = formatted("layers.{}", spec.num_text_layers());
  scheme.renamed = {{draft + ".enorm", "mtp.pre_fc_norm_embedding"},
                    {draft + ".hnorm", "mtp.pre_fc_norm_hidden"},
                    {draft + ".e_proj", "mtp.fc_embedding"},
                    {draft + ".h_proj", "mtp.fc_hidden"},
                    {draft + ".hyper_connection_mixer", "mtp.hyper_connection_mixer"},
                    {draft, "mtp.layers.0"}};
  return scheme;
}

std::unique_ptr<Model> create(const ModelSpec& spec, WeightStore& weights) {
  blocks::DecoderOptions options;
  options.names.input_norm = options.names.ffn_norm = options.names.final_norm = "";
  options.names.shared = "mlp.shared_expert";
  options.norm_add = zero_centred_norm_add(weights, spec.num_layers());
  return blocks::make_decoder(spec, weights, options);
}

MlxNames mlx_names(std::string_view) {
  return {.prefix = "language_model.model.",
          .head_prefix = "language_model.",
          .norms_hold_one = true,
          .outer_model_type = "qwen4_exp"};
}

}  // namespace

extern const Family family = {{"qwen4_exp", "qwen4_exp_text"}, read_spec, names, create, mlx_names};

}  // namespace moeflux::qwen4_exp
