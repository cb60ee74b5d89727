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

namespace moeflux {
namespace {

using Clock = std::chrono::steady_clock;

uint64_t us_since(Clock::time_point begin) {
  return static_cast<uint64_t>((Clock::now() - begin) / std::chrono::microseconds(1));
}

/// The parts of the store that a lease works with. The store keeps it between leases: a step
/// allocates none.
struct LeaseState {
  explicit LeaseState(ExpertCache& cache) : visit(cache) {}

  LayerVisit visit;
  std::vector<ExpertWeights> wave;  // the last result of wait_some()
  std::vector<ExpertWeights> near;  // in the device's own memory, before the first wave
};

class StreamedExpertStore : public ExpertStore {
 public:
  StreamedExpertStore(const ExpertTable& table, const TensorIndex& files, AsyncReader& reader,
                      ExpertCache cache, std::optional<NearSlots> near,
                      const StreamedExpertStoreOptions& options)
      : ExpertStore(HelpedSteps(options.helper)),
        table_(table),
        cache_(std::move(cache)),
        reader_(reader),
        fetch_(table, files, reader,
               {.memory = {cache_.buffer().host_data(), cache_.capacity_bytes()},
                .slot_bytes = table.slot_bytes_max(),
                .check_arrivals = options.check_arrivals}),
        lookahead_({.mode = cache_.guards_admission() ? LookaheadMode::kOff : options.lookahead,
                    .num_layers = cache_.shape().num_layers,
                    .top_k = static_cast<int32_t>(std::max<int64_t>(1, options.demand.per_layer))}),
        num_experts_(table.num_experts_total()),
        guesses_(cache_.num_slots()) {
    if (options.profile != nullptr) options.profile->seed(cache_);
    if (near) near_.emplace(std::move(*near), cache_);
    fetch_.measure(&meter_);
    register_memory(cache_.capacity_bytes());
  }

  Result<std::unique_ptr<ExpertLease>> lease(LayerId layer, Encoder& encoder,
                                             const Routes& routes) override;
  bool wants_hint(LayerId layer) override;
  Status hint(LayerId layer, Encoder& encoder, const Routes& routes) override;
  void begin_step(std::span<const StepRows> rows, Encoder& encoder) override {
    last_visit_.reset();
    ExpertStore::begin_step(rows, encoder);
    if (near_) near_->begin_step(rows, encoder);
  }
  ExpertStats stats() const override {
    ExpertStats stats = stats_;
    stats.bytes_read = fetch_.bytes_read();
    stats.evictions = cache_.stats().evictions;
    stats.read_us = fetch_.busy_us();
    if (near_) near_->add_to(stats);
    stats.helped_steps = help_.count();
    return stats;
  }
  uint64_t capacity_bytes() const override { return cache_.capacity_bytes(); }
  void release_memory(uint64_t bytes) override;
  bool add_uses(UsageProfile& profile) const override {
    profile.add(cache_);
    return true;
  }

 private:
  class Lease;

  std::unique_ptr<LeaseState> take_state() {
    if (spare_states_.empty()) {
      spare_states_.reserve(states_made_ + 1);  // to be given back without memory
      auto state = std::make_unique<LeaseState>(cache_);
      ++states_made_;
      return state;
    }
    std::unique_ptr<LeaseState> state = std::move(spare_states_.back());
    spare_states_.pop_back();
    return state;
  }
  void give_back(std::unique_ptr<LeaseState> state) {
    state->visit.end();
    state->wave.clear();
    state->near.clear();
    spare_states_.push_back(std::move(state));
  }
  void register_memory(size_t cache_bytes);
  bool is_near(ExpertKey key) const { return near_ && near_->holds(key); }
  bool read_ahead(LayerId after);
  void start_guess(ExpertKey key, ExpertPin pin, ReadPriority priority);
  void list_absent(LayerId layer, size_t top_k);
  void settle_hint(LayerId layer);
  void meter_visit(LayerId layer, uint64_t experts_read);
  void settle_guess(const ExpertFetch::Arrival& arrival);

