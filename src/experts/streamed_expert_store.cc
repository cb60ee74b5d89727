#include "experts/streamed_expert_store.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/format.h"
#include "base/units.h"
#include "experts/expert_cache.h"

namespace moeflux {
namespace {

class StreamedLease;

class StreamedExpertStore : public ExpertStore {
 public:
  StreamedExpertStore(const ExpertTable& table, const TensorIndex& files, AsyncReader& reader,
                      ExpertCache cache)
      : table_(table), files_(files), reader_(reader), cache_(std::move(cache)) {}

  Result<std::unique_ptr<ExpertLease>> lease(LayerId layer, Encoder& encoder,
                                             const Routes& routes) override;
  ExpertStats stats() const override {
    ExpertStats stats = stats_;
    stats.evictions = cache_.evictions();
    return stats;
  }
  uint64_t capacity_bytes() const override { return cache_.capacity_bytes(); }

 private:
  friend class StreamedLease;

  void arrange(LayerId id, ExpertCache::Slot slot) {
    const ExpertLayer& layer = table_.layer(id);
    if (layer.arrangement == ExpertArrangement::kAsStored) return;
    arrange_scratch_.resize(table_.slot_bytes_max());
    std::byte* data = cache_.buffer().host_data() + cache_.offset_of(slot);
    arrange_slot(layer, {data, layer.slot_bytes}, arrange_scratch_);
  }

  const ExpertTable& table_;
  const TensorIndex& files_;
  AsyncReader& reader_;
  ExpertCache cache_;
  ExpertStats stats_;
  std::vector<std::byte> arrange_scratch_;
};

class StreamedLease : public ExpertLease {
 public:
  StreamedLease(StreamedExpertStore& store, LayerId layer, Encoder& encoder)
      : store_(store), layer_(layer), encoder_(encoder) {}

  ~StreamedLease() override {
    drain();
    for (const ExpertCache::Slot slot : pinned_) store_.cache_.unpin(slot);
  }

  void start(std::span<const int32_t> experts) {
    for (const int32_t id : experts) {
      const ExpertKey key{layer_, ExpertId{id}};
      if (const std::optional<ExpertCache::Slot> slot = store_.cache_.find(key)) {
        store_.cache_.pin(*slot);
        pinned_.push_back(*slot);
        add_to_wave(key.expert, *slot);
        ++store_.stats_.hits;
      } else {
        waiting_.push_back(key.expert);
        ++store_.stats_.misses;
      }
    }
    std::reverse(waiting_.begin(), waiting_.end());  // taken from the back, in the given order
    read_into_free_slots();
  }

  Result<std::span<const ExpertWeights>> wait_some() override {
    if (!hits_delivered_) {
      hits_delivered_ = true;
      if (!wave_.empty()) return std::span<const ExpertWeights>(wave_);
    }
    wave_.clear();
    if (!waiting_.empty()) {
      read_into_free_slots();
      if (loading_.empty()) MF_RETURN_IF_ERROR(recycle_finished_waves());
    }
    while (wave_.empty() && !loading_.empty()) MF_RETURN_IF_ERROR(collect_arrivals());
    return std::span<const ExpertWeights>(wave_);
  }

 private:
  struct Loading {
    ExpertId expert{};
    size_t reads_left = 0;
    bool failed = false;
  };

  void add_to_wave(ExpertId expert, ExpertCache::Slot slot) {
    wave_.push_back(store_.table_.layer(layer_).weights(expert, store_.cache_.buffer(),
                                                        store_.cache_.offset_of(slot)));
  }

  void read_into_free_slots() {
    while (!waiting_.empty()) {
      const ExpertId expert = waiting_.back();
      const std::optional<ExpertCache::Slot> slot = store_.cache_.reserve({layer_, expert});
      if (!slot) return;
      waiting_.pop_back();
      submit_reads(expert, *slot);
    }
  }

