#include "chat/slice_policy.h"

#include <algorithm>
#include <tuple>

#include "base/check.h"

namespace moeflux {

void SlicePolicy::add(uint64_t id) { texts_.push_back({.id = id, .served = least_served_}); }

void SlicePolicy::remove(uint64_t id) {
  std::erase_if(texts_, [id](const Text& text) { return text.id == id; });
}

std::optional<uint64_t> SlicePolicy::next(const std::function<bool(uint64_t id)>& is_ready) {
  const Text* best = nullptr;
  for (Text& text : texts_) {
    const bool ready = is_ready(text.id);
    if (ready && !text.was_ready) text.served = std::max(text.served, least_served_);
    text.was_ready = ready;
    if (!ready) continue;
    if (best == nullptr ||
        std::tie(text.served, text.last_slice) < std::tie(best->served, best->last_slice)) {
      best = &text;
    }
  }
  if (best == nullptr) return std::nullopt;
  least_served_ = std::max(least_served_, best->served);
  return best->id;
}

void SlicePolicy::charge(uint64_t id, std::chrono::nanoseconds elapsed) {
  const auto text = std::ranges::find(texts_, id, &Text::id);
  MF_CHECK(text != texts_.end());
  text->served += elapsed;
  text->last_slice = ++slices_;
}

bool SlicePolicy::is_over(const SliceProgress& slice) const {
  return slice.elapsed >= options_.time && (slice.has_prompt || slice.tokens >= options_.tokens);
}

}  // namespace moeflux
