// Belady's optimum and the page cache of replay.h.
#include <algorithm>
#include <cmath>
#include <list>
#include <queue>
#include <vector>

#include "base/units.h"
#include "lab/replay.h"

namespace moeflux {
namespace {

constexpr size_t kNever = SIZE_MAX;

std::vector<size_t> distinct_indices(const RouteTrace& trace, const RouteTrace::Visit& visit) {
  std::vector<size_t> experts;
  for (const int32_t id : trace.routes(visit).ids) {
    experts.push_back(trace.shape().index_of({visit.layer, ExpertId{id}}));
  }
  std::sort(experts.begin(), experts.end());
  experts.erase(std::unique(experts.begin(), experts.end()), experts.end());
  return experts;
}

// Counts a visit's hits, given which of its experts were there.
class Tally {
 public:
  void add(const RouteTrace& trace, const RouteTrace::Visit& visit, uint64_t hits,
           uint64_t misses) {
    ReplayCounts& counts = visit.phase == StepPhase::kDecode ? result_.decode : result_.prefill;
    counts.hits += hits;
    counts.misses += misses;
    counts.bytes_read += misses * trace.expert_bytes(visit.layer);
    const bool new_step =
        visit.step != last_.step || visit.turn != last_.turn || visit.phase != last_.phase;
    if (new_step) counts.tokens += static_cast<uint64_t>(visit.tokens);
    last_ = visit;
  }
  const ReplayResult& result() const { return result_; }

 private:
  ReplayResult result_;
  RouteTrace::Visit last_{.step = -1};
};

/// For each visit, when each of its experts is used next in decode.
std::vector<std::vector<size_t>> next_decode_uses(const RouteTrace& trace,
                                                  std::span<const RouteTrace::Visit> order) {
  std::vector<size_t> next(trace.shape().size(), kNever);
  std::vector<std::vector<size_t>> uses(order.size());
  for (size_t v = order.size(); v-- > 0;) {
    for (const size_t expert : distinct_indices(trace, order[v])) {
      uses[v].push_back(next[expert]);
      if (order[v].phase == StepPhase::kDecode) next[expert] = v;
    }
  }
  return uses;
}

// Two lists of experts, most recently added first, as the kernel keeps two lists of pages.
class PageCache {
 public:
  PageCache(size_t num_experts, size_t capacity, uint64_t bytes)
      : capacity_(capacity), where_(num_experts) {
    // The kernel lets the active list be sqrt(10 * GiB) times the inactive one.
    const double gib = static_cast<double>(bytes) / static_cast<double>(kGiB);
    active_per_inactive_ = std::max<size_t>(1, static_cast<size_t>(std::sqrt(10.0 * gib)));
  }

  bool read(size_t expert) {
    Page& page = where_[expert];
    switch (page.list) {
      case List::kActive:
        page.referenced = true;
        return true;
      case List::kInactive:
        move(expert, inactive_, active_, List::kActive);
        balance();
        return true;
      case List::kNone:
        break;
    }
    while (active_.size() + inactive_.size() >= capacity_) reclaim();
    const bool refault = page.evicted_at != 0 && evictions_ - page.evicted_at < active_.size();
    std::list<size_t>& to = refault ? active_ : inactive_;
    to.push_front(expert);
    page.list = refault ? List::kActive : List::kInactive;
    page.position = to.begin();
    page.referenced = false;
    balance();
    return false;
  }

 private:
  enum class List : uint8_t { kNone, kInactive, kActive };
  struct Page {
    List list = List::kNone;
    bool referenced = false;
    uint64_t evicted_at = 0;
    std::list<size_t>::iterator position;
  };

  void move(size_t expert, std::list<size_t>& from, std::list<size_t>& to, List list) {
    to.splice(to.begin(), from, where_[expert].position);
    where_[expert].list = list;
    where_[expert].referenced = false;
  }
  void balance() {
    while (active_.size() > active_per_inactive_ * std::max<size_t>(1, inactive_.size())) {
      move(active_.back(), active_, inactive_, List::kInactive);
    }
  }
  void reclaim() {
    if (inactive_.empty()) move(active_.back(), active_, inactive_, List::kInactive);
    Page& gone = where_[inactive_.back()];
    inactive_.pop_back();
    gone.list = List::kNone;
    gone.evicted_at = ++evictions_;
  }

  size_t capacity_;
  size_t active_per_inactive_;
  std::list<size_t> active_;
  std::list<size_t> inactive_;
  std::vector<Page> where_;
  uint64_t evictions_ = 0;
};

}  // namespace

ReplayResult replay_belady(const RouteTrace& trace, const ReplayOptions& options) {
  const std::vector<RouteTrace::Visit> order = replay_order(trace, options.prompt);
  const auto uses = next_decode_uses(trace, order);
  std::vector<size_t> next(trace.shape().size(), kNever);  // of what is cached
  std::vector<bool> cached(trace.shape().size());
  // Latest next use on top; entries whose expert has moved on are skipped.
  std::priority_queue<std::pair<size_t, size_t>> farthest;
  size_t num_cached = 0;
  Tally tally;
  for (size_t v = 0; v < order.size(); ++v) {
    const std::vector<size_t> experts = distinct_indices(trace, order[v]);
    uint64_t hits = 0;
    for (size_t i = 0; i < experts.size(); ++i) {
      if (cached[experts[i]]) {
        ++hits;
      } else {
        cached[experts[i]] = true;
        ++num_cached;
      }
      next[experts[i]] = uses[v][i];
      farthest.emplace(uses[v][i], experts[i]);
    }
    tally.add(trace, order[v], hits, experts.size() - hits);
    while (num_cached > options.num_slots) {
      const auto [use, expert] = farthest.top();
      farthest.pop();
      if (!cached[expert] || next[expert] != use) continue;
      cached[expert] = false;
      --num_cached;
    }
  }
  return tally.result();
}

ReplayResult replay_page_cache(const RouteTrace& trace, const ReplayOptions& options) {
  uint64_t expert_bytes = 0;
  for (const uint64_t bytes : trace.header().expert_bytes) {
    expert_bytes = std::max(expert_bytes, bytes);
  }
  PageCache cache(trace.shape().size(), options.num_slots, options.num_slots * expert_bytes);
  Tally tally;
  for (const RouteTrace::Visit& visit : replay_order(trace, options.prompt)) {
    const std::vector<size_t> experts = distinct_indices(trace, visit);
    uint64_t hits = 0;
    for (const size_t expert : experts) hits += cache.read(expert) ? 1 : 0;
    tally.add(trace, visit, hits, experts.size() - hits);
  }
  return tally.result();
}

}  // namespace moeflux
