// Log-probabilities that another program saved, to compare our own of the same tokens with: the
// file that llama-perplexity of llama.cpp writes with --kl-divergence-base.
//
// Little-endian: "_logits_"; u32 tokens of a window; i32 ids of the vocabulary; i32 windows; i32
// tokens [windows, window]; then a row for each scored position of each window. A row is f32 scale,
// f32 least, u16 codes [vocabulary, rounded up to an even number]: scale * code + least is the
// log-probability of an id behind that position. Ids more than 16 nats below the likeliest all have
// code 0. Source: examples/perplexity/perplexity.cpp of
// ik_llama.cpp at 8337e4cd3.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "io/file.h"

namespace moeflux {

/// The first position of a window whose prediction counts where second halves are scored; the last
/// is window - 2, which predicts the window's last token.
constexpr int64_t first_scored_position(int64_t window) { return window / 2; }

/// Log-probabilities up to here may stand for any that are less.
inline constexpr double kLeastSaved = -16.0;

/// One thread at a time: rows are read through one buffer.
class SavedLogits {
 public:
  /// Takes memory for the tokens only. Fails with kCorruption for what is no such file or not a
  /// whole one, and for a token outside the vocabulary; with kUnsupported beyond 2^28 tokens.
  static Result<SavedLogits> open(std::unique_ptr<File> file);

  const std::string& path() const { return file_->path(); }
  int64_t window() const { return window_; }
  int64_t windows() const { return windows_; }
  int64_t vocab_size() const { return vocab_; }
  /// [windows, window], each at least 0 and below vocab_size().
  const std::vector<TokenId>& tokens() const { return tokens_; }

  /// The log-probabilities f32 [vocab_size] of the token behind a position, which is at least
  /// first_scored_position(window()) and at most window() - 2. Fails with kCorruption unless
  /// their probabilities add up to 1, and with kIo. Ids that were saved as the least share what the
  /// others leave of 1.
  Status read_row(int64_t window, int64_t position, std::span<float> into);

 private:
  explicit SavedLogits(std::unique_ptr<File> file) : file_(std::move(file)) {}
  Status read_header();
  Status check_size() const;
  Status read_tokens();
  uint64_t tokens_bytes() const;
  uint64_t row_bytes() const;
  uint64_t rows_per_window() const;

  std::unique_ptr<File> file_;
  int64_t window_ = 0;
  int64_t windows_ = 0;
  int64_t vocab_ = 0;
  std::vector<TokenId> tokens_;
  std::vector<uint16_t> row_;  // as stored
};

}  // namespace moeflux
