// Whose slice of the engine is next, and when one is over. Knows numbers, neither texts nor clocks.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

namespace moeflux {

struct SliceOptions {
  int64_t tokens = 16;
  std::chrono::nanoseconds time = std::chrono::seconds(1);
};

/// What a slice has done so far.
struct SliceProgress {
  bool has_prompt = false;  // pieces of a prompt
  int64_t tokens = 0;       // that followed
  std::chrono::nanoseconds elapsed{0};
};

/// Gives the engine to the text that has had least of it. Who comes, or comes back, has no claim on
/// what others had before: it begins where the least served of them is.
class SlicePolicy {
 public:
  explicit SlicePolicy(const SliceOptions& options) : options_(options) {}

  void add(uint64_t id);
  void remove(uint64_t id);
  /// The least served of the texts that are ready; of equal ones the one whose last slice is
  /// longest ago.
  std::optional<uint64_t> next(const std::function<bool(uint64_t id)>& is_ready);
  void charge(uint64_t id, std::chrono::nanoseconds elapsed);

  /// A slice lasts as long as both say: its tokens and its time. One with a piece of a prompt,
  /// which takes long by itself, is over with the time.
  bool is_over(const SliceProgress& slice) const;

 private:
  struct Text {
    uint64_t id = 0;
    std::chrono::nanoseconds served{0};
    uint64_t last_slice = 0;
    bool was_ready = true;
  };

  SliceOptions options_;
  std::vector<Text> texts_;
  std::chrono::nanoseconds least_served_{0};  // of those that were ready, never less than before
  uint64_t slices_ = 0;
};

}  // namespace moeflux
