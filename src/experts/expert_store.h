// ExpertStore: hands a layer the experts its router chose, in waves, as they become available in
// fast memory.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "backend/encoder.h"
#include "base/ids.h"
#include "base/result.h"
#include "base/step_rows.h"
#include "experts/expert_map.h"
#include "experts/expert_site.h"
#include "experts/routes/route_log.h"
#include "experts/routes/route_readback.h"
#include "experts/tiers/helped_steps.h"

namespace moeflux {

struct UsageProfile;

struct ExpertStats {
  uint64_t hits = 0;        // distinct (step, layer, expert) found in the cache
  uint64_t misses = 0;      // the same, read from storage, read ahead or not
  uint64_t bytes_read = 0;  // from storage, by completed reads
  uint64_t evictions = 0;
  uint64_t stall_us = 0;           // time compute had nothing to do but wait for reads
  uint64_t prefetches = 0;         // experts read before a router asked for them
  uint64_t prefetches_useful = 0;  // of these, asked for before they had to go
  uint64_t read_us = 0;            // time with a read in flight, until its arrival was noticed
  uint64_t lookahead_us = 0;       // spent on routers applied early and on what they led to
  uint64_t near_hits = 0;          // choices of decoded tokens in a device's own memory,
  uint64_t far_hits = 0;           // read by the device in the host's,
  uint64_t promotions = 0;         // experts brought from there to here,
  uint64_t bus_bytes = 0;          // and what went over the bus for all of it, and for prompts
  uint64_t helped_steps = 0;       // whose far experts a helper computed
  uint64_t table_bytes_read = 0;   // beside experts: rows of tables that stay on the drive,
  uint64_t table_stall_us = 0;     // and time that was waited for them

  /// While reads were in flight; 0 without any.
  double read_bytes_per_second() const {
    return read_us == 0 ? 0.0
                        : static_cast<double>(bytes_read) * 1e6 / static_cast<double>(read_us);
  }
  /// The share of decoded tokens' choices in a device's own memory; 1 where nobody counted.
  double near_hit_rate() const {
    const uint64_t choices = near_hits + far_hits;
    return choices == 0 ? 1.0 : static_cast<double>(near_hits) / static_cast<double>(choices);
  }
  friend ExpertStats operator-(const ExpertStats& a, const ExpertStats& b) {
    return combined(a, b, std::minus());
  }
  ExpertStats& operator+=(const ExpertStats& more) {
    return *this = combined(*this, more, std::plus());
  }

 private:
  // Every field is a uint64_t.
  template <typename Op>
  static ExpertStats combined(const ExpertStats& a, const ExpertStats& b, Op op) {
    using Counts = std::array<uint64_t, sizeof(ExpertStats) / sizeof(uint64_t)>;
    auto counts = std::bit_cast<Counts>(a);
    std::ranges::transform(counts, std::bit_cast<Counts>(b), counts.begin(), op);
    return std::bit_cast<ExpertStats>(counts);
  }
};

/// The experts of one layer in one step. Destroying it unpins them, so it is given to
/// Encoder::keep_alive() once the work that reads them has been recorded.
class ExpertLease : public Retained {
 public:
  /// The next experts in fast memory: cached ones first, then arrivals; empty when all have been
  /// delivered. Blocks only when nothing is ready. The returned experts stay pinned until all
  /// recorded work that reads them has finished; the span until the next call. Fails with kIo when
  /// a read failed and kCorruption when a checksum does not hold; the experts that failed are
  /// absent again and the store stays usable.
  virtual Result<std::span<const ExpertWeights>> wait_some() = 0;
  /// True when another device than the layer's computes the next wave: what this one computes
  /// meanwhile is best recorded behind it.
  virtual bool begins_elsewhere() const { return false; }
  /// The place that computes the last wave of wait_some(); kHelper only with a helper.
  ExpertSite site() const { return site_; }

 protected:
  ExpertSite site_ = ExpertSite::kDevice;
};

/// Thread-compatible: the engine's thread only.
class ExpertStore {
 public:
  virtual ~ExpertStore() = default;

