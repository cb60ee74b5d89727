#include "experts/streamed_expert_store.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>
#include <vector>

#include "base/format.h"
#include "base/units.h"
#include "experts/expert_cache.h"

namespace moeflux {
namespace {

class StreamedLease;

/// The lists of a lease. The store keeps them between leases: a step allocates none.
struct LeaseLists {
  std::vector<int32_t> ids;               // distinct, ascending
  std::vector<ExpertId> waiting;          // misses without a slot yet, last one next
  std::vector<ExpertCache::Slot> pinned;  // READY, read by recorded work
  std::vector<ExpertWeights> wave;        // what wait_some() returned last
  std::vector<ReadRequest> requests;

  void clear() {
    ids.clear();
    waiting.clear();
    pinned.clear();
    wave.clear();
    requests.clear();
  }
};

/// A slot whose bytes are on their way.
struct Loading {
  ExpertId expert{};
  size_t reads_left = 0;
  bool failed = false;
};

class StreamedExpertStore : public ExpertStore {
 public:
  StreamedExpertStore(const ExpertTable& table, const TensorIndex& files, AsyncReader& reader,
                      ExpertCache cache)
      : table_(table),
        files_(files),
        reader_(reader),
        cache_(std::move(cache)),
        loading_(cache_.num_slots()) {}

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
  std::unique_ptr<LeaseLists> take_lists() {
    if (spare_lists_.empty()) return std::make_unique<LeaseLists>();
    std::unique_ptr<LeaseLists> lists = std::move(spare_lists_.back());
    spare_lists_.pop_back();
    return lists;
  }
  void give_back(std::unique_ptr<LeaseLists> lists) {
    lists->clear();
    spare_lists_.push_back(std::move(lists));
  }

  const ExpertTable& table_;
  const TensorIndex& files_;
  AsyncReader& reader_;
  ExpertCache cache_;
  ExpertStats stats_;
  std::vector<std::byte> arrange_scratch_;
  std::vector<Loading> loading_;  // by slot; only one lease at a time has reads in flight
  std::vector<std::unique_ptr<LeaseLists>> spare_lists_;
};

class StreamedLease : public ExpertLease {
 public:
  StreamedLease(StreamedExpertStore& store, LayerId layer, Encoder& encoder,
                std::unique_ptr<LeaseLists> lists)
      : store_(store), layer_(layer), encoder_(encoder), lists_(std::move(lists)) {}

  ~StreamedLease() override {
    drain();
    for (const ExpertCache::Slot slot : lists_->pinned) store_.cache_.unpin(slot);
    store_.give_back(std::move(lists_));
  }
  StreamedLease(const StreamedLease&) = delete;
  StreamedLease& operator=(const StreamedLease&) = delete;

  void start() {
    for (const int32_t id : lists_->ids) {
      const ExpertKey key{layer_, ExpertId{id}};
      if (const std::optional<ExpertCache::Slot> slot = store_.cache_.find(key)) {
        store_.cache_.pin(*slot);
        lists_->pinned.push_back(*slot);
        add_to_wave(key.expert, *slot);
        ++store_.stats_.hits;
      } else {
        lists_->waiting.push_back(key.expert);
        ++store_.stats_.misses;
      }
    }
    // Taken from the back, in the given order.
    std::reverse(lists_->waiting.begin(), lists_->waiting.end());
    read_into_free_slots();
  }

  Result<std::span<const ExpertWeights>> wait_some() override {
    if (!hits_delivered_) {
      hits_delivered_ = true;
      if (!lists_->wave.empty()) return std::span<const ExpertWeights>(lists_->wave);
    }
    lists_->wave.clear();
    if (!lists_->waiting.empty()) {
      read_into_free_slots();
      if (num_loading_ == 0) MF_RETURN_IF_ERROR(recycle_finished_waves());
    }
    while (lists_->wave.empty() && num_loading_ > 0) MF_RETURN_IF_ERROR(collect_arrivals());
    return std::span<const ExpertWeights>(lists_->wave);
  }

 private:
  void add_to_wave(ExpertId expert, ExpertCache::Slot slot) {
    lists_->wave.push_back(store_.table_.layer(layer_).weights(expert, store_.cache_.buffer(),
                                                               store_.cache_.offset_of(slot)));
  }

  void read_into_free_slots() {
    while (!lists_->waiting.empty()) {
      const ExpertId expert = lists_->waiting.back();
      const std::optional<ExpertCache::Slot> slot = store_.cache_.reserve({layer_, expert});
      if (!slot) return;
      lists_->waiting.pop_back();
      submit_reads(expert, *slot);
    }
  }

  void submit_reads(ExpertId expert, ExpertCache::Slot slot) {
    const std::span<const ExpertExtent> extents = store_.table_.layer(layer_).extents_of(expert);
    std::byte* base = store_.cache_.buffer().host_data() + store_.cache_.offset_of(slot);
    lists_->requests.clear();
    for (const ExpertExtent& extent : extents) {
      lists_->requests.push_back({.file = &store_.files_.file(extent.file),
                                  .offset = extent.offset,
                                  .into = {base + extent.slot_offset, extent.bytes},
                                  .tag = static_cast<uint64_t>(slot)});
    }
    store_.loading_[static_cast<size_t>(slot)] = {expert, extents.size(), false};
    ++num_loading_;
    store_.reader_.submit(lists_->requests);
  }

  // All slots are pinned by waves already delivered: once their compute is done the slots can be
  // used again.
  Status recycle_finished_waves() {
    MF_RETURN_IF_ERROR(encoder_.wait(encoder_.submit()));
    for (const ExpertCache::Slot slot : lists_->pinned) store_.cache_.unpin(slot);
    lists_->pinned.clear();
    read_into_free_slots();
    MF_CHECK(num_loading_ > 0);  // at least one slot exists and nobody else holds a pin
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
    Loading& loading = store_.loading_[static_cast<size_t>(slot)];
    MF_CHECK(loading.reads_left > 0);
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
      lists_->pinned.push_back(slot);
      add_to_wave(loading.expert, slot);
      store_.stats_.bytes_read += store_.table_.layer(layer_).bytes_per_expert();
    }
    --num_loading_;
  }

  // Reads in flight write into slots: they must be over before the lease lets go.
  void drain() {
    while (num_loading_ > 0) {
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
  size_t num_loading_ = 0;
  std::unique_ptr<LeaseLists> lists_;
};

Result<std::unique_ptr<ExpertLease>> StreamedExpertStore::lease(LayerId layer, Encoder& encoder,
                                                                const Routes& routes) {
  std::unique_ptr<LeaseLists> lists = take_lists();
  std::vector<int32_t>& ids = lists->ids;
  ids.resize(static_cast<size_t>(routes.ids.num_elements()));
  MF_RETURN_IF_ERROR(encoder.read(std::as_writable_bytes(std::span(ids)), routes.ids));
  // Ascending ids are file order in stacked checkpoints: a long prefill reads forward.
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  MF_CHECK(ids.empty() || (ids.front() >= 0 && ids.back() < table_.layer(layer).num_experts));
  auto lease = std::make_unique<StreamedLease>(*this, layer, encoder, std::move(lists));
  lease->start();
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
