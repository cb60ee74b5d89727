// Evaluates texts of which only rows of numbers are wanted, no continuation: several share a step,
// and nothing of them stays. For embeddings and scores.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "chat/open_model.h"
#include "engine/engine.h"

namespace moeflux {

/// Calls a step in a turn of the model (chat/turn_queue.h), or fails without one. A call that has a
/// turn for all of its steps calls it as it is.
using InTurn = std::function<Status(const std::function<Status()>& step)>;

/// An InTurn for calls that have a turn.
Status in_this_turn(const std::function<Status()>& step);

struct TextSteps {
  /// Wanted rows of every text.
  LogitsMode logits = LogitsMode::kNone;
  LogitsMode hidden = LogitsMode::kNone;
  /// Receive f32 [rows, vocab_size] and [rows, hidden_size] of texts[text], the first row that of
  /// the token at `position`, in the order of positions.
  std::function<void(size_t text, int64_t position, std::span<const float> rows)> on_logits = {};
  std::function<void(size_t text, int64_t position, std::span<const float> rows)> on_hidden = {};
  InTurn in_turn = in_this_turn;
};

/// Texts share steps of Engine::prefill_chunk() tokens in their order, as far as their states fit
/// memory; the rows of a text are, bit for bit, those that it has alone. Each step is a turn, so
/// that other calls of the model go on between them. Fails as Engine::eval() does, naming the
/// number of the text, and as in_turn does.
Status evaluate_texts(OpenModel& model, std::span<const std::vector<TokenId>> texts,
                      const TextSteps& steps);

}  // namespace moeflux