  const ExpertTable& table_;
  ExpertCache cache_;
  std::optional<NearBeforeCache> near_;  // holds pins of cache_
  AsyncReader& reader_;
  DriveMeter meter_;  // before fetch_, which uses it to its end
  ExpertFetch fetch_;
  ExpertStats stats_;
  Lookahead lookahead_;
  uint64_t num_experts_;
  std::vector<int32_t> hinted_ids_;       // [top_k]
  std::vector<ExpertGuess> hinted_;       // of these, absent
  std::vector<ExpertCache::Slot> asked_;  // read because of the last hint
  Clock::time_point hint_begin_;
  std::optional<Clock::time_point> last_visit_;            // of this step, in decode
  std::vector<ExpertPin> guesses_;                         // by slot: in flight as a guess
  std::vector<std::unique_ptr<LeaseState>> spare_states_;  // their visits refer to cache_
  size_t states_made_ = 0;
};

// Reads experts of the next layer that has any, for a chunk of a prompt that needs nearly all of
// them. They come in the order of the file into slots that hold nothing, while this layer and the
// next one's attention compute. True when one more slot would be used.
bool StreamedExpertStore::read_ahead(LayerId after) {
  auto next = static_cast<size_t>(index(after)) + 1;
  while (next < table_.layers.size() && table_.layers[next].num_experts == 0) ++next;
  if (next == table_.layers.size()) return false;
  const int32_t experts = table_.layers[next].num_experts;
  for (int32_t e = 0; e < experts; ++e) {
    const ExpertKey key{LayerId{static_cast<int32_t>(next)}, ExpertId{e}};
    if (is_near(key) || cache_.lookup(key)) continue;
    ExpertPin pin = cache_.reserve(key, Purpose::kReadAhead);
    if (!pin) return true;
    start_guess(key, std::move(pin), ReadPriority::kDemand);
  }
  return false;
}

void StreamedExpertStore::start_guess(ExpertKey key, ExpertPin pin, ReadPriority priority) {
  fetch_.start(key, pin.slot(), priority);
  guesses_[static_cast<size_t>(pin.slot())] = std::move(pin);
  ++stats_.prefetches;
}

// Where every expert has come to stay there is nothing to read early; what routers say early is not
// what is forced on them.
bool StreamedExpertStore::wants_hint(LayerId layer) {
  if (routes_.is_replaced() || cache_.num_resident() >= num_experts_) return false;
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
      MF_CHECK(index(expert) >= 0 && index(expert) < table_.layer(layer).num_experts);
      const bool is_listed =
          std::ranges::find(hinted_, expert, &ExpertGuess::expert) != hinted_.end();
      if (is_listed || is_near({layer, expert}) || cache_.lookup({layer, expert})) continue;
      if (hinted_.size() == most) return;
      hinted_.push_back({expert, static_cast<int32_t>(rank)});
    }
  }
}

Status StreamedExpertStore::hint(LayerId layer, Encoder& encoder, const Routes& routes) {
  hinted_ids_.resize(static_cast<size_t>(routes.ids.num_elements()));
  MF_RETURN_IF_ERROR(encoder.read(std::as_writable_bytes(std::span(hinted_ids_)), routes.ids));
  list_absent(layer, static_cast<size_t>(routes.ids.dim(1)));
  const DriveLoad load = meter_.load(table_.layer(layer).bytes_per_expert());
  asked_.clear();
  for (const ExpertGuess& guess : lookahead_.choose(layer, hinted_, load)) {
    const ExpertKey key{layer, guess.expert};
    ExpertPin pin = cache_.reserve(key, Purpose::kGuess);
    if (!pin) break;
    const ExpertCache::Slot slot = pin.slot();
    start_guess(key, std::move(pin), ReadPriority::kSpeculative);
    asked_.push_back(slot);
  }
  const uint64_t us = us_since(hint_begin_);
  stats_.lookahead_us += us;
  lookahead_.note_cost(static_cast<double>(us) * 1e-6);
  return {};
}

// The router has spoken: what it did not ask for and has not begun need not be read.
void StreamedExpertStore::settle_hint(LayerId layer) {
  lookahead_.settle(layer, routes_.ids());
  for (const ExpertCache::Slot slot : asked_) {
    const bool unwanted =
        fetch_.is_in_flight(slot) && cache_.admission_of(slot) == Admission::kSpeculative;
    if (unwanted) fetch_.cancel(slot);
  }
  asked_.clear();
}

void StreamedExpertStore::meter_visit(LayerId layer, uint64_t experts_read) {
  const Clock::time_point now = Clock::now();
  if (last_visit_) {
    meter_.visit(experts_read * table_.layer(layer).bytes_per_expert(),
                 std::chrono::duration<double>(now - *last_visit_).count());
  }
  last_visit_ = now;
}

// A guess holds a pin of its own until it has arrived. A failed one nobody waits for is forgotten:
// should a router ask for the expert, it is read again.
void StreamedExpertStore::settle_guess(const ExpertFetch::Arrival& arrival) {
  if (arrival.status.ok()) cache_.set_ready(arrival.slot);
  guesses_[static_cast<size_t>(arrival.slot)].release();
}

