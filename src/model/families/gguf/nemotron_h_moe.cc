// Nemotron H and Nemotron 3 as GGUF files spell them. A block has key-value heads, or a width of
// its network, or neither: then it is Mamba-2, whose decay is stored as its rate. No position
// counts.
#include "base/format.h"
#include "model/gguf/gguf_architecture.h"

namespace moeflux::gguf_nemotron_h_moe {
namespace {

void read_blocks(GgufKeys& keys, Json& c) {
  const std::vector<int64_t> kv_heads = keys.of_blocks("attention.head_count_kv");
  const std::vector<int64_t> widths = keys.of_blocks("feed_forward_length");
  Json types = Json::array();
  for (int64_t i = 0; i < keys.num_layers(); ++i) {
    const auto block = static_cast<size_t>(i);
    if (kv_heads[block] != 0) {
      types.push_back("attention");
    } else if (widths[block] == 0) {
      types.push_back("mamba");
    } else {
      const bool has_router = keys.tensor(formatted("blk.{}.ffn_gate_inp.weight", i)) != nullptr;
      types.push_back(has_router ? "moe" : "mlp");
      if (!has_router) c["intermediate_size"] = widths[block];
    }
  }
  c["layers_block_type"] = types;
}

// Ollama's files do not say the width of the latent, but their tensors do.
int64_t latent_rows(const GgufKeys& keys) {
  for (const gguf::TensorInfo& tensor : keys.model().tensors()) {
    if (tensor.name.ends_with(".ffn_latent_in.weight") && tensor.shape.rank() == 2) {
      return tensor.shape[0];
    }
  }
  return 0;
}

void config(GgufKeys& keys, Json& c) {
  c["model_type"] = "nemotron_h";
  c["mlp_hidden_act"] = "relu2";
  read_gguf_attention(keys, c);
  c.erase("rope_theta");
  c.erase("partial_rotary_factor");
  const GgufScan scan = read_gguf_scan(keys);
  c["mamba_num_heads"] = scan.heads;
  c["mamba_head_dim"] = scan.head_dim;
  c["n_groups"] = scan.groups;
  c["ssm_state_size"] = scan.state_dim;
  c["conv_kernel"] = scan.conv_taps;
  c["use_conv_bias"] = scan.conv_bias;
  if (keys.int_or("expert_count", 0) == 0) {
    keys.expect_int("expert_used_count", 0);
    return read_blocks(keys, c);
  }
  read_gguf_experts(keys, c);
  read_gguf_noaux_tc(keys, c);
  c["moe_latent_size"] = keys.int_or("moe_latent_size", latent_rows(keys));
  c["n_shared_experts"] = keys.int_or("expert_shared_count", 1);
  c["moe_shared_expert_intermediate_size"] = keys.require_int("expert_shared_feed_forward_length");
  c["intermediate_size"] = c["moe_intermediate_size"];  // of no block but those read_blocks() finds
  read_blocks(keys, c);
}

}  // namespace

extern const GgufArchitecture architecture = {
    .names = {"nemotron_h", "nemotron_h_moe", "nemotron_h_omni"},
    .config = config,
    .tensors = {{"attn_norm", "norm"},
                {"output_norm", "norm_f"},
                {"ffn_latent_down", "mlp.fc1_latent_proj"},
                {"ffn_latent_up", "mlp.fc2_latent_proj"},
                {"ffn_latent_in", "mlp.fc1_latent_proj"},  // as Ollama has them
                {"ffn_latent_out", "mlp.fc2_latent_proj"},
                {"ssm_in", "mamba.in_proj"},
                {"ssm_conv1d", "mamba.conv1d"},
                {"ssm_a", "mamba.decay_rate"},
                {"ssm_d", "mamba.D"},
                {"ssm_dt.bias", "mamba.dt_bias"},
                {"ssm_norm", "mamba.norm"},
                {"ssm_out", "mamba.out_proj"}}};

}  // namespace moeflux::gguf_nemotron_h_moe
