// The head of a model that scores texts: a few rows over its last hidden state, beside or in the
// place of the head over the vocabulary.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "load/model_loader.h"

namespace moeflux {

/// Tensors of such a head begin so, in a folder and in GGUF: no network reads them.
inline constexpr std::string_view kScoreHeadPrefixes[] = {"score.", "cls.output."};

struct ScoreHead {
  std::string name;           // of its tensor, for messages
  std::vector<float> rows;    // [labels, hidden_size]
  std::vector<float> biases;  // [labels], or none

  /// One score a label, of hidden[hidden_size], summed in f64.
  std::vector<double> scores(std::span<const float> hidden) const;
};

/// "score.weight" of a folder or "cls.output.weight" of a GGUF file; nullopt where there is
/// neither. Fails with kUnsupported for another shape than [1 to 64, hidden_size], and as reads do.
Result<std::optional<ScoreHead>> read_score_head(const LoadedModel& model);

}  // namespace moeflux
