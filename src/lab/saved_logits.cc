#include "lab/saved_logits.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <string_view>

#include "base/format.h"
#include "base/units.h"

namespace moeflux {
namespace {

static_assert(std::endian::native == std::endian::little, "numbers are read as they are stored");

constexpr std::string_view kLogitsMagic = "_logits_";
constexpr uint64_t kHeaderBytes = 20;
constexpr int64_t kVocabMax = int64_t{1} << 24;
// A text of 1 GiB has fewer. With it and kVocabMax no size overflows.
constexpr int64_t kTokensMax = int64_t{1} << 28;
constexpr int64_t kWindowMin = 3;  // the least that has a scored position
// Codes of 16 bits over at most 16 nats leave 2e-4, and an id saved as the least adds at
// most 1.2e-7.
constexpr double kTotalTolerance = 0.01;
constexpr double kRestMin = 1e-6;

// Gives ids of code 0 alike what the others leave of 1, which rounding may have made nothing.
void share_rest(double total, int64_t clamped, const uint16_t* codes, float least,
                std::span<float> into) {
  const auto count = static_cast<double>(clamped);
  const double rest = 1.0 - (total - count * std::exp(static_cast<double>(least)));
  const double share = std::max(rest, kRestMin) / count;
  const float each = std::min(least, static_cast<float>(std::log(share)));
  for (size_t i = 0; i < into.size(); ++i) {
    if (codes[i] == 0) into[i] = each;
  }
}

}  // namespace

Result<SavedLogits> SavedLogits::open(std::unique_ptr<File> file) {
  SavedLogits saved(std::move(file));
  MF_RETURN_IF_ERROR(saved.read_header());
  MF_RETURN_IF_ERROR(saved.check_size());
  MF_RETURN_IF_ERROR(saved.read_tokens());
  return saved;
}

Status SavedLogits::read_header() {
  struct Numbers {
    uint32_t window;
    int32_t vocab;
    int32_t windows;
  };
  std::array<std::byte, kHeaderBytes> header{};
  static_assert(kLogitsMagic.size() + sizeof(Numbers) == kHeaderBytes);
  if (file_->size_bytes() >= kHeaderBytes) MF_RETURN_IF_ERROR(file_->read_at(0, header));
  if (std::memcmp(header.data(), kLogitsMagic.data(), kLogitsMagic.size()) != 0) {
    return make_error(ErrorCode::kCorruption,
                      "{}: {} bytes that do not begin as saved log-probabilities, expected \"{}\" "
                      "and three numbers",
                      path(), file_->size_bytes(), kLogitsMagic);
  }
  Numbers numbers{};
  std::memcpy(&numbers, header.data() + kLogitsMagic.size(), sizeof(numbers));
  window_ = numbers.window;
  vocab_ = numbers.vocab;
  windows_ = numbers.windows;
  if (window_ < kWindowMin || vocab_ < 1 || vocab_ > kVocabMax || windows_ < 1) {
    return make_error(ErrorCode::kCorruption,
                      "{}: {} windows of {} tokens over {} ids, expected at least 1 of at least {} "
                      "over 1 to {}",
                      path(), windows_, window_, vocab_, kWindowMin, kVocabMax);
  }
  if (windows_ > kTokensMax / window_) {
    return make_error(ErrorCode::kUnsupported,
                      "{}: {} windows of {} tokens, expected at most {} tokens", path(), windows_,
                      window_, kTokensMax);
  }
  return {};
}

uint64_t SavedLogits::tokens_bytes() const {
  return static_cast<uint64_t>(windows_ * window_) * sizeof(TokenId);
}

uint64_t SavedLogits::row_bytes() const {
  return 2 * sizeof(float) + round_up(static_cast<uint64_t>(vocab_), 2) * sizeof(uint16_t);
}

uint64_t SavedLogits::rows_per_window() const {
  return static_cast<uint64_t>(window_ - 1 - first_scored_position(window_));
}

Status SavedLogits::check_size() const {
  const uint64_t rows_bytes = static_cast<uint64_t>(windows_) * rows_per_window() * row_bytes();
  const uint64_t expected = kHeaderBytes + tokens_bytes() + rows_bytes;
  if (file_->size_bytes() == expected) return {};
  return make_error(ErrorCode::kCorruption,
                    "{}: {} bytes, expected {} for {} windows of {} tokens over {} ids", path(),
                    file_->size_bytes(), expected, windows_, window_, vocab_);
}

Status SavedLogits::read_tokens() {
  tokens_.resize(static_cast<size_t>(windows_ * window_));
  MF_RETURN_IF_ERROR(file_->read_at(kHeaderBytes, std::as_writable_bytes(std::span(tokens_))));
  for (size_t i = 0; i < tokens_.size(); ++i) {
    if (tokens_[i] >= 0 && tokens_[i] < vocab_) continue;
    return make_error(ErrorCode::kCorruption, "{}: token {} is {}, expected an id below {}", path(),
                      i, tokens_[i], vocab_);
  }
  return {};
}

Status SavedLogits::read_row(int64_t window, int64_t position, std::span<float> into) {
  const int64_t row = position - first_scored_position(window_);
  const auto rows = static_cast<int64_t>(rows_per_window());
  MF_CHECK(window >= 0 && window < windows_ && row >= 0 && row < rows);
  MF_CHECK(static_cast<int64_t>(into.size()) == vocab_);
  row_.resize(row_bytes() / sizeof(uint16_t));
  const auto at = static_cast<uint64_t>(window * rows + row) * row_bytes();
  MF_RETURN_IF_ERROR(
      file_->read_at(kHeaderBytes + tokens_bytes() + at, std::as_writable_bytes(std::span(row_))));
  std::array<float, 2> range{};
  std::memcpy(range.data(), row_.data(), sizeof(range));
  const auto [scale, least] = range;
  const uint16_t* codes = row_.data() + sizeof(range) / sizeof(uint16_t);
  double total = 0.0;
  int64_t clamped = 0;
  for (size_t i = 0; i < into.size(); ++i) {
    into[i] = scale * static_cast<float>(codes[i]) + least;
    total += std::exp(into[i]);
    clamped += codes[i] == 0 ? 1 : 0;
  }
  const double tolerance = kTotalTolerance + static_cast<double>(clamped) * std::exp(kLeastSaved);
  if (std::abs(total - 1.0) <= tolerance) {  // never of a NaN
    if (least <= kLeastSaved) share_rest(total, clamped, codes, least, into);
    return {};
  }
  return make_error(ErrorCode::kCorruption,
                    "{}: probabilities behind position {} of window {} add up to {}, expected 1",
                    path(), position, window, total);
}

}  // namespace moeflux
