#include "experts/stores/streamed_expert_store.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <new>
#include <optional>
#include <utility>
#include <vector>

#include "backend/host_buffer.h"
#include "base/format.h"
#include "base/units.h"
#include "experts/cache/layer_visit.h"
#include "experts/drive/expert_fetch.h"
#include "experts/tiers/near_before_cache.h"
#include "experts/tiers/near_parts.h"
#include "experts/tiers/usage_profile.h"

namespace moeflux {
namespace {

using Clock = std::chrono::steady_clock;

uint64_t us_since(Clock::time_point begin) {
  return static_cast<uint64_t>((Clock::now() - begin) / std::chrono::microseconds(1));
}

/// The parts of a store that a lease works with. The store keeps it between leases: a step
/// allocates none.
struct LeaseState {
  explicit LeaseState(ExpertCache& cache) : visit(cache) {}

  LayerVisit visit;
  std::vector<ExpertWeights> wave;  // the last result of wait_some()
  std::vector<ExpertWeights> near;  // in the device's own memory, before the first wave
};

/// A cache and what is on its way into it: all that leases have of their store.
struct CacheReads {
  CacheReads(const ExpertTable& experts, const TensorIndex& files, AsyncReader& reader,
             ExpertCache slots, NearParts near_parts, bool check_arrivals)
      : table(experts),
        cache(std::move(slots)),
        fetch(table, files, reader,
              {.memory = {cache.buffer().host_data(), cache.capacity_bytes()},
               .slot_bytes = table.slot_bytes_max(),
               .check_arrivals = check_arrivals}),
        guesses(cache.num_slots()),
        part_of_layer(std::move(near_parts.of_layer)) {
    for (std::optional<NearSlots>& part : near_parts.slots) {
      near.push_back(part ? std::make_unique<NearBeforeCache>(std::move(*part), cache) : nullptr);
    }
    fetch.measure(&meter);
  }

  /// Null where the layer's device has no near slots.
  NearBeforeCache* near_of(LayerId layer) const {
    return near[part_of_layer[static_cast<size_t>(index(layer))]].get();
  }
  bool is_near(ExpertKey key) const {
    const NearBeforeCache* const own = near_of(key.layer);
    return own != nullptr && own->holds(key);
  }
  void start_guess(ExpertKey key, ExpertPin pin, ReadPriority priority) {
    fetch.start(key, pin.slot(), priority);
    guesses[static_cast<size_t>(pin.slot())] = std::move(pin);
    ++stats.prefetches;
  }
  // A guess holds a pin of its own until it has arrived. A failed one nobody waits for is
  // forgotten: should a router ask for the expert, it is read again.
  void settle_guess(const ExpertFetch::Arrival& arrival) {
    if (arrival.status.ok()) cache.set_ready(arrival.slot);
    guesses[static_cast<size_t>(arrival.slot)].release();
  }
  // Reads experts of the next layer that has any, for a chunk of a prompt that needs nearly all of
  // them. They come in the order of the file into slots that hold nothing, while this layer and
  // the next one's attention compute. True when one more slot would be used.
  bool read_ahead(LayerId after) {
    auto next = static_cast<size_t>(index(after)) + 1;
    while (next < table.layers.size() && table.layers[next].num_experts == 0) ++next;
    if (next == table.layers.size()) return false;
    const int32_t experts = table.layers[next].num_experts;
    for (int32_t e = 0; e < experts; ++e) {
      const ExpertKey key{LayerId{static_cast<int32_t>(next)}, ExpertId{e}};
      if (is_near(key) || cache.lookup(key)) continue;
      ExpertPin pin = cache.reserve(key, Purpose::kReadAhead);
      if (!pin) return true;
      start_guess(key, std::move(pin), ReadPriority::kDemand);
    }
    return false;
  }
  std::unique_ptr<LeaseState> take_state() {
    if (spare_states.empty()) {
      spare_states.reserve(states_made + 1);  // to be given back without memory
      spare_states.push_back(std::make_unique<LeaseState>(cache));
      ++states_made;
    }
    std::unique_ptr<LeaseState> state = std::move(spare_states.back());
    spare_states.pop_back();
    return state;
  }
  void give_back(std::unique_ptr<LeaseState> state) {
    state->visit.end();
    state->wave.clear();
    state->near.clear();
    spare_states.push_back(std::move(state));
  }

