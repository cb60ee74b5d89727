// Nemotron H without experts, and Nemotron 3 Nano, Super and Ultra: blocks of Mamba-2, attention
// without rotary positions, or networks of two matrices with relu^2 between them, each with a norm
// of its own. The mixture of DeepSeek-V3; in some models experts see fewer numbers than the router
// and the shared expert.
#include <algorithm>
#include <utility>

#include "base/format.h"
#include "model/blocks/decoder.h"
#include "model/family/family.h"
#include "model/family/spec_fields.h"
#include "model/mixers/attention.h"
#include "model/mixers/mamba2.h"
#include "model/mixers/no_mixer.h"

namespace moeflux::nemotron_h {
namespace {

enum class Block : uint8_t { kMamba, kAttention, kExperts, kDense };

// hybrid_override_pattern: a letter a block.
std::vector<Block> read_pattern(Config& c) {
  std::vector<Block> blocks;
  for (const char letter : c.string_or("hybrid_override_pattern", "")) {
    switch (letter) {
      case 'M':
        blocks.push_back(Block::kMamba);
        break;
      case '*':
        blocks.push_back(Block::kAttention);
        break;
      case 'E':
        blocks.push_back(Block::kExperts);
        break;
      case '-':
        blocks.push_back(Block::kDense);
        break;
      default:
        c.fail(ErrorCode::kUnsupported,
               formatted("hybrid_override_pattern has \"{}\", known are M, *, E and -", letter));
    }
  }
  return blocks;
}

std::vector<Block> read_block_types(Config& c) {
  std::vector<Block> blocks;
  for (const std::string& type : c.require_strings("layers_block_type")) {
    if (type == "mamba" || type == "linear_attention") {
      blocks.push_back(Block::kMamba);
    } else if (type == "attention" || type == "full_attention") {
      blocks.push_back(Block::kAttention);
    } else if (type == "moe") {
      blocks.push_back(Block::kExperts);
    } else if (type == "mlp") {
      blocks.push_back(Block::kDense);
    } else {
      c.fail(
          ErrorCode::kUnsupported,
          formatted("layers_block_type has \"{}\", known are mamba, attention, moe and mlp", type));
    }
  }
  return blocks;
}

std::vector<Block> read_blocks(Config& c) {
  c.expect_absent("block_configs", "blocks that differ in their widths");
  const bool has_pattern = c.has("hybrid_override_pattern");
  std::vector<Block> blocks = has_pattern ? read_pattern(c) : read_block_types(c);
  if (has_pattern && c.has("layers_block_type") && read_block_types(c) != blocks) {
    c.fail(ErrorCode::kInvalidArgument,
           "hybrid_override_pattern and layers_block_type contradict each other");
  }
  const auto count = static_cast<int64_t>(blocks.size());
  if (const int64_t stated = c.int_or("num_hidden_layers", count, {1, 4096}); stated != count) {
    c.fail(ErrorCode::kInvalidArgument,
           formatted("num_hidden_layers is {}, {} blocks are listed", stated, count));
  }
  return blocks;
}

AttentionSpec read_attention(Config& c, int64_t hidden_size) {
  AttentionSpec attention = read_heads(c, hidden_size);
  c.expect_bool("attention_bias", false);
  if (c.has("rope_theta") || c.has("rope_parameters") || c.has("rope_scaling")) {
    (void)read_rope(c, {.head_dim = attention.head_dim});  // which nothing turns by
  }
  return attention;
}

// Keys under which others keep the same; transformers reads them before its own.
std::string_view either(const Config& c, std::string_view other, std::string_view own) {
  return c.has(other) ? other : own;
}

Mamba2Spec read_mamba(Config& c) {
  Mamba2Spec mamba;
  mamba.scan.heads = c.require_int("mamba_num_heads", {1, 65536});
  mamba.scan.head_dim = c.require_int("mamba_head_dim", {1, 4096});
  mamba.scan.groups = c.require_int(either(c, "mamba_n_groups", "n_groups"), {1, 65536});
  mamba.scan.state_dim = c.require_int("ssm_state_size", {1, 4096});
  mamba.conv_taps = c.require_int(either(c, "mamba_d_conv", "conv_kernel"), {2, 8});
  mamba.conv_bias = c.bool_or(either(c, "mamba_conv_bias", "use_conv_bias"), true);
  mamba.norm_groups = mamba.scan.groups;
  if (mamba.scan.heads % mamba.scan.groups != 0) {
    c.fail(ErrorCode::kInvalidArgument,
           formatted("mamba_num_heads {} is not a multiple of n_groups {}", mamba.scan.heads,
                     mamba.scan.groups));
  }
  c.expect_string("mamba_hidden_act", "silu");
  for (const std::string_view key : {"mamba_proj_bias", "use_bias", "mlp_bias"}) {
    c.expect_bool(key, false);
  }
  expect_no_time_step_limit(c);
  // They are for training, for kernels, or for chunks that change no result.
  for (const std::string_view key :
       {"chunk_size", "expand", "mamba_ssm_cache_dtype", "rescale_prenorm_residual",
        "time_step_floor", "time_step_max", "time_step_min", "use_mamba_kernels",
        "layer_norm_epsilon", "norm_eps", "moe_latent_size"}) {
    c.ignore(key);
  }
  return mamba;
}

MoeSpec read_mixture(Config& c, const std::vector<Block>& blocks) {
  if (std::ranges::find(blocks, Block::kExperts) == blocks.end()) {
    for (const std::string_view key :
         {"n_group", "n_routed_experts", "n_shared_experts", "norm_topk_prob",
          "num_experts_per_tok", "moe_intermediate_size", "moe_shared_expert_intermediate_size",
          "routed_scaling_factor", "topk_group"}) {
      c.ignore(key);  // configs have transformers' defaults
    }
    return {};
  }
  MoeSpec moe = read_experts(c);
  c.expect_present("routed_scaling_factor");
  read_noaux_tc(c, moe);
  moe.glu.activation = Activation::kRelu;
  moe.latent_size = c.int_or("moe_latent_size", 0, {0, 1 << 20});
  c.expect_number("n_shared_experts", 1);
  moe.shared_intermediate_size = c.require_int("moe_shared_expert_intermediate_size");
  return moe;
}

Result<ModelSpec> read_spec(Config& c) {
  ModelSpec spec = read_trunk(c);
  c.expect_present("mlp_hidden_act");
  c.expect_string("mlp_hidden_act", "relu2");
  const auto attends = share_mixer(read_attention(c, spec.hidden_size));
  const auto scans = share_mixer(read_mamba(c));
  const auto none = share_mixer(NoMixerSpec{});
  const std::vector<Block> blocks = read_blocks(c);
  const MoeSpec moe = read_mixture(c, blocks);
  const int64_t dense_size = c.require_int("intermediate_size");
  for (const Block block : blocks) {
    LayerSpec layer;
    layer.mixer = block == Block::kMamba       ? std::shared_ptr<const MixerSpec>(scans)
                  : block == Block::kAttention ? attends
                                               : none;
    if (block == Block::kExperts) layer.moe = moe;
    if (block == Block::kDense) layer.dense_intermediate_size = dense_size;
    layer.dense_glu.activation = Activation::kRelu;
    spec.layers.push_back(std::move(layer));
  }
  return finish_spec(c, std::move(spec));
}

NameScheme names(const ModelSpec& spec) {
  NameScheme scheme = usual_names(spec);
  scheme.prefixes.insert(scheme.prefixes.begin(), "backbone.");
  scheme.renamed = {
      {"embed_tokens", "embeddings"}, {"self_attn", "mixer"}, {"mamba", "mixer"}, {"mlp", "mixer"}};
  return scheme;
}

std::unique_ptr<Model> create(const ModelSpec& spec, WeightStore& weights) {
  blocks::DecoderOptions options;
  options.names.input_norm = options.names.ffn_norm = "norm";  // a block has one
  options.names.final_norm = "norm_f";
  return blocks::make_decoder(spec, weights, options);
}

MlxNames mlx_names(std::string_view) { return {.prefix = "backbone."}; }

}  // namespace

extern const Family family = {{"nemotron_h"}, read_spec, names, create, mlx_names};

}  // namespace moeflux::nemotron_h