// Guesses on their way arrive first. Pages locked for reading cannot be given back, so the rest is
// registered anew. On a system that takes no pages back, no slot is given up.
void StreamedExpertStore::release_memory(uint64_t bytes) {
  if (!discard_host_memory(cache_.buffer(), 0, 0)) return;
  while (fetch_.in_flight() > 0) {
    for (const ExpertFetch::Arrival& arrival : fetch_.wait()) settle_guess(arrival);
  }
  const size_t slot_bytes = cache_.slot_bytes();
  const uint64_t slots =
      std::min<uint64_t>((bytes + slot_bytes - 1) / slot_bytes, cache_.slot_limit() - 1);
  if (slots == 0) return;
  cache_.shrink_to(cache_.slot_limit() - slots);
  const size_t kept = cache_.compact() * slot_bytes;
  register_memory(kept);
  Buffer& buffer = cache_.buffer();
  discard_host_memory(buffer, kept, buffer.size_bytes() - kept);
}

// Where it is refused, reads still work.
void StreamedExpertStore::register_memory(size_t cache_bytes) {
  const std::array<std::span<std::byte>, 2> regions = {
      std::span(cache_.buffer().host_data(), cache_bytes), fetch_.landing_memory()};
  (void)reader_.register_buffers(std::span(regions).first(regions[1].empty() ? 1 : 2));
}

/// The slot is given up unless its read has been asked for: nobody would end its wait.
class ReservedSlot {
 public:
  ReservedSlot(LayerVisit& visit, ExpertCache::Slot slot) : visit_(visit), slot_(slot) {}
  ~ReservedSlot() {
    if (!is_read_) visit_.failed(slot_);
  }
  ReservedSlot(const ReservedSlot&) = delete;
  ReservedSlot& operator=(const ReservedSlot&) = delete;
  void is_read() { is_read_ = true; }

 private:
  LayerVisit& visit_;
  ExpertCache::Slot slot_;
  bool is_read_ = false;
};

class StreamedExpertStore::Lease : public ExpertLease {
 public:
  Lease(StreamedExpertStore& store, LayerId layer, Encoder& encoder,
        std::unique_ptr<LeaseState> state)
      : store_(store), layer_(layer), encoder_(encoder), state_(std::move(state)) {}

  // Reads in flight write into slots: they must be over before the lease lets go.
  ~Lease() override {
    Status ignored;
    while (num_loading_ > 0) take(store_.fetch_.wait(), ignored);
    store_.give_back(std::move(state_));
  }
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;
  void start(std::span<const LayerRoutes> routes) {
    const bool helped = store_.help_.helper() != nullptr;
    if (store_.near_) store_.near_->visit(routes, store_.routes_.ids(), helped, state_->near);
    LayerVisit& visit = state_->visit;
    visit.begin(routes, [&](ExpertId expert) { return store_.is_near({layer_, expert}); });
    // Decode comes first.
    const bool decodes = routes.front().phase == StepPhase::kDecode;
    if (routes.back().phase == StepPhase::kPrompt) reads_ahead_ = needs_nearly_all();
    num_loading_ = visit.arriving().size();
    for (const LayerVisit::Entry& entry : visit.arriving()) store_.fetch_.promote(entry.slot);
    const size_t guessed = visit.guessed().size() + visit.arriving().size();
    if (decodes) {
      store_.settle_hint(layer_);
      store_.meter_visit(layer_, visit.misses().size() + guessed);
    }
    store_.stats_.hits += visit.hits().size() + state_->near.size();
    store_.stats_.misses += visit.misses().size() + guessed;
    store_.stats_.prefetches_useful += guessed;
    store_.routes_.tell(visit.misses());
    read_into_free_slots();
  }