  const ExpertTable& table;
  ExpertCache cache;
  std::vector<std::unique_ptr<NearBeforeCache>> near;  // by part; they hold pins of cache
  DriveMeter meter;                                    // before fetch, which uses it to its end
  ExpertFetch fetch;
  std::vector<ExpertPin> guesses;  // by slot: in flight as a guess
  std::vector<size_t> part_of_layer;
  ExpertStats stats;
  std::vector<std::unique_ptr<LeaseState>> spare_states;  // their visits refer to cache
  size_t states_made = 0;
};

class CachedLease : public ExpertLease {
 public:
  CachedLease(CacheReads& reads, LayerId layer, Encoder& encoder, ExpertSite far_site)
      : reads_(reads),
        layer_(layer),
        encoder_(encoder),
        far_site_(far_site),
        state_(reads.take_state()) {}

  // Reads in flight write into slots: they must be over before the lease lets go.
  ~CachedLease() override {
    Status ignored;
    while (num_loading_ > 0) take(reads_.fetch.wait(), ignored);
    reads_.give_back(std::move(state_));
  }
  CachedLease(const CachedLease&) = delete;
  CachedLease& operator=(const CachedLease&) = delete;

  /// A layer's routes and all their ids; read_into_free_slots() follows.
  void begin(std::span<const LayerRoutes> routes, std::span<const int32_t> ids) {
    const bool helped = far_site_ == ExpertSite::kHelper;
    if (NearBeforeCache* const near = reads_.near_of(layer_)) {
      near->visit(routes, ids, helped, state_->near);
    }
    near_ = state_->near;
    LayerVisit& visit = state_->visit;
    visit.begin(routes, [&](ExpertId expert) { return reads_.is_near({layer_, expert}); });
    if (routes.back().phase == StepPhase::kPrompt) reads_ahead_ = needs_nearly_all();
    num_loading_ = visit.arriving().size();
    for (const LayerVisit::Entry& entry : visit.arriving()) reads_.fetch.promote(entry.slot);
    reads_.stats.hits += visit.hits().size() + state_->near.size();
    reads_.stats.misses += num_read();
    reads_.stats.prefetches_useful += num_read() - visit.misses().size();
  }
  std::span<const ExpertId> misses() const { return state_->visit.misses(); }
  /// Experts read for it, early or not.
  size_t num_read() const {
    const LayerVisit& visit = state_->visit;
    return visit.misses().size() + visit.guessed().size() + visit.arriving().size();
  }
  void read_into_free_slots() {
    const auto read = [this](const LayerVisit::Entry& next) {
      reads_.fetch.start({layer_, next.expert}, next.slot, ReadPriority::kDemand);
    };
    while (state_->visit.reserve_next(read)) ++num_loading_;
    const bool all_have_slots = state_->visit.num_waiting() == 0;
    ahead_needs_slots_ = reads_ahead_ && all_have_slots && reads_.read_ahead(layer_);
  }

  Result<std::span<const ExpertWeights>> wait_some() override {
    if (!near_.empty()) return std::exchange(near_, {});
    site_ = far_site_;
    Status failure;
    // The first wave is the hits alone: reads have only just been asked for.
    if (polls_) take(reads_.fetch.poll(host_tasks_), failure);
    polls_ = true;
    MF_RETURN_IF_ERROR(make_room());
    const LayerVisit& visit = state_->visit;
    while (failure.ok() && !visit.has_undelivered() && (num_loading_ > 0 || visit.num_waiting())) {
      wait(failure);
      MF_RETURN_IF_ERROR(make_room());
    }
    MF_RETURN_IF_ERROR(failure);
    state_->wave.clear();
    ExpertCache& cache = reads_.cache;
    for (const LayerVisit::Entry& ready : state_->visit.deliver(kWaveMax)) {
      state_->wave.push_back(reads_.table.layer(layer_).weights(ready.expert, cache.buffer(),
                                                                cache.offset_of(ready.slot)));
    }
    return std::span<const ExpertWeights>(state_->wave);
  }

 private:
  // Short enough that the reader is looked after while a prompt's many experts compute.
  static constexpr size_t kWaveMax = 16;

  // This layer tells best what the next one will need: routing is skewed by more than the number of
  // tokens shows, and what is absent are the experts that are seldom chosen.
  bool needs_nearly_all() const {
    const size_t chosen = state_->near.size() + state_->visit.hits().size() + num_read();
    return 20 * chosen >= 19 * static_cast<size_t>(reads_.table.layer(layer_).num_experts);
  }

