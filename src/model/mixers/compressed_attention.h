// Attention to a window of tokens and, in one softmax with them, to entries that each stand for
// several tokens of the whole context. One kv head, whose keys are its values.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

#include "model/config/rope.h"
#include "model/mixer.h"

namespace moeflux {

/// An index of entries for attention: its heads judge them by keys of their own.
struct EntryIndexSpec {
  int64_t num_heads = 0;
  int64_t head_dim = 0;
  int64_t selected = 0;  // entries
  /// Keys are made of entries, before these turn; otherwise of tokens, as entries are.
  bool keys_of_entries = false;
  /// Not 0: runs of outer_tokens tokens that the index also chooses, for the indexes of later
  /// layers.
  int64_t outer_selected = 0;
  int64_t outer_tokens = 0;
  int32_t within = -1;  // the layer whose runs it keeps to; -1: none
};

struct CompressedAttentionSpec : MixerSpec {
  int64_t num_heads = 0;
  int64_t head_dim = 0;
  int64_t q_lora_rank = 0;
  int64_t out_groups = 1;     // of heads side by side, whose outputs are projected together
  int64_t out_lora_rank = 0;  // of a group
  int64_t window = 0;
  float scale = 1.0f;
  RopeSpec rope;  // of a head's last columns
  /// Tokens that an entry begins with; 0: there are no entries.
  int64_t unit = 0;
  /// An entry is also made of the tokens of the one before.
  bool overlaps = false;
  std::optional<EntryIndexSpec> index;  // empty: all entries are attended to, or chosen_by's
  bool norms_queries = true;            // each head without weights
  bool biased_gates = true;             // of pools, by a token's place
  /// Keys are rounded to blocks of e4m3, entries and what an index sees to blocks of e2m1.
  bool rounds = false;
  int32_t entries_of = -1;     // the layer that has the entries; -1: this one
  bool lends_entries = false;  // to such layers
  int32_t chosen_by = -1;      // the layer whose choice this one shares; -1: its own, or none
  int64_t shared_selected = 0;
  bool lends_choice = false;  // to such layers

  bool has_entries() const { return unit > 0 && entries_of < 0; }
  /// Entries that a token attends to at most; 0: all.
  int64_t selected() const { return index ? index->selected : shared_selected; }

  /// Numbers of a token of which entries as wide as `width` are made.
  int64_t pooled_width(int64_t width) const { return overlaps ? 2 * width : width; }

  std::string_view kind() const override { return "compressed_attention"; }
  LayerStateSpec state(const CacheTypes& types) const override;
  Status has_state(const CacheTypes& types) const override;
  uint64_t listed_bytes(int64_t tokens, const CacheTypes& types) const override;
  bool lends() const override {
    return lends_entries || lends_choice || (index && index->outer_selected > 0);
  }
  int64_t reads_state_of() const override { return entries_of; }
  std::unique_ptr<Mixer> take(WeightStore& weights, const MixerPlace& place) const override;
  Json config_value(std::string_view key) const override;
};

}  // namespace moeflux
