// Random operations against a cache that keeps everything in plain lists and decays every count at
// every visit.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <random>

#include "experts/cache/expert_cache.h"

namespace moeflux {
namespace {

using Slot = ExpertCache::Slot;
using Key = std::pair<int32_t, int32_t>;  // layer, expert

constexpr ExpertShape kRandomShape{.num_layers = 4, .num_experts = 9};
constexpr double kDecay = 0.5;  // halves exactly: equal scores are equal in both

struct NaiveCache {
  struct Resident {
    bool ready = false;
    int pins = 1;
  };
  CachePolicy policy;
  size_t num_slots;
  std::map<Key, double> score;
  std::map<Key, uint64_t> last_use;
  std::map<Key, Resident> resident;
  uint64_t clock = 0;

  void visit(int32_t layer) {
    for (auto& [key, value] : score) value *= key.first == layer ? kDecay : 1.0;
  }
  void use(Key key) {
    score[key] += 1.0;
    last_use[key] = ++clock;
  }
  std::optional<Key> victim() {
    std::optional<Key> best;
    const auto rank = [&](Key key) {
      return std::pair(policy == CachePolicy::kLru ? 0.0 : std::log2(score[key]), last_use[key]);
    };
    for (const auto& [key, entry] : resident) {
      if (entry.pins > 0) continue;
      if (!best || rank(key) < rank(*best)) best = key;
    }
    return best;
  }
  bool reserve(Key key) {
    if (resident.size() >= num_slots) {
      const std::optional<Key> gone = victim();
      if (!gone) return false;
      resident.erase(*gone);
    }
    resident[key] = {};
    return true;
  }
};

class Model {
 public:
  Model(CachePolicy policy, size_t slots, uint64_t seed)
      : cache_(nullptr, {.num_slots = slots,
                         .shape = kRandomShape,
                         .eviction = {.policy = policy, .decay = kDecay}}),
        naive_{.policy = policy, .num_slots = slots},
        random_(seed) {}

  void step() {
    const auto layer = static_cast<int32_t>(random_() % 4);
    const auto expert = static_cast<int32_t>(random_() % 9);
    const ExpertKey key{LayerId{layer}, ExpertId{expert}};
    const Key naive{layer, expert};
    switch (random_() % 4) {
      case 0:
        cache_.begin_visit(key.layer);
        naive_.visit(layer);
        cache_.note_use(key);
        naive_.use(naive);
        break;
      case 1:
        reserve(key, naive);
        break;
      case 2:
        pin(key, naive);
        break;
      case 3:
        finish(key, naive);
        break;
    }
    compare();
  }

 private:
  // Ties among experts without any use go by slots in one and by keys in the other: use first.
  void reserve(ExpertKey key, Key naive) {
    if (cache_.lookup(key)) return;
    cache_.note_use(key);
    naive_.use(naive);
    ExpertPin pin = cache_.reserve(key, Purpose::kDecode);
    ASSERT_EQ(static_cast<bool>(pin), naive_.reserve(naive));
    if (pin) pins_[naive].push_back(std::move(pin));
  }
  void pin(ExpertKey key, Key naive) {
    const auto slot = cache_.find(key);
    if (!slot || naive_.resident[naive].pins > 3) return;
    pins_[naive].emplace_back(cache_, *slot);
    ++naive_.resident[naive].pins;
  }
  void finish(ExpertKey key, Key naive) {
    const auto found = cache_.lookup(key);
    if (!found) return;
    NaiveCache::Resident& resident = naive_.resident[naive];
    if (found->state == SlotState::kLoading) {
      if (random_() % 5 == 0) {
        pins_[naive].clear();
        naive_.resident.erase(naive);
        return;
      }
    }
    if (!resident.ready) {
      cache_.set_ready(found->slot);
      resident.ready = true;
    } else if (resident.pins > 0) {
      pins_[naive].pop_back();
      --resident.pins;
    }
  }
  // Pinned and LOADING experts must be there.
  void compare() {
    ASSERT_EQ(cache_.num_resident(), naive_.resident.size());
    for (const auto& [key, entry] : naive_.resident) {
      const auto found = cache_.lookup({LayerId{key.first}, ExpertId{key.second}});
      ASSERT_TRUE(found.has_value()) << "layer " << key.first << " expert " << key.second;
      ASSERT_EQ(found->state == SlotState::kReady, entry.ready);
    }
  }

  ExpertCache cache_;
  std::map<Key, std::vector<ExpertPin>> pins_;
  NaiveCache naive_;
  std::mt19937_64 random_;
};

TEST(ExpertCacheProperty, ActsAsTheNaiveModel) {
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    const auto policy = seed % 2 == 0 ? CachePolicy::kLru : CachePolicy::kDecayedLfu;
    Model model(policy, 1 + seed % 20, seed);
    for (int i = 0; i < 500; ++i) {
      model.step();
      ASSERT_FALSE(::testing::Test::HasFatalFailure())
          << cache_policy_name(policy) << ", seed " << seed << ", step " << i;
    }
  }
}

// With staging, guesses and shrinking: whatever happens, pinned slots keep their experts.
TEST(ExpertCacheProperty, PinnedSlotsKeepTheirExperts) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 40; ++round) {
    const size_t slots = 2 + random() % 12;
    ExpertCache cache(nullptr, {.num_slots = slots,
                                .shape = kRandomShape,
                                .num_staging = random() % slots,
                                .guard_admission = round % 2 == 0});
    std::map<Slot, std::pair<ExpertKey, std::vector<ExpertPin>>> pinned;
    for (int i = 0; i < 1000; ++i) {
      const ExpertKey key{LayerId{static_cast<int32_t>(random() % 4)},
                          ExpertId{static_cast<int32_t>(random() % 9)}};
      const auto found = cache.lookup(key);
      if (random() % 3 == 0) {
        cache.begin_visit(key.layer);
        cache.note_use(key);
      }
      if (random() % 50 == 0) cache.shrink_to(1 + random() % slots);
      if (random() % 50 == 0) cache.compact();
      if (!found) {
        constexpr Purpose kPurposes[] = {Purpose::kReadAhead, Purpose::kDecode, Purpose::kDecode,
                                         Purpose::kPrompt, Purpose::kGuess};
        if (ExpertPin pin = cache.reserve(key, kPurposes[random() % 5])) {
          ASSERT_EQ(pinned.count(pin.slot()), 0u);
          auto& [held, pins] = pinned[pin.slot()];
          held = key;
          pins.push_back(std::move(pin));
        }
      } else if (found->state != SlotState::kReady) {
        cache.set_ready(found->slot);
      } else if (random() % 2 == 0) {
        auto& [held, pins] = pinned[found->slot];
        held = key;
        pins.emplace_back(cache, found->slot);
        if (random() % 2 == 0) {
          cache.promote(found->slot, random() % 2 == 0 ? Purpose::kDecode : Purpose::kPrompt);
        }
      } else if (const auto at = pinned.find(found->slot); at != pinned.end()) {
        at->second.second.pop_back();
        if (at->second.second.empty()) pinned.erase(at);
      }
      for (const auto& [slot, held] : pinned) {
        const auto still = cache.lookup(held.first);
        ASSERT_TRUE(still && still->slot == slot) << "round " << round << ", step " << i;
      }
      ASSERT_LE(cache.num_resident(), slots);
    }
  }
}

}  // namespace
}  // namespace moeflux