  // Slots of earlier waves, once their compute is done, go to experts that have none, then to those
  // of the next layer: a prompt's drive is never without work.
  Status make_room() {
    const LayerVisit& visit = state_->visit;
    const bool waiting = visit.num_waiting() > 0;
    if (!waiting && !(ahead_needs_slots_ && visit.num_delivered() > 0)) return {};
    MF_RETURN_IF_ERROR(encoder_.wait(encoder_.submit()));
    state_->visit.recycle();
    read_into_free_slots();
    // At least one slot exists, and nobody else holds a pin but guesses, which arrive.
    MF_CHECK(!waiting || num_loading_ > 0 || visit.has_undelivered() ||
             reads_.fetch.in_flight() > 0);
    return {};
  }

  void wait(Status& failure) {
    const Clock::time_point begin = Clock::now();
    (void)encoder_.submit();  // other work computes meanwhile; errors stick
    std::vector<ExpertFetch::Arrival> arrivals = reads_.fetch.wait(host_tasks_);
    reads_.stats.stall_us += us_since(begin);
    take(std::move(arrivals), failure);
  }

  // Given up in an earlier token's visit, and asked for again before that came through. Without
  // memory to ask once more it has failed: the arrivals behind it are not to be lost.
  Status start_again(const ExpertFetch::Arrival& arrival) {
    try {
      reads_.fetch.start(arrival.key, arrival.slot, ReadPriority::kDemand);
      return {};
    } catch (const std::bad_alloc&) {
      return Error(ErrorCode::kResourceExhausted, "out of memory");
    }
  }

  void take(std::vector<ExpertFetch::Arrival> arrivals, Status& first_failure) {
    for (ExpertFetch::Arrival& arrival : arrivals) {
      if (reads_.cache.admission_of(arrival.slot) == Admission::kSpeculative) {
        reads_.settle_guess(arrival);  // nobody asked for it so far
        continue;
      }
      if (!arrival.status.ok() && arrival.status.error().code() == ErrorCode::kCancelled) {
        arrival.status = start_again(arrival);
        if (arrival.status.ok()) continue;
      }
      --num_loading_;
      // The visit has a pin of its own.
      reads_.guesses[static_cast<size_t>(arrival.slot)].release();
      if (arrival.status.ok()) {
        state_->visit.arrived(arrival.slot);
        continue;
      }
      state_->visit.failed(arrival.slot);
      if (first_failure.ok()) first_failure = std::move(arrival.status);
    }
  }

  CacheReads& reads_;
  LayerId layer_;
  Encoder& encoder_;
  ExpertSite far_site_;
  HostTasks host_tasks_ = [this](int64_t count, const std::function<void(int64_t)>& fn) {
    encoder_.run_on_host(count, fn);
  };
  bool reads_ahead_ = false;
  bool polls_ = false;
  std::span<const ExpertWeights> near_;  // not delivered yet
  bool ahead_needs_slots_ = false;
  size_t num_loading_ = 0;
  std::unique_ptr<LeaseState> state_;
};

class StreamedExpertStore : public ExpertStore {
 public:
  StreamedExpertStore(const ExpertTable& table, const TensorIndex& files, AsyncReader& reader,
                      ExpertCache cache, NearParts near, const StreamedExpertStoreOptions& options)
      : ExpertStore(HelpedSteps(options.tier.helper)),
        reads_(table, files, reader, std::move(cache), std::move(near), options.check_arrivals),
        reader_(reader),
        lookahead_(
            {.mode = reads_.cache.guards_admission() ? LookaheadMode::kOff : options.lookahead,
             .num_layers = reads_.cache.shape().num_layers,
             .top_k = static_cast<int32_t>(std::max<int64_t>(1, options.demand.per_layer))}),
        num_experts_(table.num_experts_total()) {
    if (options.tier.profile != nullptr) options.tier.profile->seed(reads_.cache);
    register_memory(reads_.cache.capacity_bytes());
  }

  Result<std::unique_ptr<ExpertLease>> lease(LayerId layer, Encoder& encoder,
                                             const Routes& routes) override;
  bool wants_hint(LayerId layer) override;
  Status hint(LayerId layer, Encoder& encoder, const Routes& routes) override;
  void begin_step(std::span<const StepRows> rows, Encoder& encoder) override {
    last_visit_.reset();
    ExpertStore::begin_step(rows, encoder);
    begin_near_step(reads_.near, rows, encoder, steps_++);
  }
  ExpertStats stats() const override {
    ExpertStats stats = reads_.stats;
    stats.bytes_read = reads_.fetch.bytes_read();
    stats.evictions = reads_.cache.stats().evictions;
    stats.read_us = reads_.fetch.busy_us();
    for (const auto& near : reads_.near) {
      if (near != nullptr) near->add_to(stats);
    }
    stats.helped_steps = helped_steps();
    return stats;
  }
  uint64_t capacity_bytes() const override { return reads_.cache.capacity_bytes(); }
  void release_memory(uint64_t bytes) override;
  void describe(ExpertMap& map) const override {
    reads_.cache.describe(map);
    for (const auto& near : reads_.near) {
      if (near != nullptr) near->describe(map);
    }
  }
  bool add_uses(UsageProfile& profile) const override {
    profile.add(reads_.cache);
    return true;
  }