  Result<std::span<const ExpertWeights>> wait_some() override {
    if (!state_->near.empty() && !near_is_given_) {
      near_is_given_ = true;
      return std::span<const ExpertWeights>(state_->near);
    }
    if (store_.help_.helper() != nullptr) site_ = ExpertSite::kHelper;
    Status failure;
    // The first wave is the hits alone: reads have only just been asked for.
    if (polls_) take(store_.fetch_.poll(host_tasks_), failure);
    polls_ = true;
    MF_RETURN_IF_ERROR(make_room());
    const LayerVisit& visit = state_->visit;
    while (failure.ok() && !visit.has_undelivered() && (num_loading_ > 0 || visit.num_waiting())) {
      wait(failure);
      MF_RETURN_IF_ERROR(make_room());
    }
    MF_RETURN_IF_ERROR(failure);
    state_->wave.clear();
    ExpertCache& cache = store_.cache_;
    for (const LayerVisit::Entry& ready : state_->visit.deliver(kWaveMax)) {
      state_->wave.push_back(store_.table_.layer(layer_).weights(ready.expert, cache.buffer(),
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
    const LayerVisit& visit = state_->visit;
    const size_t chosen = state_->near.size() + visit.hits().size() + visit.guessed().size() +
                          visit.arriving().size() + visit.misses().size();
    return 20 * chosen >= 19 * static_cast<size_t>(store_.table_.layer(layer_).num_experts);
  }

  void read_into_free_slots() {
    while (const std::optional<LayerVisit::Entry> next = state_->visit.reserve_next()) {
      ReservedSlot reserved(state_->visit, next->slot);
      store_.fetch_.start({layer_, next->expert}, next->slot, ReadPriority::kDemand);
      reserved.is_read();
      ++num_loading_;
    }
    const bool all_have_slots = state_->visit.num_waiting() == 0;
    ahead_needs_slots_ = reads_ahead_ && all_have_slots && store_.read_ahead(layer_);
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
             store_.fetch_.in_flight() > 0);
    return {};
  }

  void wait(Status& failure) {
    const Clock::time_point begin = Clock::now();
    (void)encoder_.submit();  // other work computes meanwhile; errors stick
    std::vector<ExpertFetch::Arrival> arrivals = store_.fetch_.wait(host_tasks_);
    store_.stats_.stall_us += us_since(begin);
    take(std::move(arrivals), failure);
  }

  // Given up in an earlier token's visit, and asked for again before that came through. Without
  // memory to ask once more it has failed: the arrivals behind it are not to be lost.
  Status start_again(const ExpertFetch::Arrival& arrival) {
    try {
      store_.fetch_.start(arrival.key, arrival.slot, ReadPriority::kDemand);
      return {};
    } catch (const std::bad_alloc&) {
      return Error(ErrorCode::kResourceExhausted, "out of memory");
    }
  }

  void take(std::vector<ExpertFetch::Arrival> arrivals, Status& first_failure) {
    for (ExpertFetch::Arrival& arrival : arrivals) {
      if (store_.cache_.admission_of(arrival.slot) == Admission::kSpeculative) {
        store_.settle_guess(arrival);  // nobody asked for it so far
        continue;
      }
      if (!arrival.status.ok() && arrival.status.error().code() == ErrorCode::kCancelled) {
        arrival.status = start_again(arrival);
        if (arrival.status.ok()) continue;
      }
      --num_loading_;
      // The visit has a pin of its own.
      store_.guesses_[static_cast<size_t>(arrival.slot)].release();
      if (arrival.status.ok()) {
        state_->visit.arrived(arrival.slot);
        continue;
      }
      state_->visit.failed(arrival.slot);
      if (first_failure.ok()) first_failure = std::move(arrival.status);
    }
  }

  StreamedExpertStore& store_;
  LayerId layer_;
  Encoder& encoder_;
  HostTasks host_tasks_ = [this](int64_t count, const std::function<void(int64_t)>& fn) {
    encoder_.run_on_host(count, fn);
  };
  bool reads_ahead_ = false;
  bool polls_ = false;
  bool near_is_given_ = false;
  bool ahead_needs_slots_ = false;
  size_t num_loading_ = 0;
  std::unique_ptr<LeaseState> state_;
};

Result<std::unique_ptr<ExpertLease>> StreamedExpertStore::lease(LayerId layer, Encoder& encoder,
                                                                const Routes& routes) {
  MF_ASSIGN_OR_RETURN(const std::span<const LayerRoutes> chosen,
                      routes_.read(layer, encoder, routes));
  for (const int32_t id : routes_.ids()) {
    MF_CHECK(id >= 0 && id < table_.layer(layer).num_experts);
  }
  auto lease = std::make_unique<Lease>(*this, layer, encoder, take_state());
  lease->start(chosen);
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
                      "expert cache of {} cannot hold one expert, which takes {} (0 asks for the "
                      "least that can work)",
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
                                              .on_less = options.on_less}));
  MF_CHECK(memory.buffer->host_data() != nullptr);
  ExpertCache::Options cache{.slot_bytes = slot_bytes,
                             .num_slots = memory.slots,
                             .shape = shape_of(table),
                             .eviction = options.eviction};
  guard_below_one_token(cache, options.demand);
  set_staging(cache, table.num_experts_total());
  if (options.staging) cache.num_staging = *options.staging;
  std::optional<NearSlots> near;
  MF_ASSIGN_OR_RETURN(SlotMemory own, allocate_near(table, device,
                                                    {.bytes = options.near_bytes,
                                                     .leave_bytes = options.leave_bytes,
                                                     .on_less = options.on_less}));
  if (own.slots > 0) {
    MF_CHECK(device.copies_beside());
    near.emplace(table, std::move(own), slot_bytes, options.placement);
    if (options.profile != nullptr) options.profile->seed(near->placement());
  }
  return std::unique_ptr<ExpertStore>(std::make_unique<StreamedExpertStore>(
      table, index, reader, ExpertCache(std::move(memory.buffer), cache), std::move(near),
      options));
}

}  // namespace moeflux
