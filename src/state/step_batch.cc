#include "state/step_batch.h"

#include "base/check.h"

namespace moeflux {

void StepBatch::clear() {
  sequences_.clear();
  states_.clear();
  logits_ranges_.clear();
  rows_ = decode_rows_ = logits_rows_ = 0;
}

void StepBatch::add(const SequenceState& state, const Item& item) {
  const bool decodes = item.phase == StepPhase::kDecode;
  MF_CHECK(item.rows > 0 && item.logits_rows >= 0 && item.logits_rows <= item.rows);
  MF_CHECK(!decodes || decode_rows_ == rows_);
  sequences_.push_back({item.rows, item.position < 0 ? state.length() : item.position, item.phase});
  states_.push_back(&state);
  rows_ += item.rows;
  if (decodes) decode_rows_ = rows_;
  if (item.logits_rows == 0) return;
  logits_rows_ += item.logits_rows;
  const int64_t begin = rows_ - item.logits_rows;
  if (!logits_ranges_.empty()) {
    RowRange& last = logits_ranges_.back();
    if (last.begin + last.rows == begin) {
      last.rows += item.logits_rows;
      return;
    }
  }
  logits_ranges_.push_back({begin, item.logits_rows});
}

std::span<const KvRows> StepBatch::key_values(LayerId layer) {
  key_values_.clear();
  for (size_t i = 0; i < states_.size(); ++i) {
    key_values_.push_back({sequences_[i].rows, states_[i]->key_value(layer)});
    key_values_.back().kv.length = sequences_[i].position;
  }
  return key_values_;
}

std::span<const KvRows> StepBatch::key_values(LayerId layer, size_t keys, size_t values) {
  key_values_.clear();
  for (size_t i = 0; i < states_.size(); ++i) {
    key_values_.push_back({sequences_[i].rows, states_[i]->key_value(layer, keys, values)});
    key_values_.back().kv.length = sequences_[i].position;
  }
  return key_values_;
}

std::span<const StateRows> StepBatch::states(LayerId layer, size_t tensor) {
  fixed_states_.clear();
  for (size_t i = 0; i < states_.size(); ++i) {
    fixed_states_.push_back({sequences_[i].rows, states_[i]->fixed(layer, tensor)});
  }
  return fixed_states_;
}

}  // namespace moeflux
