#include "experts/streamed_expert_store.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>
#include <vector>

#include "backend/host_buffer.h"
#include "base/format.h"
#include "base/units.h"
#include "experts/expert_fetch.h"
#include "experts/layer_visit.h"

namespace moeflux {
namespace {

class StreamedLease;

/// What a lease works with. The store keeps it between leases: a step allocates none.
struct LeaseState {
  explicit LeaseState(ExpertCache& cache) : visit(cache) {}

  LayerVisit visit;
  std::vector<int32_t> ids;         // [tokens, top_k]
  std::vector<float> weights;       // the same, for the observer
  std::vector<ExpertWeights> wave;  // what wait_some() returned last
};

class StreamedExpertStore : public ExpertStore {
 public:
  StreamedExpertStore(const ExpertTable& table, const TensorIndex& files, AsyncReader& reader,
                      ExpertCache cache, const StreamedExpertStoreOptions& options)
      : table_(table),
        cache_(std::move(cache)),
        reader_(reader),
        fetch_(table, files, reader, cache_, options.check_arrivals),
        guesses_(cache_.num_slots()) {}

  Result<std::unique_ptr<ExpertLease>> lease(LayerId layer, Encoder& encoder,
                                             const Routes& routes) override;
  void begin_step(int64_t position) override { position_ = position; }
  void observe_routes(RouteObserver* observer) override { observer_ = observer; }
  ExpertStats stats() const override {
    ExpertStats stats = stats_;
    stats.bytes_read = fetch_.bytes_read();
    stats.evictions = cache_.evictions();
    return stats;
  }
  uint64_t capacity_bytes() const override { return cache_.capacity_bytes(); }
  void release_memory(uint64_t bytes) override;
  ExpertCache* cache() override { return &cache_; }

 private:
  friend class StreamedLease;

  std::unique_ptr<LeaseState> take_state() {
    if (spare_states_.empty()) return std::make_unique<LeaseState>(cache_);
    std::unique_ptr<LeaseState> state = std::move(spare_states_.back());
    spare_states_.pop_back();
    return state;
  }
  void give_back(std::unique_ptr<LeaseState> state) {
    state->visit.end();
    state->wave.clear();
    spare_states_.push_back(std::move(state));
  }
  Result<LayerRoutes> read_routes(LayerId layer, Encoder& encoder, const Routes& routes,
                                  LeaseState& state) const;
  void read_ahead(LayerId after, int64_t picks);
  bool guess(ExpertKey key, ReadPriority priority);
  void settle_guess(const ExpertFetch::Arrival& arrival);

  const ExpertTable& table_;
  ExpertCache cache_;
  AsyncReader& reader_;
  ExpertFetch fetch_;
  RouteObserver* observer_ = nullptr;
  int64_t position_ = 0;
  ExpertStats stats_;
  std::vector<bool> guesses_;  // by slot: in flight, and pinned, as a guess
  std::vector<std::unique_ptr<LeaseState>> spare_states_;  // their visits refer to cache_
};

// The layer that comes next and its experts, when a chunk of a prompt is long enough to need nearly
// all of them: read in the order of the file into slots that hold nothing, while this layer and the
// next one's attention compute.
void StreamedExpertStore::read_ahead(LayerId after, int64_t picks) {
  const auto next = static_cast<size_t>(index(after)) + 1;
  if (next >= table_.layers.size()) return;
  const int32_t experts = table_.layers[next].num_experts;
  // With as many picks as experts, chance alone leaves out 37 %; with three times as many, 5 %.
  if (experts == 0 || picks < 3 * int64_t{experts}) return;
  for (int32_t e = 0; e < experts; ++e) {
    const ExpertKey key{LayerId{static_cast<int32_t>(next)}, ExpertId{e}};
    if (!cache_.lookup(key) && !guess(key, ReadPriority::kDemand)) return;
  }
}

bool StreamedExpertStore::guess(ExpertKey key, ReadPriority priority) {
  const std::optional<ExpertCache::Slot> slot = cache_.reserve_speculative(key);
  if (!slot) return false;
  guesses_[static_cast<size_t>(*slot)] = true;
  ++stats_.prefetches;
  fetch_.start(key, *slot, priority);
  return true;
}

// A guess holds a pin of its own until it has arrived. A failed one nobody waits for is forgotten:
// should a router ask for the expert, it is read again.
void StreamedExpertStore::settle_guess(const ExpertFetch::Arrival& arrival) {
  guesses_[static_cast<size_t>(arrival.slot)] = false;
  if (!arrival.status.ok()) return cache_.abandon(arrival.slot);
  cache_.set_ready(arrival.slot);
  cache_.unpin(arrival.slot);
}

// Guesses on their way arrive first. Locked memory would not leave: what remains is registered
// anew.
// Where it would not leave at all, nothing is given up for it.
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
  Buffer& buffer = cache_.buffer();
  const std::span<std::byte> memory(buffer.host_data(), kept);
  (void)reader_.register_buffers(std::span(&memory, 1));
  discard_host_memory(buffer, kept, buffer.size_bytes() - kept);
}

class StreamedLease : public ExpertLease {
 public:
  StreamedLease(StreamedExpertStore& store, LayerId layer, Encoder& encoder,
                std::unique_ptr<LeaseState> state)
      : store_(store), layer_(layer), encoder_(encoder), state_(std::move(state)) {}

