// StepBatch: the sequences that one step takes further, and which rows are whose.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/sequence_rows.h"
#include "base/ids.h"
#include "base/step_rows.h"
#include "state/sequence_state.h"

namespace moeflux {

/// Reusable: after a first step of every size it allocates nothing. Thread-compatible.
class StepBatch {
 public:
  /// Consecutive rows of the step.
  struct RowRange {
    int64_t begin = 0;
    int64_t rows = 0;
  };
  /// A sequence's part of the step: its next `rows` tokens, at least one. Logits are wanted of the
  /// last `logits_rows` of them.
  struct Item {
    int64_t rows = 0;
    StepPhase phase = StepPhase::kPrompt;
    int64_t logits_rows = 0;
    int64_t position = -1;  // of the first row; below 0: behind the state's tokens
  };

  /// Without sequences again.
  void clear();
  /// The state must have room for the item's rows, keep its length and outlive what is asked below.
  /// Decode comes before prompts: its rows are the first ones.
  void add(const SequenceState& state, const Item& item);

  std::span<const StepRows> sequences() const { return sequences_; }
  int64_t rows() const { return rows_; }
  int64_t decode_rows() const { return decode_rows_; }
  /// Ranges in order, none of which touches the next.
  std::span<const RowRange> logits_ranges() const { return logits_ranges_; }
  int64_t logits_rows() const { return logits_rows_; }

  // The state of a layer for each sequence, in the order of rows. A span lives until the next call
  // of its function.
  /// SequenceState::key_value().
  std::span<const KvRows> key_values(LayerId layer);
  /// The same of tensors by number. Its span ends with that of key_values(layer).
  std::span<const KvRows> key_values(LayerId layer, size_t keys, size_t values);
  /// A tensor of a fixed size: SequenceState::fixed().
  std::span<const StateRows> states(LayerId layer, size_t tensor);

 private:
  std::vector<StepRows> sequences_;
  std::vector<const SequenceState*> states_;  // of the same
  std::vector<RowRange> logits_ranges_;
  int64_t rows_ = 0;
  int64_t decode_rows_ = 0;
  int64_t logits_rows_ = 0;
  std::vector<KvRows> key_values_;
  std::vector<StateRows> fixed_states_;
};

}  // namespace moeflux
