// GgufArchitecture: what the keys and names of GGUF files of one architecture say. Keys become the
// config.json that the family reads, and names become the canonical ones, so that a family knows
// nothing of GGUF. A file in families/gguf defines `gguf_<name>::architecture`; the build lists
// them in a generated table.
#pragma once

#include <initializer_list>
#include <span>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "model/gguf/gguf_keys.h"

namespace moeflux {

/// A tensor's name behind "blk.7.", and what it is behind "layers.7.". `stored` is the whole of it,
/// or what stands before the last dot: suffixes stay.
struct GgufName {
  std::string_view stored;
  std::string_view canonical;  // empty: the tensor says nothing that the model needs
  /// The name does not count in blocks that have this tensor.
  std::string_view unless = {};
};

/// The architecture that a file of a family's models names.
struct GgufWritten {
  std::string_view model_type;  // of config.json
  std::string_view name;        // one of GgufArchitecture::names
  bool has_pattern = false;     // attention.sliding_window_pattern
};

struct GgufArchitecture {
  /// Values of general.architecture.
  std::vector<std::string_view> names;
  /// Completes a config.json in which read_gguf_trunk() has written. Problems stick to the keys.
  void (*config)(GgufKeys& keys, Json& config);
  /// They come before those that all architectures share.
  std::vector<GgufName> tensors;
  /// The module above routed experts: "mlp" for "layers.7.mlp".
  std::string_view experts = "mlp";
  /// Tensors of no block in the file that are one layer's: the first of the list that the config
  /// has under this key, which counts layers from 1.
  std::vector<GgufName> of_one_layer = {};
  /// Keys with arrays of 64 bits a number, which are tensors of that layer.
  std::vector<GgufName> keys_of_one_layer = {};
  std::string_view one_layer = {};
  /// Empty: files of it are read and not written.
  std::vector<GgufWritten> written = {};
};

std::span<const GgufArchitecture* const> gguf_architectures();

// Parts that many architectures share. Each writes what config.json would say.

/// A list of what `of_layer` says of each layer, by its number.
template <typename OfLayer>
Json list_gguf_layers(GgufKeys& keys, const OfLayer& of_layer) {
  Json list = Json::array();
  for (int64_t i = 0; i < keys.num_layers(); ++i) list.push_back(of_layer(static_cast<size_t>(i)));
  return list;
}
/// Layers, widths, vocabulary, eps, context length, embedding tying.
void read_gguf_trunk(GgufKeys& keys, Json& config);
/// Heads, their size and rotary positions, with YaRN.
void read_gguf_attention(GgufKeys& keys, Json& config);
/// rope_parameters with the divisors of frequencies in the tensor rope_freqs, if there is one, of
/// an architecture that names it.
void read_gguf_rope_factors(GgufKeys& keys, Json& config);
/// The heads under `key` of blocks that slide by `sliding`, or of those that do not, which are as
/// many in each of them; `absent` without such a block.
struct GgufHeads {
  std::string_view key;
  bool slide = false;
  int64_t absent = 1;
};
int64_t read_gguf_heads(GgufKeys& keys, const std::vector<int64_t>& sliding,
                        const GgufHeads& heads);
/// Heads and widths of latent attention. Older files have the lengths of whole heads, newer ones
/// those of the latent and, beside them, of heads. Heads that are in the config already stay.
void read_gguf_latent_widths(GgufKeys& keys, Json& config);
/// The index of latent attention. Blocks without tensors of one share the choice of the last that
/// has them.
void read_gguf_index(GgufKeys& keys, Json& config);
/// The base and scaling of its rotary positions, as DeepSeek's files have them.
void read_gguf_latent_rope(GgufKeys& keys, Json& config);
/// A whole config of latent attention whose queries grow with their position.
void read_gguf_growing_queries(GgufKeys& keys, Json& config);
/// Names of latent attention's tensors and of its index, behind an architecture's own.
std::vector<GgufName> gguf_latent_names(std::vector<GgufName> own);
/// Widths of Mamba-2, which configs name in several ways.
struct GgufScan {
  int64_t heads = 0;
  int64_t head_dim = 0;
  int64_t groups = 0;
  int64_t state_dim = 0;
  int64_t conv_taps = 0;
  bool conv_bias = false;
};
GgufScan read_gguf_scan(GgufKeys& keys);
/// layer_types of a hybrid model: `recurrent` where a block has no key-value heads, else
/// `attention`.
void read_gguf_hybrid_types(GgufKeys& keys, Json& config, std::string_view recurrent,
                            std::string_view attention = "full_attention");
/// Names of tensors of the delta rule with a decay of each channel, behind an architecture's own.
std::vector<GgufName> gguf_kda_names(std::vector<GgufName> own);
/// Widths of the gated delta rule, and which layers have it.
void read_gguf_gated_delta(GgufKeys& keys, Json& config);
/// Names of its tensors, and of shared experts with a gate, behind an architecture's own.
std::vector<GgufName> gguf_gated_delta_names(std::vector<GgufName> own);
/// Number, choice and width of experts.
void read_gguf_experts(GgufKeys& keys, Json& config);
/// The factor of experts' weights; 0 and 1 leave them alone, as in llama.cpp.
double read_gguf_weights_scale(GgufKeys& keys);
/// Sigmoid scores with a bias that selects, groups, and weights that are scaled.
void read_gguf_noaux_tc(GgufKeys& keys, Json& config);
/// The limits that gated units of layers have, under `own`, if the file has the key.
void read_gguf_limits(GgufKeys& keys, std::string_view key, Json& config, std::string_view own);
/// The limit that gated units of all layers, routed and shared, have in common: swiglu_limit.
void read_gguf_common_limit(GgufKeys& keys, Json& config);
/// Streams of a residual and how they are balanced.
void read_gguf_streams(GgufKeys& keys, Json& config);
/// Names of their mixes in blocks and at the end, behind an architecture's own.
std::vector<GgufName> gguf_stream_names(std::vector<GgufName> own);
/// The first layers, which have no experts, and their width.
void read_gguf_dense_layers(GgufKeys& keys, Json& config);
/// The network of a model without experts, and whether its projections have biases.
void read_gguf_dense_network(GgufKeys& keys, Json& config);
/// attention_bias, and attention_out_bias where only some projections have biases: llama.cpp reads
/// those of queries, keys and values for every architecture.
void read_gguf_attention_biases(const GgufKeys& keys, Json& config);
/// layer_types, by the pattern in the file, which has a truth value of each block or an interval;
/// else the full_at-th of each `interval` layers, its first or last, sees all and the others a
/// window.
struct GgufPattern {
  int64_t interval = 1;
  int64_t full_at = 0;
};
void read_gguf_layer_types(GgufKeys& keys, Json& config, const GgufPattern& usual);
/// rope_parameters, of what read_gguf_attention() has read, with a base of their own for layers
/// that slide; those are never scaled.
void read_gguf_rope_by_window(GgufKeys& keys, Json& config);
/// The rope_scaling of config.json; null where positions are not scaled. Keys that would change the
/// numbers in a way that is not computed here fail by name.
Json read_gguf_rope_scaling(GgufKeys& keys);
/// Fails with kUnsupported where positions are scaled.
void expect_no_gguf_rope_scaling(GgufKeys& keys);
/// Fails with kUnsupported unless the key is absent or nearly one of these.
void expect_gguf_number(GgufKeys& keys, std::string_view key,
                        std::initializer_list<double> neutral);

}  // namespace moeflux