  void submit_reads(ExpertId expert, ExpertCache::Slot slot) {
    const std::span<const ExpertExtent> extents = store_.table_.layer(layer_).extents_of(expert);
    std::byte* base = store_.cache_.buffer().host_data() + store_.cache_.offset_of(slot);
    requests_.clear();
    for (const ExpertExtent& extent : extents) {
      requests_.push_back({.file = &store_.files_.file(extent.file),
                           .offset = extent.offset,
                           .into = {base + extent.slot_offset, extent.bytes},
                           .tag = static_cast<uint64_t>(slot)});
    }
    loading_.emplace(slot, Loading{expert, extents.size(), false});
    store_.reader_.submit(requests_);
  }

  // All slots are pinned by waves already delivered: once their compute is done the slots can be
  // used again.
  Status recycle_finished_waves() {
    MF_RETURN_IF_ERROR(encoder_.wait(encoder_.submit()));
    for (const ExpertCache::Slot slot : pinned_) store_.cache_.unpin(slot);
    pinned_.clear();
    read_into_free_slots();
    MF_CHECK(!loading_.empty());  // at least one slot exists and nobody else holds a pin
    return {};
  }

  Status collect_arrivals() {
    const auto begin = std::chrono::steady_clock::now();
    std::vector<ReadCompletion> completions = store_.reader_.wait();
    const auto waited = std::chrono::steady_clock::now() - begin;
    store_.stats_.stall_us += static_cast<uint64_t>(
        std::chrono::duration_cast<std::chrono::microseconds>(waited).count());
    Status first_failure;
    for (const ReadCompletion& completion : completions) finish_read(completion, first_failure);
    return first_failure;
  }

  void finish_read(const ReadCompletion& completion, Status& first_failure) {
    const ExpertCache::Slot slot{static_cast<uint32_t>(completion.tag)};
    const auto found = loading_.find(slot);
    MF_CHECK(found != loading_.end());
    Loading& loading = found->second;
    if (!completion.status.ok()) {
      loading.failed = true;
      if (first_failure.ok()) {
        first_failure = completion.status.error().with_context(
            format("layer {} expert {}", index(layer_), index(loading.expert)));
      }
    }
    if (--loading.reads_left > 0) return;
    if (loading.failed) {
      store_.cache_.abandon(slot);
    } else {
      store_.arrange(layer_, slot);
      store_.cache_.set_ready(slot);
      pinned_.push_back(slot);
      add_to_wave(loading.expert, slot);
      store_.stats_.bytes_read += store_.table_.layer(layer_).bytes_per_expert();
    }
    loading_.erase(found);
  }

  // Reads in flight write into slots: they must be over before the lease lets go.
  void drain() {
    while (!loading_.empty()) {
      Status ignored;
      for (const ReadCompletion& completion : store_.reader_.wait()) {
        finish_read(completion, ignored);
      }
    }
  }

  StreamedExpertStore& store_;
  LayerId layer_;
  Encoder& encoder_;
  bool hits_delivered_ = false;
  std::vector<ExpertId> waiting_;  // misses without a slot yet, last one next
  std::unordered_map<ExpertCache::Slot, Loading> loading_;
  std::vector<ExpertCache::Slot> pinned_;  // READY, read by recorded work
  std::vector<ExpertWeights> wave_;
  std::vector<ReadRequest> requests_;
};

Result<std::unique_ptr<ExpertLease>> StreamedExpertStore::lease(LayerId layer, Encoder& encoder,
                                                                const Routes& routes) {
  std::vector<int32_t> ids(static_cast<size_t>(routes.ids.num_elements()));
  MF_RETURN_IF_ERROR(encoder.read(std::as_writable_bytes(std::span(ids)), routes.ids));
  // Ascending ids are file order in stacked checkpoints: a long prefill reads forward.
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  MF_CHECK(ids.empty() || (ids.front() >= 0 && ids.back() < table_.layer(layer).num_experts));
  auto lease = std::make_unique<StreamedLease>(*this, layer, encoder);
  lease->start(ids);
  return std::unique_ptr<ExpertLease>(std::move(lease));
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
  ExpertCache cache(std::move(buffer), {.slot_bytes = slot_bytes, .num_slots = slots});
  return std::unique_ptr<ExpertStore>(
      std::make_unique<StreamedExpertStore>(table, index, reader, std::move(cache)));
}

}  // namespace moeflux
