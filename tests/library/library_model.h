// A model through the public interface, and what tests expect of it.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "moeflux/moeflux.hpp"

namespace moeflux::testing {

inline std::string fable() { return std::string(MOEFLUX_SOURCE_DIR) + "/models/fable-20m"; }

/// The value of a result; a failure of the test without one.
template <typename T>
T take(Result<T> result) {
  if (!result) {
    ADD_FAILURE() << result.error().message;
    std::abort();
  }
  return std::move(result).value();
}

inline void expect_ok(const Status& status) {
  EXPECT_TRUE(status.ok()) << (status.ok() ? "" : status.error().message);
}

/// The code and pieces of the message.
template <typename T>
void expect_error(const Result<T>& result, Code code, std::initializer_list<std::string> pieces) {
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code, code) << result.error().message;
  for (const std::string& piece : pieces) {
    EXPECT_NE(result.error().message.find(piece), std::string::npos)
        << "'" << piece << "' is not in: " << result.error().message;
  }
}

class LibraryTest : public ::testing::Test {
 protected:
  static Model open(ModelOptions options = {}) {
    if (options.context_length == 0) options.context_length = 256;
    if (options.threads == 0) options.threads = 1;
    return take(Model::open(fable(), options));
  }
  std::vector<int32_t> story() { return take(model_.tokenize("Once upon a time there was a")); }

  /// The logits after `tokens` of a sequence that has seen nothing else.
  std::vector<float> fresh_logits(std::span<const int32_t> tokens) {
    Sequence sequence = take(model_.create_sequence());
    std::vector<float> logits(sequence.vocab_size());
    expect_ok(sequence.eval(tokens, logits));
    return logits;
  }
  static std::vector<float> logits(Sequence& sequence) {
    std::vector<float> logits(sequence.vocab_size());
    expect_ok(sequence.logits(logits));
    return logits;
  }
  static std::string text(Sequence& sequence, std::span<const int32_t> prompt,
                          const GenerateOptions& options) {
    std::string text;
    take(sequence.generate(prompt, options, [&](std::string_view piece) {
      text += piece;
      return true;
    }));
    return text;
  }

  Model model_ = open();
};

}  // namespace moeflux::testing