 private:
  void register_memory(size_t cache_bytes);
  void list_absent(LayerId layer, size_t top_k);
  void settle_hint(LayerId layer);
  void meter_visit(LayerId layer, uint64_t experts_read);

  CacheReads reads_;
  AsyncReader& reader_;
  Lookahead lookahead_;
  uint64_t num_experts_;
  size_t steps_ = 0;
  std::vector<int32_t> hinted_ids_;       // [top_k]
  std::vector<ExpertGuess> hinted_;       // of these, absent
  std::vector<ExpertCache::Slot> asked_;  // read because of the last hint
  Clock::time_point hint_begin_;
  std::optional<Clock::time_point> last_visit_;  // of this step, in decode
};

// Where every expert has come to stay there is nothing to read early; what routers say early is not
// what is forced on them.
bool StreamedExpertStore::wants_hint(LayerId layer) {
  if (readback().is_replaced() || reads_.cache.num_resident() >= num_experts_) return false;
  if (!lookahead_.wants(layer)) return false;
  hint_begin_ = Clock::now();
  return true;
}

// hinted_ = the absent ones of hinted_ids_ [rows, top_k]: the best of every row, then the second of
// every row, and so on, as many as a single row can have.
void StreamedExpertStore::list_absent(LayerId layer, size_t top_k) {
  hinted_.clear();
  const auto most = static_cast<size_t>(lookahead_.top_k());
  for (size_t rank = 0; rank < std::min(top_k, most); ++rank) {
    for (size_t i = rank; i < hinted_ids_.size(); i += top_k) {
      const ExpertId expert{hinted_ids_[i]};
      MF_CHECK(index(expert) >= 0 && index(expert) < reads_.table.layer(layer).num_experts);
      const bool is_listed =
          std::ranges::find(hinted_, expert, &ExpertGuess::expert) != hinted_.end();
      const ExpertKey key{layer, expert};
      if (is_listed || reads_.is_near(key) || reads_.cache.lookup(key)) continue;
      if (hinted_.size() == most) return;
      hinted_.push_back({expert, static_cast<int32_t>(rank)});
    }
  }
}

Status StreamedExpertStore::hint(LayerId layer, Encoder& encoder, const Routes& routes) {
  hinted_ids_.resize(static_cast<size_t>(routes.ids.num_elements()));
  MF_RETURN_IF_ERROR(encoder.read(std::as_writable_bytes(std::span(hinted_ids_)), routes.ids));
  list_absent(layer, static_cast<size_t>(routes.ids.dim(1)));
  const DriveLoad load = reads_.meter.load(reads_.table.layer(layer).bytes_per_expert());
  asked_.clear();
  for (const ExpertGuess& guess : lookahead_.choose(layer, hinted_, load)) {
    const ExpertKey key{layer, guess.expert};
    ExpertPin pin = reads_.cache.reserve(key, Purpose::kGuess);
    if (!pin) break;
    const ExpertCache::Slot slot = pin.slot();
    reads_.start_guess(key, std::move(pin), ReadPriority::kSpeculative);
    asked_.push_back(slot);
  }
  const uint64_t us = us_since(hint_begin_);
  reads_.stats.lookahead_us += us;
  lookahead_.note_cost(static_cast<double>(us) * 1e-6);
  return {};
}

// The router has spoken: what it did not ask for and has not begun need not be read.
void StreamedExpertStore::settle_hint(LayerId layer) {
  lookahead_.settle(layer, readback().ids());
  for (const ExpertCache::Slot slot : asked_) {
    const bool unwanted = reads_.fetch.is_in_flight(slot) &&
                          reads_.cache.admission_of(slot) == Admission::kSpeculative;
    if (unwanted) reads_.fetch.cancel(slot);
  }
  asked_.clear();
}

void StreamedExpertStore::meter_visit(LayerId layer, uint64_t experts_read) {
  const Clock::time_point now = Clock::now();
  if (last_visit_) {
    reads_.meter.visit(experts_read * reads_.table.layer(layer).bytes_per_expert(),
                       std::chrono::duration<double>(now - *last_visit_).count());
  }
  last_visit_ = now;
}

// Guesses on their way arrive first. Pages locked for reading cannot be given back, so the rest is
// registered anew. On a system that takes no pages back, no slot is given up.
void StreamedExpertStore::release_memory(uint64_t bytes) {
  if (!discard_host_memory(reads_.cache.buffer(), 0, 0)) return;
  while (reads_.fetch.in_flight() > 0) {
    for (const ExpertFetch::Arrival& arrival : reads_.fetch.wait()) reads_.settle_guess(arrival);
  }
  const size_t slot_bytes = reads_.cache.slot_bytes();
  const uint64_t slots =
      std::min<uint64_t>((bytes + slot_bytes - 1) / slot_bytes, reads_.cache.slot_limit() - 1);
  if (slots == 0) return;
  reads_.cache.shrink_to(reads_.cache.slot_limit() - slots);
  const size_t kept = reads_.cache.compact() * slot_bytes;
  register_memory(kept);
  Buffer& buffer = reads_.cache.buffer();
  discard_host_memory(buffer, kept, buffer.size_bytes() - kept);
}

// Where it is refused, reads still work.
void StreamedExpertStore::register_memory(size_t cache_bytes) {
  const std::array<std::span<std::byte>, 2> regions = {
      std::span(reads_.cache.buffer().host_data(), cache_bytes), reads_.fetch.landing_memory()};
  (void)reader_.register_buffers(std::span(regions).first(regions[1].empty() ? 1 : 2));
}

Result<std::unique_ptr<ExpertLease>> StreamedExpertStore::lease(LayerId layer, Encoder& encoder,
                                                                const Routes& routes) {
  MF_ASSIGN_OR_RETURN(const std::span<const LayerRoutes> chosen,
                      readback().read(layer, encoder, routes));
  for (const int32_t id : readback().ids()) {
    MF_CHECK(id >= 0 && id < reads_.table.layer(layer).num_experts);
  }
  const auto far_site = help().helper() == nullptr ? ExpertSite::kDevice : ExpertSite::kHelper;
  auto lease = std::make_unique<CachedLease>(reads_, layer, encoder, far_site);
  lease->begin(chosen, readback().ids());
  if (chosen.front().phase == StepPhase::kDecode) {  // which comes first
    settle_hint(layer);
    meter_visit(layer, lease->num_read());
  }
  readback().tell(lease->misses());
  lease->read_into_free_slots();
  return std::unique_ptr<ExpertLease>(std::move(lease));
}

}  // namespace

Result<std::unique_ptr<ExpertStore>> make_streamed_expert_store(
    const ExpertTable& table, const TensorIndex& index, AsyncReader& reader, Device& device,
    const StreamedExpertStoreOptions& options) {
  const size_t slot_bytes = table.slot_bytes_max();
  if (slot_bytes == 0) return make_empty_expert_store();
  uint64_t slots = options.capacity_bytes == 0 ? 1 : options.capacity_bytes / slot_bytes;
  if (slots == 0) {
    return make_error(ErrorCode::kResourceExhausted,
                      "expert cache of {} cannot hold one expert, which takes {}",
                      format_bytes(options.capacity_bytes), format_bytes(slot_bytes));
  }
  slots = std::min<uint64_t>(slots, table.num_experts_total());
  // A device with memory of its own reaches what the system lets it pin of the host's. By halves: a
  // system that refuses has touched all of it first.
  const size_t slots_min = device.free_bytes() ? 1 : slots;
  MF_ASSIGN_OR_RETURN(SlotMemory memory,
                      allocate_slots(device, {.name = "experts in the host's memory",
                                              .slots = slots,
                                              .slots_min = slots_min,
                                              .slot_bytes = slot_bytes,
                                              .kind = MemoryKind::kHostVisible,
                                              .share = 0.5,
                                              .on_less = options.tier.on_less}));
  MF_CHECK(memory.buffer->host_data() != nullptr);
  ExpertCache::Options cache{.slot_bytes = slot_bytes,
                             .num_slots = memory.slots,
                             .shape = shape_of(table),
                             .eviction = options.eviction};
  guard_below_one_token(cache, options.demand);
  set_staging(cache, table.num_experts_total());
  if (options.staging) cache.num_staging = *options.staging;
  MF_ASSIGN_OR_RETURN(NearParts near,
                      allocate_near_parts(table, device, options.tier, options.parts));
  return std::unique_ptr<ExpertStore>(std::make_unique<StreamedExpertStore>(
      table, index, reader, ExpertCache(std::move(memory.buffer), cache), std::move(near),
      options));
}

}  // namespace moeflux
