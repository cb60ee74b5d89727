// Rows of logits over the windows of a text, from a model that evaluates it or from a file that
// another program saved.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "chat/open_model.h"
#include "lab/saved_logits.h"

namespace moeflux {

/// One thread at a time.
class LogitsSource {
 public:
  virtual ~LogitsSource() = default;
  /// For messages and reports.
  virtual std::string name() const = 0;
  virtual int64_t vocab_size() const = 0;
  /// Log-probabilities up to here stand for any that are less.
  virtual double least() const { return -std::numeric_limits<double>::infinity(); }
  /// Starts a window afresh: the next call has its first tokens.
  virtual Status begin_window(int64_t window) = 0;
  /// The window goes on with these tokens, whose rows nobody wants. May be empty.
  virtual Status skip(std::span<const TokenId> tokens) = 0;
  /// The same with rows [tokens, vocab_size]: what is expected behind each.
  virtual Status read(std::span<const TokenId> tokens, std::vector<float>& rows) = 0;
};

std::unique_ptr<LogitsSource> make_logits_source(std::shared_ptr<OpenModel> model);
/// Its windows must have the tokens that `saved` has, and read() none but the scored positions.
std::unique_ptr<LogitsSource> make_logits_source(SavedLogits saved);

}  // namespace moeflux
