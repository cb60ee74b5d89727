#include "experts/expert_fetch.h"

#include <utility>

#include "base/check.h"
#include "base/format.h"

namespace moeflux {

ExpertFetch::ExpertFetch(const ExpertTable& table, const TensorIndex& files, AsyncReader& reader,
                         const Options& options)
    : table_(table),
      files_(files),
      reader_(reader),
      options_(options),
      arrivals_(table, files),
      loading_(options.memory.size() / options.slot_bytes) {
  MF_CHECK(options.slot_bytes >= table.slot_bytes_max());
}

ExpertFetch::~ExpertFetch() {
  while (in_flight_ > 0) (void)wait();
}

void ExpertFetch::start(ExpertKey key, ExpertCache::Slot slot, ReadPriority priority) {
  MF_CHECK(!is_in_flight(slot));
  std::byte* base = bytes_of(slot, table_.layer(key.layer)).data();
  requests_.clear();
  const ExpertExtent* last = nullptr;
  for (const ExpertExtent& extent : table_.layer(key.layer).extents_of(key.expert)) {
    const bool adjoins = last != nullptr && last->file == extent.file &&
                         last->offset + last->bytes == extent.offset &&
                         last->slot_offset + last->bytes == extent.slot_offset;
    last = &extent;
    if (adjoins) {
      std::span<std::byte>& into = requests_.back().into;
      into = {into.data(), into.size() + extent.bytes};
      continue;
    }
    requests_.push_back({.file = &files_.file(extent.file),
                         .offset = extent.offset,
                         .into = {base + extent.slot_offset, extent.bytes},
                         .tag = static_cast<uint64_t>(slot),
                         .priority = priority});
  }
  // An arrival asks for no memory: it could not come twice.
  arrange_scratch_.resize(table_.slot_bytes_max());
  if (in_flight_ == 0) {
    busy_since_ = Clock::now();
    bytes_before_busy_ = bytes_read_;
  }
  reader_.submit(requests_);
  at(slot) = {key, requests_.size(), {}};
  ++in_flight_;
}

std::vector<ExpertFetch::Arrival> ExpertFetch::wait() {
  std::vector<Arrival> arrivals;
  arrivals.reserve(in_flight_);
  while (arrivals.empty()) finish(reader_.wait(), arrivals);
  if (in_flight_ > 0) return arrivals;
  const Clock::duration busy = end_busy();
  if (meter_ != nullptr) {
    meter_->read(bytes_read_ - bytes_before_busy_, std::chrono::duration<double>(busy).count());
  }
  return arrivals;
}

std::vector<ExpertFetch::Arrival> ExpertFetch::poll() {
  if (in_flight_ == 0) return {};
  std::vector<Arrival> arrivals;
  arrivals.reserve(in_flight_);
  finish(reader_.poll(), arrivals);
  if (in_flight_ == 0) (void)end_busy();
  return arrivals;
}

ExpertFetch::Clock::duration ExpertFetch::end_busy() {
  const Clock::duration busy = Clock::now() - busy_since_;
  busy_us_ +=
      static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::microseconds>(busy).count());
  return busy;
}

// `arrivals` has room for all that are in flight.
void ExpertFetch::finish(std::vector<ReadCompletion> completions, std::vector<Arrival>& arrivals) {
  for (ReadCompletion& completion : completions) {
    const ExpertCache::Slot slot{static_cast<uint32_t>(completion.tag)};
    Loading& loading = at(slot);
    MF_CHECK(loading.reads_left > 0);
    if (!completion.status.ok() && loading.status.ok()) {
      loading.status = std::move(completion.status);
    }
    if (--loading.reads_left == 0) finish_slot(slot, arrivals);
  }
}

void ExpertFetch::finish_slot(ExpertCache::Slot slot, std::vector<Arrival>& arrivals) {
  Loading& loading = at(slot);
  const ExpertLayer& layer = table_.layer(loading.key.layer);
  const std::span<std::byte> bytes = bytes_of(slot, layer);
  --in_flight_;
  if (loading.status.ok()) {
    bytes_read_ += layer.bytes_per_expert();
    if (options_.check_arrivals) loading.status = arrivals_.check(loading.key, bytes);
  }
  if (!loading.status.ok()) {
    const Error error = loading.status.error().with_context(
        formatted("layer {} expert {}", index(loading.key.layer), index(loading.key.expert)));
    arrivals.push_back({loading.key, slot, error});
    return;
  }
  if (layer.arrangement != ExpertArrangement::kAsStored) {
    arrange_slot(layer, bytes, arrange_scratch_);
  }
  arrivals.push_back({loading.key, slot, {}});
}

}  // namespace moeflux
