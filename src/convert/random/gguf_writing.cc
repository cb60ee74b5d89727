#include "convert/random/gguf_writing.h"

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "base/format.h"
#include "base/json.h"
#include "model/gguf/gguf_model.h"
#include "model/mixers/attention.h"
#include "model/mixers/gated_delta.h"
#include "model/mixers/latent_attention.h"
#include "model/mixers/short_conv.h"

namespace moeflux {
namespace {

// Values of expert_gating_func.
constexpr int64_t kSoftmax = 1;
constexpr int64_t kSigmoidGating = 2;
constexpr int64_t kQuantizationVersion = 2;

/// Keys tell of all layers by what the first of a kind says, so each kind must be there. `trunk`
/// says whether there are experts.
Status check_kinds(const ModelSpec& spec, const Json& trunk) {
  const bool attends = first_mixer<AttentionSpec>(spec) != nullptr ||
                       first_mixer<LatentAttentionSpec>(spec) != nullptr;
  const bool has_experts = std::ranges::any_of(
      spec.layers, [](const LayerSpec& layer) { return layer.moe.num_experts > 0; });
  const bool wants_experts =
      std::ranges::any_of(std::array{"num_experts", "num_local_experts", "n_routed_experts"},
                          [&](const char* key) { return trunk.contains(key) && trunk[key] != 0; });
  if (attends && (has_experts || !wants_experts)) return {};
  return make_error(ErrorCode::kInvalidArgument,
                    "none of the {} layers has {}, without which a GGUF cannot describe the model; "
                    "take more layers",
                    spec.num_layers(), attends ? "experts" : "attention");
}

std::string rope_type(const Json& scaling) {
  return scaling.value("rope_type", scaling.value("type", ""));
}

/// Positions must be such that keys say all of them.
Status check_positions(const Json& trunk) {
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const Json scaling = trunk.value(key, Json());
    const std::string type = scaling.is_object() ? rope_type(scaling) : "";
    if (type.empty() || type == "default" || type == "yarn" || type == "linear") continue;
    return make_error(ErrorCode::kUnsupported,
                      "{}: positions of type {} need a tensor of the file, which random GGUF files "
                      "do not have",
                      key, type);
  }
  return {};
}

class Writer {
 public:
  Writer(const ModelSpec& spec, const Json& config, const GgufWritten& written)
      : spec_(spec),
        trunk_(config.contains("text_config") ? config["text_config"] : config),
        prefix_(std::string(written.name) + "."),
        has_pattern_(written.has_pattern) {}

  gguf::KeyWriter run(std::string_view name) {
    keys_.text("general.architecture", std::string_view(prefix_).substr(0, prefix_.size() - 1));
    keys_.text("general.type", "model");
    keys_.text("general.name", name);
    keys_.u32("general.quantization_version", kQuantizationVersion);
    write_trunk();
    write_attention();
    if (const auto* latent = first_mixer<LatentAttentionSpec>(spec_)) write_latent(*latent);
    if (const auto* delta = first_mixer<GatedDeltaSpec>(spec_)) write_delta(*delta);
    if (const auto* conv = first_mixer<ShortConvSpec>(spec_)) u32("shortconv.l_cache", conv->taps);
    write_rope();
    write_feed_forward();
    keys_.text("tokenizer.ggml.model", "no_vocab");
    return std::move(keys_);
  }

 private:
  void u32(std::string_view key, int64_t value) { keys_.u32(prefix_ + std::string(key), value); }
  void f32(std::string_view key, double value) { keys_.f32(prefix_ + std::string(key), value); }

  void write_trunk() {
    u32("vocab_size", spec_.vocab_size);
    u32("context_length", spec_.max_position_embeddings);
    u32("embedding_length", spec_.hidden_size);
    u32("block_count", spec_.num_layers());
    f32("attention.layer_norm_rms_epsilon", spec_.rms_norm_eps);
  }

  // Blocks of convolutions are told apart by having no key-value heads.
  void write_attention() {
    const auto* attention = first_mixer<AttentionSpec>(spec_);
    if (attention == nullptr) return;
    u32("attention.head_count", attention->num_heads);
    if (first_mixer<ShortConvSpec>(spec_) != nullptr) {
      std::vector<int64_t> kv_heads;
      for (const LayerSpec& layer : spec_.layers) {
        const auto* own = mixer_as<AttentionSpec>(layer);
        kv_heads.push_back(own == nullptr ? 0 : own->num_kv_heads);
      }
      keys_.ints(prefix_ + "attention.head_count_kv", kv_heads);
    } else {
      u32("attention.head_count_kv", attention->num_kv_heads);
    }
    u32("attention.key_length", attention->head_dim);
    u32("attention.value_length", attention->v_head_dim);
    u32("rope.dimension_count", attention->rope.rotary_dim);
    int64_t window = 0;
    for (const LayerSpec& layer : spec_.layers) {
      const auto* own = mixer_as<AttentionSpec>(layer);
      if (own != nullptr) window = std::max(window, own->window);
    }
    if (window > 0) u32("attention.sliding_window", window);
    if (has_pattern_) write_pattern();
  }

  void write_pattern() {
    std::vector<int64_t> slides;
    for (const LayerSpec& layer : spec_.layers) {
      const auto* own = mixer_as<AttentionSpec>(layer);
      slides.push_back(own != nullptr && own->window > 0 ? 1 : 0);
    }
    keys_.ints(prefix_ + "attention.sliding_window_pattern", slides);
  }

