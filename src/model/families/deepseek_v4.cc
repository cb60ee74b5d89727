// DeepSeek-V4-Flash and V4-Pro: attention to a window and to compressed entries of the whole
// context, which in every other layer an index chooses; four residual streams; experts judged by
// the root of softplus, in the first layers listed by token. V4.1-Flash: few layers make entries,
// or choose some, for those behind them; keys are rounded; branches read streams by earlier gates;
// an embedding of n-grams in some layers, whose table stays on the drive. Text only.
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

namespace moeflux::deepseek_v4 {
namespace {

constexpr std::string_view kSliding = "sliding_attention";
constexpr std::string_view kSparse = "compressed_sparse_attention";
constexpr std::string_view kHeavy = "heavily_compressed_attention";

/// Tokens of an entry where an index chooses among overlapping ones, which is what tells them from
/// those that are all attended to.
constexpr int64_t kSparseUnit = 4;

// Each looks for primes behind those of the layers before it.
constexpr size_t kNgramLayersMax = 8;

// Seeds of numpy's generator are this times the number of the layer.
constexpr int64_t kNgramSeedStep = 10007;

bool is_v41(const Config& c) { return c.model_type().starts_with("deepseek_v41"); }

/// How a layer attends.
struct LayerKind {
  int64_t unit = 0;  // tokens of an entry; 0: there are none
  bool is_sparse = false;
};

void check_unit(Config& c, int64_t unit, std::string_view what, int64_t head_dim) {
  const int64_t least = is_v41(c) ? 1 : 2;
  if (unit == 0) return;
  if (unit >= least && unit <= kPoolMax && head_dim % unit == 0 &&
      SequenceState::kPageTokens % unit == 0) {
    return;
  }
  c.fail(ErrorCode::kUnsupported,
         formatted("{}: {} tokens, expected a divisor of {} and {} from {} to {}", what, unit,
                   head_dim, SequenceState::kPageTokens, least, kPoolMax));
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
      kinds.push_back({unit, unit == kSparseUnit && !is_v41(c)});
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

using Attentions = std::vector<CompressedAttentionSpec>;  // of all layers

/// The layers that a list names, of those that there are.
std::vector<bool> read_sources(Config& c, std::string_view key, const Attentions& layers) {
  std::vector<bool> sources(layers.size());
  for (const int64_t id : c.ints_or(key, {})) {
    if (id < 0) c.fail(ErrorCode::kInvalidArgument, formatted("{} has {}", key, id));
    if (id < 0 || id >= static_cast<int64_t>(layers.size())) continue;
    sources[static_cast<size_t>(id)] = true;
    if (layers[static_cast<size_t>(id)].unit > 0) continue;
    c.fail(ErrorCode::kInvalidArgument,
           formatted("{} has layer {}, whose compress_ratios is 0", key, id));
  }
  return sources;
}

// A layer without entries or a choice of its own has those of the last one that has some.
void share_sources(Config& c, Attentions& layers, const EntryIndexSpec& index) {
  const std::vector<bool> keeps = read_sources(c, "kv_source_layer_ids", layers);
  const std::vector<bool> chooses = read_sources(c, "index_source_layer_ids", layers);
  int32_t keeper = -1;
  int32_t chooser = -1;
  for (size_t i = 0; i < layers.size(); ++i) {
    CompressedAttentionSpec& own = layers[i];
    if (own.unit == 0) continue;
    if (keeps[i]) keeper = static_cast<int32_t>(i);
    if (chooses[i]) chooser = static_cast<int32_t>(i);
    if (keeps[i] && !chooses[i]) {
      return c.fail(ErrorCode::kUnsupported,
                    formatted("kv_source_layer_ids has layer {}, expected layers of "
                              "index_source_layer_ids",
                              i));
    }
    if (keeper < 0 || layers[static_cast<size_t>(keeper)].unit != own.unit) {
      return c.fail(ErrorCode::kInvalidArgument,
                    formatted("compress_ratios: layer {} has entries of {} tokens, the last layer "
                              "of kv_source_layer_ids before it has none of them",
                              i, own.unit));
    }
    check_unit(c, own.unit, "index_head_dim", index.head_dim);
    if (!keeps[i]) {
      own.entries_of = keeper;
      layers[static_cast<size_t>(keeper)].lends_entries = true;
    }
    if (chooses[i]) {
      own.index = index;
    } else {
      own.chosen_by = chooser;
      own.shared_selected = index.selected;
      layers[static_cast<size_t>(chooser)].lends_choice = true;
    }
  }
}

// Indexes behind one layer keep to the blocks of entries that it has chosen.
void share_candidates(Config& c, Attentions& layers, const EntryIndexSpec& index) {
  const int64_t source = c.int_or("candidate_source_layer_id", -1, {-1, 1 << 20});
  const int64_t blocks = c.int_or("candidate_topk_blocks", 0, {0, 1 << 20});
  const int64_t size = c.int_or("candidate_block_size", 0, {0, kPoolMax});
  if (source < 0 || blocks == 0 || source >= static_cast<int64_t>(layers.size())) return;
  CompressedAttentionSpec& from = layers[static_cast<size_t>(source)];
  if (!from.index || from.unit != 1) {
    return c.fail(ErrorCode::kUnsupported,
                  formatted("candidate_source_layer_id is {}, expected a layer of "
                            "index_source_layer_ids whose compress_ratios is 1",
                            source));
  }
  if (size < 1 || (blocks - 1) * size + 1 < index.selected) {
    return c.fail(
        ErrorCode::kUnsupported,
        formatted("candidate_topk_blocks {} of candidate_block_size {}: expected at least "
                  "index_topk {} entries in all but one",
                  blocks, size, index.selected));
  }
  const auto keeper = [&](int64_t i) {
    const int32_t other = layers[static_cast<size_t>(i)].entries_of;
    return other < 0 ? i : other;
  };
  for (int64_t i = source + 1; i < static_cast<int64_t>(layers.size()); ++i) {
    CompressedAttentionSpec& own = layers[static_cast<size_t>(i)];
    if (!own.index) continue;
    if (keeper(i) != keeper(source)) {
      return c.fail(ErrorCode::kUnsupported,
                    formatted("candidate_source_layer_id is {}: layer {} chooses among other "
                              "entries",
                              source, i));
    }
    own.index->within = static_cast<int32_t>(source);
    from.index->outer_selected = blocks;
    from.index->outer_tokens = size;
  }
}

void read_v41(Config& c, Attentions& layers, EntryIndexSpec index) {
  constexpr int64_t kBlock = rounded_columns(BlockRounding::kE4m3);
  c.expect_bool("q_head_norm", false);
  for (const auto& [key, dim] :
       {std::pair{"head_dim", layers.front().head_dim}, {"index_head_dim", index.head_dim}}) {
    if (dim % kBlock == 0) continue;
    c.fail(ErrorCode::kUnsupported,
           formatted("{} is {}, expected a multiple of {}: keys are rounded in blocks", key, dim,
                     kBlock));
  }
  for (CompressedAttentionSpec& own : layers) {
    own.norms_queries = false;
    own.biased_gates = false;
    own.rounds = true;
  }
  index.keys_of_entries = true;
  share_sources(c, layers, index);
  share_candidates(c, layers, index);
}

// Gives the attention of layers that have a window alone.
CompressedAttentionSpec read_mixers(Config& c, ModelSpec& spec) {
  CompressedAttentionSpec attention = read_attention(c);
  const std::vector<LayerKind> kinds = read_kinds(c, spec.num_layers(), attention.head_dim);
  const Ropes ropes = read_ropes(c, attention.head_dim);
  const EntryIndexSpec index = read_index(c, ropes.compressed.rotary_dim);
  Attentions layers;
  for (const LayerKind& kind : kinds) {
    CompressedAttentionSpec& own = layers.emplace_back(attention);
    own.unit = kind.unit;
    own.overlaps = kind.is_sparse;
    own.rope = own.unit == 0 ? ropes.sliding : ropes.compressed;
    if (kind.is_sparse) {
      own.index = index;
      check_unit(c, own.unit, "index_head_dim", index.head_dim);
    }
  }
  if (is_v41(c)) read_v41(c, layers, index);
  for (size_t i = 0; i < layers.size(); ++i) {
    spec.layers[i].mixer = share_mixer(std::move(layers[i]));
  }
  attention.rope = ropes.sliding;
  return attention;
}

NgramEmbeddingSpec read_engram(Config& c, int64_t vocab_size) {
  NgramEmbeddingSpec ngrams;
  NgramSpec& rows = ngrams.rows;
  rows.ngram_size = c.require_int("engram_max_ngram_size", {2, 8});
  rows.heads_per_ngram = c.require_int("engram_n_heads", {1, 64});
  rows.embed_dim = c.require_int("engram_head_dim", {1, 1 << 16}) * rows.heads();
  rows.vocab_base = c.require_int("engram_vocab_size", {2, int64_t{1} << 32});
  rows.num_codes = c.require_int("engram_compressed_vocab_size", {1, vocab_size});
  rows.pad = static_cast<TokenId>(c.int_or("engram_pad_token_id", 2, {0, vocab_size - 1}));
  return ngrams;
}

void add_engrams(Config& c, ModelSpec& spec) {
  const std::vector<int64_t> ids = c.ints_or("engram_layer_ids", {});
  const std::vector<int64_t> rows = c.ints_or("engram_num_embeddings", {});
  if (ids.empty()) return;
  if (ids.size() > kNgramLayersMax || rows.size() != ids.size()) {
    return c.fail(ErrorCode::kUnsupported,
                  formatted("engram_layer_ids has {} layers and engram_num_embeddings {}, expected "
                            "as many and at most {}",
                            ids.size(), rows.size(), kNgramLayersMax));
  }
  NgramEmbeddingSpec ngrams = read_engram(c, spec.vocab_size);
  for (size_t i = 0; i < ids.size(); ++i) {
    const bool is_new = std::find(ids.begin(), ids.begin() + static_cast<ptrdiff_t>(i), ids[i]) ==
                        ids.begin() + static_cast<ptrdiff_t>(i);
    if (ids[i] < 0 || !is_new || rows[i] < 1 || rows[i] > int64_t{1} << 40) {
      return c.fail(ErrorCode::kInvalidArgument,
                    formatted("engram_layer_ids has {} with engram_num_embeddings {}, expected "
                              "layers, each once, with rows",
                              ids[i], rows[i]));
    }
    if (ids[i] >= spec.num_layers()) continue;  // of a longer model
    ngrams.rows.number = static_cast<int64_t>(i);
    ngrams.rows.seed = kNgramSeedStep * ids[i];
    ngrams.rows.table_rows = rows[i];
    spec.layers[static_cast<size_t>(ids[i])].ngrams = ngrams;
  }
}

// The layers that list experts by token: the first ones, or those that are named.
std::vector<bool> read_listed_layers(Config& c, int64_t num_layers) {
  std::vector<bool> listed;
  if (is_v41(c)) {
    c.expect_number("num_hash_layers", 0.0);
    return std::vector<bool>(static_cast<size_t>(num_layers));
  }
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
  c.ignore("norm_topk_prob");  // weights are normalised whatever it says
  moe.router.normalize = true;
  moe.router.normalize_epsilon = 1e-20f;
  moe.router.scale = static_cast<float>(c.require_number("routed_scaling_factor", 0.0, 1e6));
  moe.glu = {.limit = static_cast<float>(c.require_number("swiglu_limit", 1e-6, 1e6))};
  c.expect_bool("mlp_bias", false);
  c.expect_number("gate_temp", 1.0);
  read_shared_experts(c, moe);
  return moe;
}

StreamSpec read_streams(Config& c) {
  StreamSpec streams;
  streams.count = c.require_int("hc_mult", {2, kStreamsMax});
  streams.iterations = c.require_int("hc_sinkhorn_iters", {1, 1000});
  streams.eps = static_cast<float>(c.require_number("hc_eps", 0.0, 1.0));
  streams.gated_end = !is_v41(c);
  streams.reads_late = is_v41(c);
  c.expect_bool("hc_pre_from_prev_sublayer", streams.reads_late);
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
  const CompressedAttentionSpec sliding = read_mixers(c, spec);
  if (is_v41(c)) {
    add_engrams(c, spec);
  } else {
    LayerSpec draft;
    draft.moe = moe;
    draft.moe.correction_bias = true;
    draft.mixer = share_mixer(sliding);
    read_draft_layer(c, spec, "num_nextn_predict_layers", draft);
  }
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
  // Biases of tokens that are parts of pictures.
  for (int64_t i = 0; i < spec.num_layers(); ++i) {
    scheme.ignored_prefixes.push_back(formatted("layers.{}.ffn.gate.bias_vl", i));
  }
  if (spec.draft_layers == 0) return scheme;
  const std::string draft = formatted("layers.{}", spec.num_text_layers());
  scheme.renamed.push_back({draft + ".shared_head.norm", "mtp.0.norm"});
  scheme.renamed.push_back({draft, "mtp.0"});
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

extern const Family family = {
    {"deepseek_v4", "deepseek_v41", "deepseek_v41_text"}, read_spec, names, create};

}  // namespace moeflux::deepseek_v4
