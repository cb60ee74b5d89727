#include "serve/kept_texts.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <mutex>
#include <utility>

#include "base/format.h"

namespace moeflux::serve {
namespace {

constexpr size_t kNameMax = 64;

bool is_alphanumeric(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

int64_t now_ns() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}

class MemoryTexts : public KeptTexts {
 public:
  explicit MemoryTexts(const KeptLimits& limits) : limits_(limits) {}

  Result<std::string> find(const std::string& name) override {
    const std::lock_guard lock(mutex_);
    const auto found = texts_.find(name);
    if (found == texts_.end()) return unknown(name);
    found->second.used_ns = next_use();
    return found->second.text;
  }

  Status keep(const std::string& name, std::string_view text) override {
    const std::lock_guard lock(mutex_);
    const auto old = texts_.find(name);
    const uint64_t old_bytes = old == texts_.end() ? 0 : old->second.text.size();
    const bool has_room = texts_.size() + (old == texts_.end()) <= limits_.count_max &&
                          bytes_ - old_bytes + text.size() <= limits_.bytes_max;
    if (text.size() > limits_.bytes_max || (!has_room && !limits_.makes_room)) {
      return make_error(ErrorCode::kResourceExhausted,
                        "{}: {} bytes have no room beside {} texts of {} bytes (at most {} of {})",
                        name, text.size(), texts_.size(), bytes_, limits_.count_max,
                        limits_.bytes_max);
    }
    bytes_ = bytes_ - old_bytes + text.size();
    texts_[name] = {.text = std::string(text), .used_ns = next_use()};
    while (bytes_ > limits_.bytes_max || texts_.size() > limits_.count_max) remove_oldest();
    return {};
  }

  Status erase(const std::string& name) override {
    const std::lock_guard lock(mutex_);
    const auto found = texts_.find(name);
    if (found == texts_.end()) return unknown(name);
    bytes_ -= found->second.text.size();
    texts_.erase(found);
    return {};
  }

  Result<std::vector<KeptText>> list() override {
    const std::lock_guard lock(mutex_);
    std::vector<KeptText> all;
    for (const auto& [name, kept] : texts_) all.push_back({name, kept.text.size(), kept.used_ns});
    return all;
  }

  std::string place_of(const std::string& name) const override { return name; }

 private:
  struct Kept {
    std::string text;
    int64_t used_ns = 0;
  };

  static Error unknown(const std::string& name) {
    return make_error(ErrorCode::kNotFound, "no text of the name {} is kept", name);
  }
  int64_t next_use() { return last_use_ns_ = std::max(now_ns(), last_use_ns_ + 1); }
  void remove_oldest() {
    const auto oldest = std::min_element(texts_.begin(), texts_.end(), [](auto& a, auto& b) {
      return a.second.used_ns < b.second.used_ns;
    });
    bytes_ -= oldest->second.text.size();
    texts_.erase(oldest);
  }

  const KeptLimits limits_;
  std::mutex mutex_;  // guards what follows
  std::map<std::string, Kept> texts_;
  uint64_t bytes_ = 0;
  int64_t last_use_ns_ = 0;
};

}  // namespace

bool is_text_name(std::string_view name) {
  if (name.empty() || name.size() > kNameMax || !is_alphanumeric(name.front())) return false;
  return std::all_of(name.begin(), name.end(),
                     [](char c) { return is_alphanumeric(c) || c == '_' || c == '-'; });
}

std::unique_ptr<KeptTexts> keep_texts_in_memory(const KeptLimits& limits) {
  return std::make_unique<MemoryTexts>(limits);
}

}  // namespace moeflux::serve