  /// Starts fetching the distinct experts of routes.ids [tokens, top_k] of `layer`, for all the
  /// rows of begin_step() at once; reads the ids back through `encoder`. At most one lease may be
  /// undelivered at a time. The lease must not outlive store or encoder.
  virtual Result<std::unique_ptr<ExpertLease>> lease(LayerId layer, Encoder& encoder,
                                                     const Routes& routes) = 0;
  /// For rows of decode, before the layer's own router can speak: would its choice from an earlier
  /// state of the tokens be worth reading for? Where it is, hint() is to be called at once.
  virtual bool wants_hint(LayerId /*layer*/) { return false; }
  /// The layer's probable choice for the step's rows of decode, ids [rows, top_k] best first. Only
  /// changes when experts are read. Reads the ids back through `encoder`.
  virtual Status hint(LayerId /*layer*/, Encoder& /*encoder*/, const Routes& /*routes*/) {
    return {};
  }
  /// The leases that follow are of a step with these rows, recorded by this encoder. A store
  /// records here whatever it has to record between steps.
  virtual void begin_step(std::span<const StepRows> rows, Encoder& /*encoder*/) {
    if (leader_ != nullptr) return;
    is_draft_ = false;
    routes_.begin_step(rows);
    help_.begin_step(rows);
  }
  /// The leases that follow are of the layer that predicts further tokens, with these rows, until
  /// the next step. They count as the last step's, but for the log of choices.
  void begin_draft(std::span<const StepRows> rows) {
    is_draft_ = true;
    routes_.begin_step(rows);
  }
  /// Has the routes and the helper of another store, whose begin_step() comes first: `leader` must
  /// outlive it.
  void follow(ExpertStore& leader) { leader_ = &leader; }
  /// Its end_step() follows a step whose work has been done, without an error. Where a helper takes
  /// part in a step, ids and slots are its own, and it has taken x before lease().
  HelpedSteps& help() { return leader_ != nullptr ? leader_->help() : help_; }
  /// The choices of routers, to be observed or replaced in every lease from now on.
  RouteReadback& routes() { return readback(); }
  /// Where the router of the step's `layer` is to write the ids [tokens, top_k] that lease() gets,
  /// for a store that looks at them later; null: anywhere.
  virtual Tensor ids_memory(LayerId layer, int64_t tokens, int64_t top_k) {
    return log_ && !is_draft() ? log_->ids(layer, tokens, top_k) : Tensor{};
  }
  virtual ExpertStats stats() const = 0;
  /// Bytes of fast memory that experts may occupy.
  virtual uint64_t capacity_bytes() const = 0;
  /// Uses so many bytes less from now on and gives them back to the system, down to the least that
  /// can work; a store without a cache gives nothing. Between steps only: no lease may be alive.
  virtual void release_memory(uint64_t /*bytes*/) {}
  /// Adds what has been used since the store was made; false where nobody counts.
  virtual bool add_uses(UsageProfile& /*profile*/) const { return false; }
  /// Marks the experts that lie elsewhere than all of them do, and sets the uses where it counts
  /// them. The map's shape is the table's.
  virtual void describe(ExpertMap& /*map*/) const {}

 protected:
  explicit ExpertStore(HelpedSteps help = HelpedSteps({})) : help_(std::move(help)) {}
  bool is_draft() const { return leader_ != nullptr ? leader_->is_draft() : is_draft_; }
  RouteReadback& readback() { return leader_ != nullptr ? leader_->routes() : routes_; }
  /// Steps that a helper took part in, which the leader counts.
  uint64_t helped_steps() const { return leader_ != nullptr ? 0 : help_.count(); }

  std::optional<RouteLog> log_;

 private:
  RouteReadback routes_;
  HelpedSteps help_;
  bool is_draft_ = false;
  ExpertStore* leader_ = nullptr;
};

/// Delivers nothing: for dry runs on the trace encoder.
std::unique_ptr<ExpertStore> make_empty_expert_store();

}  // namespace moeflux
