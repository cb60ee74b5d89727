// GLM-5.3-Flash's text: layers of Kimi delta attention with bounded decays, every fourth one with
// latent attention, of which no dimension turns, to tokens that an index of pooled keys has chosen.
// The residual has several streams; the mixture is that of DeepSeek-V3 with limited units.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/format.h"
#include "model/family/family.h"
#include "model/family/spec_fields.h"
#include "model/mixers/kda.h"
#include "model/mixers/latent_attention.h"
#include "state/sequence_state.h"

namespace moeflux::glm5_next {
namespace {

constexpr std::string_view kLinear = "linear_attention";

// Reads the publisher's object linear_attn_config, whose lists of layers count from 0, or
// transformers' spelling.
KdaSpec read_kda(Config& c, int64_t num_layers, std::vector<bool>& full) {
  KdaSpec kda;
  kda.low_rank = true;
  const auto read = [&](Config& own, std::string_view heads, std::string_view dim,
                        std::string_view taps, std::string_view bound) {
    kda.heads = own.require_int(heads, {1, 4096});
    kda.head_dim = own.require_int(dim, {1, 4096});
    kda.conv_taps = own.require_int(taps, {2, 8});
    kda.decay_bound = static_cast<float>(own.require_number(bound, -1e3, -1e-3));
  };
  if (!c.has("linear_attn_config")) {
    read(c, "linear_num_heads", "linear_head_dim", "linear_conv_kernel_dim", "linear_lower_bound");
    return kda;
  }
  Config own = c.object("linear_attn_config");
  read(own, "num_heads", "head_dim", "short_conv_kernel_size", "gate_lower_bound");
  std::vector<bool> linear(full.size(), false);
  mark_listed_layers(own, "kda_layers", linear);
  if (own.has("full_attn_layers")) {
    full.assign(full.size(), false);
    mark_listed_layers(own, "full_attn_layers", full);
  }
  for (int64_t i = 0; own.has("kda_layers") && i < num_layers; ++i) {
    if (linear[static_cast<size_t>(i)] != full[static_cast<size_t>(i)]) continue;
    own.fail(ErrorCode::kInvalidArgument,
             formatted("layer {} is in both or neither of kda_layers and full_attn_layers", i));
  }
  c.absorb(own);
  return kda;
}

// The word of layer_types for the others: that of transformers, old or new, or the publisher's.
std::string_view full_layer_word(const Config& c) {
  const Json* types = c.find("layer_types");
  for (const std::string_view word : {"indexed_attention", "full_attention"}) {
    if (types != nullptr && std::ranges::find(*types, word) != types->end()) return word;
  }
  return "deepseek_sparse_attention";
}

std::vector<bool> read_full_layers(Config& c, int64_t num_layers) {
  const std::vector<std::string> types = read_layer_types(
      c, num_layers, {"layer_types", std::string(kLinear), std::string(full_layer_word(c)), 4});
  std::vector<bool> full;
  for (const std::string& type : types) full.push_back(type != kLinear);
  return full;
}

KeyIndexSpec read_index(Config& c) {
  KeyIndexSpec index;
  index.pooled = true;
  index.recent = 1;  // the pool that is not whole yet
  index.num_heads = c.require_int("index_n_heads", {1, 4096});
  index.head_dim = c.require_int("index_head_dim", {1, 4096});
  index.unit = c.require_int("index_kpool", {2, kPoolMax});
  const int64_t tokens = c.require_int("index_topk", {1, 1 << 20});
  index.selected = tokens / index.unit + 1;
  if (tokens % index.unit != 0 || index.head_dim % index.unit != 0 ||
      SequenceState::kPageTokens % index.unit != 0) {
    c.fail(ErrorCode::kUnsupported,
           formatted("index_kpool is {}, expected a divisor of index_topk {}, index_head_dim {} "
                     "and {}",
                     index.unit, tokens, index.head_dim, SequenceState::kPageTokens));
  }
  c.expect_bool("index_kpool_compress", true);
  c.expect_bool("index_kpool_always_select_tail", true);
  return index;
}

// The layers of sparse attention that have an index; the others see what the last one before them
// has chosen, as in GLM-5.2. The list's entries for other layers do not matter.
std::vector<bool> read_indexed_layers(Config& c, const std::vector<bool>& sparse) {
  std::vector<bool> indexed = sparse;
  if (!c.has("indexer_types")) return indexed;
  const auto num_layers = static_cast<int64_t>(sparse.size());
  const std::vector<std::string> types =
      read_layer_types(c, num_layers, {"indexer_types", "full", "shared", num_layers + 1});
  for (size_t i = 0; i < indexed.size(); ++i) indexed[i] = sparse[i] && types[i] == "full";
  const auto first = std::find(sparse.begin(), sparse.end(), true);
  if (first != sparse.end() && !indexed[static_cast<size_t>(first - sparse.begin())]) {
    c.fail(ErrorCode::kInvalidArgument,
           "the first layer of sparse attention has no index by indexer_types, and there is no "
           "earlier choice to share");
  }
  return indexed;
}

StreamSpec read_streams(Config& c) {
  StreamSpec streams;
  streams.count = c.require_int("hc_mult", {2, kStreamsMax});
  streams.iterations = c.require_int("hc_sinkhorn_iters", {1, 1000});
  streams.eps = static_cast<float>(c.require_number("hc_eps", 0.0, 1.0));
  return streams;
}

LatentAttentionSpec read_attention(Config& c, float norm_eps) {
  LatentAttentionSpec attention = read_latent_attention_without_rope(c);
  attention.latent_norm_eps = norm_eps;
  attention.index = read_index(c);
  attention.tokens_read = attention.index->tokens_read();
  if (attention.rope_dim != 0) {
    c.fail(ErrorCode::kUnsupported,
           formatted("qk_rope_head_dim is {}, expected 0", attention.rope_dim));
  }
  if (attention.q_lora_rank == 0) {
    c.fail(ErrorCode::kUnsupported, "q_lora_rank is missing, which an index needs for its queries");
  }
  return attention;
}

Result<ModelSpec> read_spec(Config& c) {
  ModelSpec spec = read_trunk(c);
  const int64_t num_layers = read_num_layers(c);
  spec.streams = read_streams(c);
  std::vector<bool> full = read_full_layers(c, num_layers);
  const auto linear = share_mixer(read_kda(c, num_layers, full));
  LatentAttentionSpec latent = read_attention(c, spec.rms_norm_eps);
  const auto attention = share_mixer(latent);
  latent.index.reset();
  const auto sharing = share_mixer(latent);
  const std::vector<bool> indexed = read_indexed_layers(c, full);
  MoeSpec moe = read_experts(c);
  c.expect_present("routed_scaling_factor");
  read_noaux_tc(c, moe);
  read_shared_experts(c, moe);
  LayerSpec layer;
  layer.dense_glu = {.limit = static_cast<float>(c.require_number("swiglu_limit", 1e-6, 1e6))};
  moe.glu = layer.dense_glu;
  spec.layers = make_layers(c, layer, moe, read_dense_layers(c, num_layers, 3));
  for (size_t i = 0; i < full.size(); ++i) {
    if (!full[i]) {
      spec.layers[i].mixer = linear;
    } else {
      spec.layers[i].mixer = indexed[i] ? attention : sharing;
    }
  }
  return finish_spec(c, std::move(spec));
}

}  // namespace

extern const Family family = {{"glm5_next", "glm5_next_text"}, read_spec};

}  // namespace moeflux::glm5_next