  // Reads in flight write into slots: they must be over before the lease lets go.
  ~StreamedLease() override {
    Status ignored;
    while (num_loading_ > 0) take(store_.fetch_.wait(), ignored);
    store_.give_back(std::move(state_));
  }
  StreamedLease(const StreamedLease&) = delete;
  StreamedLease& operator=(const StreamedLease&) = delete;

  void start(const LayerRoutes& routes) {
    LayerVisit& visit = state_->visit;
    visit.begin(routes);
    if (routes.phase == RoutePhase::kPrefill) picks_ = static_cast<int64_t>(routes.ids.size());
    for (const LayerVisit::Entry& entry : visit.arriving()) store_.fetch_.promote(entry.slot);
    num_loading_ = visit.arriving().size();
    const size_t guessed = visit.guessed().size() + visit.arriving().size();
    store_.stats_.hits += visit.hits().size();
    store_.stats_.misses += visit.misses().size() + guessed;
    store_.stats_.prefetches_useful += guessed;
    if (store_.observer_ != nullptr) store_.observer_->routed(routes, visit.misses());
    read_into_free_slots();
  }

  Result<std::span<const ExpertWeights>> wait_some() override {
    Status failure;
    // The first wave is the hits alone: reads have only just been asked for.
    if (polls_) take(store_.fetch_.poll(), failure);
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

  void read_into_free_slots() {
    while (const std::optional<LayerVisit::Entry> next = state_->visit.reserve_next()) {
      store_.fetch_.start({layer_, next->expert}, next->slot, ReadPriority::kDemand);
      ++num_loading_;
    }
    if (state_->visit.num_waiting() == 0) store_.read_ahead(layer_, picks_);
  }

  // Experts without a slot take those of earlier waves, once their compute is done.
  Status make_room() {
    if (state_->visit.num_waiting() == 0) return {};
    MF_RETURN_IF_ERROR(encoder_.wait(encoder_.submit()));
    state_->visit.recycle();
    read_into_free_slots();
    // At least one slot exists, and nobody else holds a pin but guesses, which arrive.
    MF_CHECK(num_loading_ > 0 || state_->visit.has_undelivered() || store_.fetch_.in_flight() > 0);
    return {};
  }

  void wait(Status& failure) {
    const auto begin = std::chrono::steady_clock::now();
    const std::vector<ExpertFetch::Arrival> arrivals = store_.fetch_.wait();
    const auto waited = std::chrono::steady_clock::now() - begin;
    store_.stats_.stall_us += static_cast<uint64_t>(
        std::chrono::duration_cast<std::chrono::microseconds>(waited).count());
    take(arrivals, failure);
  }

  void take(const std::vector<ExpertFetch::Arrival>& arrivals, Status& first_failure) {
    for (const ExpertFetch::Arrival& arrival : arrivals) {
      if (store_.cache_.admission_of(arrival.slot) == Admission::kSpeculative) {
        store_.settle_guess(arrival);  // nobody asked for it so far
        continue;
      }
      --num_loading_;
      std::vector<bool>::reference guess = store_.guesses_[static_cast<size_t>(arrival.slot)];
      if (guess) store_.cache_.unpin(arrival.slot);  // the visit has a pin of its own
      guess = false;
      if (arrival.status.ok()) {
        state_->visit.arrived(arrival.slot);
        continue;
      }
      state_->visit.failed(arrival.slot);
      if (first_failure.ok()) first_failure = arrival.status;
    }
  }

  StreamedExpertStore& store_;
  LayerId layer_;
  Encoder& encoder_;
  int64_t picks_ = 0;  // of a prompt
  bool polls_ = false;
  size_t num_loading_ = 0;
  std::unique_ptr<LeaseState> state_;
};

// A step of one token is decode; a prompt's last chunk may be one token and count as such.
Result<LayerRoutes> StreamedExpertStore::read_routes(LayerId layer, Encoder& encoder,
                                                     const Routes& routes,
                                                     LeaseState& state) const {
  const auto count = static_cast<size_t>(routes.ids.num_elements());
  state.ids.resize(count);
  MF_RETURN_IF_ERROR(encoder.read(std::as_writable_bytes(std::span(state.ids)), routes.ids));
  if (observer_ != nullptr) {
    state.weights.resize(count);
    MF_RETURN_IF_ERROR(
        encoder.read(std::as_writable_bytes(std::span(state.weights)), routes.weights));
  }
  for (const int32_t id : state.ids) MF_CHECK(id >= 0 && id < table_.layer(layer).num_experts);
  const int64_t tokens = routes.ids.dim(0);
  return LayerRoutes{.layer = layer,
                     .phase = tokens == 1 ? RoutePhase::kDecode : RoutePhase::kPrefill,
                     .position = position_,
                     .tokens = tokens,
                     .ids = state.ids,
                     .weights = state.weights};
}

Result<std::unique_ptr<ExpertLease>> StreamedExpertStore::lease(LayerId layer, Encoder& encoder,
                                                                const Routes& routes) {
  std::unique_ptr<LeaseState> state = take_state();
  MF_ASSIGN_OR_RETURN(const LayerRoutes chosen, read_routes(layer, encoder, routes, *state));
  auto lease = std::make_unique<StreamedLease>(*this, layer, encoder, std::move(state));
  lease->start(chosen);
  return std::unique_ptr<ExpertLease>(std::move(lease));
}

ExpertShape shape_of(const ExpertTable& table) {
  ExpertShape shape{.num_layers = static_cast<int32_t>(table.layers.size())};
  for (const ExpertLayer& layer : table.layers) {
    shape.num_experts = std::max(shape.num_experts, layer.num_experts);
  }
  return shape;
}

class EmptyLease : public ExpertLease {
 public:
  Result<std::span<const ExpertWeights>> wait_some() override {
    return std::span<const ExpertWeights>();
  }
};

class EmptyExpertStore : public ExpertStore {
 public:
  Result<std::unique_ptr<ExpertLease>> lease(LayerId, Encoder&, const Routes&) override {
    return std::unique_ptr<ExpertLease>(std::make_unique<EmptyLease>());
  }
  ExpertStats stats() const override { return {}; }
  uint64_t capacity_bytes() const override { return 0; }
};

}  // namespace

std::unique_ptr<ExpertStore> make_empty_expert_store() {
  return std::make_unique<EmptyExpertStore>();
}

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
  MF_ASSIGN_OR_RETURN(std::unique_ptr<Buffer> buffer,
                      device.allocate(slots * slot_bytes, MemoryKind::kHostVisible));
  MF_CHECK(buffer->host_data() != nullptr);
  const std::span<std::byte> memory(buffer->host_data(), buffer->size_bytes());
  (void)reader.register_buffers(std::span(&memory, 1));  // where it is refused, reads still work
  ExpertCache::Options cache{.slot_bytes = slot_bytes,
                             .num_slots = slots,
                             .shape = shape_of(table),
                             .eviction = options.eviction};
  guard_below_one_token(cache, options.demand);
  set_staging(cache, table.num_experts_total());
  if (options.staging) cache.num_staging = *options.staging;
  return std::unique_ptr<ExpertStore>(std::make_unique<StreamedExpertStore>(
      table, index, reader, ExpertCache(std::move(buffer), cache), options));
}

}  // namespace moeflux