  // Heads are those of absorbed attention, with one key-value head; lengths of heads stand beside.
  void write_latent(const LatentAttentionSpec& latent) {
    u32("attention.head_count", latent.num_heads);
    u32("attention.head_count_kv", 1);
    u32("attention.key_length", latent.latent_dim());
    u32("attention.value_length", latent.kv_lora_rank);
    u32("attention.key_length_mla", latent.nope_dim + latent.rope_dim);
    u32("attention.value_length_mla", latent.v_dim);
    if (latent.q_lora_rank > 0) u32("attention.q_lora_rank", latent.q_lora_rank);
    u32("attention.kv_lora_rank", latent.kv_lora_rank);
    u32("rope.dimension_count", latent.rope_dim);
  }

  void write_delta(const GatedDeltaSpec& delta) {
    u32("ssm.conv_kernel", delta.conv_taps);
    u32("ssm.inner_size", delta.values_width());
    u32("ssm.state_size", delta.key_dim);
    u32("ssm.time_step_rank", delta.value_heads);
    u32("ssm.group_count", delta.key_heads);
    u32("full_attention_interval", trunk_.value("full_attention_interval", int64_t{4}));
  }

  const Json& rope_parameters() const {
    return trunk_.contains("rope_parameters") ? trunk_["rope_parameters"] : trunk_;
  }

  void write_rope() {
    const Json& rope = rope_parameters();
    f32("rope.freq_base", rope.value("rope_theta", trunk_.value("rope_theta", 10000.0)));
    if (rope.contains("mrope_section")) {
      auto sections = rope["mrope_section"].get<std::vector<int64_t>>();
      sections.push_back(0);  // of a fourth position that texts do not have
      keys_.ints(prefix_ + "rope.dimension_sections", sections);
    }
    const Json stated = trunk_.value("rope_scaling", Json());
    const Json& scaling = stated.is_object() ? stated : rope;
    if (rope_type(scaling) != "yarn") return;
    keys_.text(prefix_ + "rope.scaling.type", "yarn");
    f32("rope.scaling.factor", scaling["factor"]);
    u32("rope.scaling.original_context_length",
        scaling["original_max_position_embeddings"].get<int64_t>());
    f32("rope.scaling.yarn_beta_fast", scaling.value("beta_fast", 32.0));
    f32("rope.scaling.yarn_beta_slow", scaling.value("beta_slow", 1.0));
    const auto* attention = first_mixer<AttentionSpec>(spec_);
    const bool grows = attention != nullptr && attention->query_scale.beta != 0.0;
    if (scaling.contains("mscale_all_dim")) {
      // Where queries grow with positions the key has the number itself.
      f32("rope.scaling.yarn_log_multiplier",
          (grows ? 1.0 : 0.1) * scaling["mscale_all_dim"].get<double>());
    }
    if (grows) f32("attention.temperature_scale", attention->query_scale.beta);
  }

  void write_feed_forward() {
    if (last_moe(spec_).num_experts == 0) {
      u32("feed_forward_length", spec_.layers.front().dense_intermediate_size);
      return;
    }
    int64_t dense_layers = 0;
    while (spec_.layers[static_cast<size_t>(dense_layers)].moe.num_experts == 0) ++dense_layers;
    const MoeSpec& moe = spec_.layers[static_cast<size_t>(dense_layers)].moe;
    if (dense_layers > 0) u32("leading_dense_block_count", dense_layers);
    u32("feed_forward_length", dense_layers > 0 ? spec_.layers.front().dense_intermediate_size
                                                : moe.moe_intermediate_size);
    write_experts(moe);
  }

  void write_experts(const MoeSpec& moe) {
    u32("expert_count", moe.num_experts);
    u32("expert_used_count", moe.experts_per_token);
    u32("expert_feed_forward_length", moe.moe_intermediate_size);
    if (moe.shared_gate) {
      u32("expert_shared_feed_forward_length", moe.shared_intermediate_size);
    } else if (moe.shared_intermediate_size > 0) {
      u32("expert_shared_count", moe.shared_intermediate_size / moe.moe_intermediate_size);
    }
    const bool is_sigmoid = moe.router.score == RouterScore::kSigmoid;
    if (!is_sigmoid && first_mixer<LatentAttentionSpec>(spec_) == nullptr) return;
    u32("expert_gating_func", is_sigmoid ? kSigmoidGating : kSoftmax);
    keys_.flag(prefix_ + "expert_weights_norm", moe.router.normalize);
    f32("expert_weights_scale", moe.router.scale);
    if (moe.router.num_groups > 1) {
      u32("expert_group_count", moe.router.num_groups);
      u32("expert_group_used_count", moe.router.groups_kept);
    }
  }

  const ModelSpec& spec_;
  const Json& trunk_;
  const std::string prefix_;
  const bool has_pattern_;
  gguf::KeyWriter keys_;
};

}  // namespace

Result<gguf::KeyWriter> gguf_keys(const ModelSpec& spec, std::string_view config_json,
                                  std::string_view name) {
  MF_ASSIGN_OR_RETURN(const GgufArchitecture* architecture, gguf_architecture_of(spec.model_type));
  MF_ASSIGN_OR_RETURN(const Json config, parse_json(config_json, "config.json"));
  const Json& trunk = config.contains("text_config") ? config["text_config"] : config;
  MF_RETURN_IF_ERROR(check_kinds(spec, trunk));
  MF_RETURN_IF_ERROR(check_positions(trunk));
  for (const GgufWritten& written : architecture->written) {
    if (written.model_type == spec.model_type) return Writer(spec, config, written).run(name);
  }
  __builtin_unreachable();
}

}  // namespace moeflux
