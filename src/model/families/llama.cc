// Llama and the dense models of its shape: Mistral (a window in every layer), Ministral 3 (queries
// that grow with their position) and SmolLM3 (layers without rotary positions).
#include <string>
#include <utility>

#include "model/family/family.h"
#include "model/family/spec_fields.h"
#include "model/mixers/attention.h"

namespace moeflux::llama {
namespace {

// SmolLM3: no_rope_layers has a 1 for each layer with rotary positions.
std::vector<bool> read_rotating_layers(Config& c, int64_t num_layers) {
  constexpr std::string_view kList = "no_rope_layers";
  const int64_t interval = c.int_or("no_rope_layer_interval", 4, {1, 4096});
  std::vector<bool> rotating;
  for (int64_t i = 1; i <= num_layers; ++i) rotating.push_back(i % interval != 0);
  if (c.ints_or(kList, {}).empty()) return rotating;
  const std::vector<int64_t> listed = read_layer_ints(c, kList, num_layers);
  for (size_t i = 0; i < rotating.size(); ++i) rotating[i] = listed[i] != 0;
  return rotating;
}

// Layers without rotary positions may have a window.
void set_smol_layers(Config& c, const AttentionSpec& attention, std::vector<LayerSpec>& layers) {
  const auto num_layers = static_cast<int64_t>(layers.size());
  const std::vector<bool> rotating = read_rotating_layers(c, num_layers);
  const bool has_windows = c.bool_or("use_sliding_window", false);
  const int64_t window = read_window(c, 0);
  std::vector<bool> sliding;
  if (c.has("layer_types")) sliding = read_sliding_layers(c, num_layers);
  for (size_t i = 0; i < layers.size(); ++i) {
    AttentionSpec own = attention;
    if (!rotating[i]) own.rope = {};
    // layer_types alone decide where they are there, as in transformers.
    const bool slides = sliding.empty() ? has_windows && !rotating[i] : sliding[i];
    if (slides) own.window = window;
    layers[i].mixer = share_mixer(std::move(own));
  }
}

Result<ModelSpec> read_spec(Config& c) {
  const std::string type(c.model_type());
  const bool is_smol = type == "smollm3";
  ModelSpec spec = read_trunk(c);
  if (is_smol) spec.tie_word_embeddings = c.bool_or("tie_word_embeddings", true);
  const int64_t num_layers = read_num_layers(c);
  LayerSpec layer;
  AttentionSpec attention = read_heads(c, spec.hidden_size);
  if (type == "mistral" || type == "ministral3") {
    c.ignore("attention_bias");  // which their code does not know
  } else {
    read_attention_bias(c, attention);
  }
  // Llama 2 and its kin were published without a base, which transformers then has.
  if (type != "ministral3") c.assume("rope_theta", is_smol ? 2e6 : 1e4);
  attention.rope = read_rope(c, {.head_dim = attention.head_dim,
                                 .interleaved = c.bool_or("rope_interleave", false),
                                 .scales_queries = type == "ministral3"});
  attention.query_scale = attention.rope.query_scale;
  // Mistral has this window in transformers where its config does not mention one.
  if (type == "mistral") attention.window = read_window(c, 4096);
  if (type == "ministral3") attention.window = read_window(c, 0);
  layer.mixer = share_mixer(attention);
  read_dense_network(c, layer);
  spec.layers.assign(static_cast<size_t>(num_layers), layer);
  if (is_smol) set_smol_layers(c, attention, spec.layers);
  return finish_spec(c, std::move(spec));
}

}  // namespace

extern const Family family = {{"llama", "mistral", "ministral3", "smollm3"}, read_spec};

}  // namespace moeflux::llama
