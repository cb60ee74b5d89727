#include "experts/drive/expert_fetch.h"

#include <algorithm>
#include <new>
#include <utility>

#include "base/check.h"
#include "base/format.h"

namespace moeflux {
namespace {

// A prompt's read-ahead keeps so many experts on their way (ExpertCache's staging slots), large
// ones fewer. Decode lands in the first few, again and again.
constexpr size_t kLandings = 64;

size_t largest_landing(const ExpertTable& table) {
  size_t bytes = 0;
  for (const ExpertLayer& layer : table.layers) {
    if (layer.lands_apart()) bytes = std::max(bytes, landing_bytes(layer));
  }
  return bytes;
}

size_t landings_of(size_t bytes, uint64_t bytes_max) {
  return bytes == 0 ? 0 : std::clamp<size_t>(bytes_max / bytes, 2, kLandings);
}

/// To whole pages, as far as the file goes.
void widen(ReadRequest& request) {
  const uint64_t before = request.offset % kDirectAlignment;
  const uint64_t end =
      std::min(round_up(request.offset + request.into.size(), uint64_t{kDirectAlignment}),
               std::max(request.file->size_bytes(), request.offset + request.into.size()));
  request.offset -= before;
  request.into = {request.into.data() - before, static_cast<size_t>(end - request.offset)};
}

}  // namespace

void run_in_turn(int64_t count, const std::function<void(int64_t)>& fn) {
  for (int64_t i = 0; i < count; ++i) fn(i);
}

uint64_t landing_memory_bytes(const ExpertTable& table) {
  const size_t bytes = largest_landing(table);
  return bytes * landings_of(bytes, ExpertFetch::Options{}.landing_bytes);
}

ExpertFetch::ExpertFetch(const ExpertTable& table, const TensorIndex& files, AsyncReader& reader,
                         const Options& options)
    : table_(table),
      files_(files),
      reader_(reader),
      options_(options),
      arrivals_(table, files),
      loading_(options.memory.size() / options.slot_bytes) {
  MF_CHECK(options.slot_bytes >= table.slot_bytes_max());
  // An arrival asks for no memory: it could not come twice.
  waiting_.reserve(loading_.size());
  whole_.reserve(loading_.size());
  const size_t bytes = largest_landing(table);
  const size_t landings = landings_of(bytes, options.landing_bytes);
  if (landings == 0) return;
  landing_size_ = landings * bytes;
  landing_begin_ = landing_.reserve(landing_size_);
  free_landings_.reserve(landings);
  for (size_t i = landings; i-- > 0;) free_landings_.push_back(landing_begin_ + i * bytes);
}

ExpertFetch::~ExpertFetch() {
  while (in_flight_ > 0) (void)wait();
}

LandedExpert ExpertFetch::arriving(ExpertCache::Slot slot, const Loading& loading) const {
  const ExpertLayer& layer = table_.layer(loading.key.layer);
  std::byte* const memory =
      loading.landing != nullptr ? loading.landing : bytes_of(slot, layer).data();
  return {layer, loading.key.expert, memory};
}

/// requests_ = the reads of an expert.
void ExpertFetch::list_requests(ExpertCache::Slot slot, const Loading& loading) {
  const ExpertLayer& layer = table_.layer(loading.key.layer);
  const LandedExpert landed = arriving(slot, loading);
  requests_.clear();
  const ExpertExtent* last = nullptr;
  for (const ExpertExtent& extent : layer.extents_of(loading.key.expert)) {
    std::byte* const into = landed.at(extent.slot_offset);
    if (adjoins(extent, last) &&
        requests_.back().into.data() + requests_.back().into.size() == into) {
      std::span<std::byte>& joined = requests_.back().into;
      joined = {joined.data(), joined.size() + extent.bytes};
    } else {
      requests_.push_back({.file = &files_.file(extent.file),
                           .offset = extent.offset,
                           .into = {into, extent.bytes},
                           .tag = static_cast<uint64_t>(slot),
                           .priority = loading.priority});
    }
    last = &extent;
  }
  if (layer.arrangement == ExpertArrangement::kAsStored) return;
  for (ReadRequest& request : requests_) widen(request);
}

void ExpertFetch::start(ExpertKey key, ExpertCache::Slot slot, ReadPriority priority) {
  MF_CHECK(!is_in_flight(slot));
  Loading loading{.key = key, .is_in_flight = true, .priority = priority};
  const bool apart = table_.layer(key.layer).lands_apart();
  const bool waits = apart && free_landings_.empty();
  if (!waits) {
    if (apart) loading.landing = free_landings_.back();
    list_requests(slot, loading);
    loading.reads_left = requests_.size();
    reader_.submit(requests_);
    if (apart) free_landings_.pop_back();
  }
  if (in_flight_++ == 0) {
    busy_since_ = Clock::now();
    bytes_before_busy_ = bytes_read_;
  }
  at(slot) = std::move(loading);
  if (waits) waiting_.push_back(slot);
}

// Demand before guesses, each in the order of start().
void ExpertFetch::begin_waiting() {
  while (!waiting_.empty() && !free_landings_.empty()) {
    const auto demand = std::ranges::find_if(waiting_, [&](ExpertCache::Slot slot) {
      return at(slot).priority == ReadPriority::kDemand;
    });
    const auto next = demand != waiting_.end() ? demand : waiting_.begin();
    const ExpertCache::Slot slot = *next;
    waiting_.erase(next);
    Loading& loading = at(slot);
    try {
      loading.landing = free_landings_.back();
      list_requests(slot, loading);
      reader_.submit(requests_);
      loading.reads_left = requests_.size();
      free_landings_.pop_back();
    } catch (const std::bad_alloc&) {  // it has been started: it must arrive
      loading.landing = nullptr;
      loading.status = Error(ErrorCode::kResourceExhausted, "out of memory");
      whole_.push_back(slot);
    }
  }
}

void ExpertFetch::promote(ExpertCache::Slot slot) {
  at(slot).priority = ReadPriority::kDemand;
  reader_.promote(static_cast<uint64_t>(slot));
}

void ExpertFetch::cancel(ExpertCache::Slot slot) {
  const auto found = std::ranges::find(waiting_, slot);
  if (found == waiting_.end()) {
    reader_.cancel(static_cast<uint64_t>(slot));
    return;
  }
  waiting_.erase(found);
  at(slot).status = Error(ErrorCode::kCancelled, "cancelled");
  whole_.push_back(slot);
}

std::vector<ExpertFetch::Arrival> ExpertFetch::wait(const HostTasks& tasks) {
  MF_CHECK(in_flight_ > 0);
  std::vector<Arrival> arrivals;
  while (arrivals.empty()) {
    arrivals = collect(whole_.empty() ? reader_.wait() : reader_.poll(), tasks);
  }
  if (in_flight_ > 0) return arrivals;
  const Clock::duration busy = end_busy();
  if (meter_ != nullptr) {
    meter_->read(bytes_read_ - bytes_before_busy_, std::chrono::duration<double>(busy).count());
  }
  return arrivals;
}

std::vector<ExpertFetch::Arrival> ExpertFetch::poll(const HostTasks& tasks) {
  if (in_flight_ == 0) return {};
  std::vector<Arrival> arrivals = collect(reader_.poll(), tasks);
  if (in_flight_ == 0) (void)end_busy();
  return arrivals;
}

ExpertFetch::Clock::duration ExpertFetch::end_busy() {
  const Clock::duration busy = Clock::now() - busy_since_;
  busy_us_ +=
      static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::microseconds>(busy).count());
  return busy;
}

std::vector<ExpertFetch::Arrival> ExpertFetch::collect(std::vector<ReadCompletion> completions,
                                                       const HostTasks& tasks) {
  for (ReadCompletion& completion : completions) {
    const ExpertCache::Slot slot{static_cast<uint32_t>(completion.tag)};
    Loading& loading = at(slot);
    MF_CHECK(loading.reads_left > 0);
    if (!completion.status.ok() && loading.status.ok()) {
      loading.status = std::move(completion.status);
    }
    if (--loading.reads_left == 0) whole_.push_back(slot);
  }
  if (whole_.empty()) return {};
  std::vector<Arrival> arrivals;
  arrivals.reserve(whole_.size());
  for (const ExpertCache::Slot slot : whole_) check(slot);
  arrange_whole(tasks);
  for (const ExpertCache::Slot slot : whole_) arrivals.push_back(arrival_of(slot));
  whole_.clear();
  begin_waiting();
  return arrivals;
}

void ExpertFetch::check(ExpertCache::Slot slot) {
  Loading& loading = at(slot);
  if (!loading.status.ok()) return;
  const ExpertLayer& layer = table_.layer(loading.key.layer);
  bytes_read_ += layer.bytes_per_expert();
  if (!options_.check_arrivals || layer.checksums.empty()) return;
  // The bytes of a blob lie together wherever they land.
  loading.status =
      arrivals_.check(loading.key, {arriving(slot, loading).at(0), layer.checked_bytes});
}

void ExpertFetch::arrange_whole(const HostTasks& tasks) {
  const auto count = static_cast<int64_t>(whole_.size()) * kArrangeTasks;
  const bool any = std::ranges::any_of(
      whole_, [&](ExpertCache::Slot slot) { return at(slot).landing != nullptr; });
  if (!any) return;
  tasks(count, [this](int64_t task) {
    const ExpertCache::Slot slot = whole_[static_cast<size_t>(task / kArrangeTasks)];
    const Loading& loading = at(slot);
    if (loading.landing == nullptr || !loading.status.ok()) return;
    const ExpertLayer& layer = table_.layer(loading.key.layer);
    arrange(layer, arriving(slot, loading), bytes_of(slot, layer), task % kArrangeTasks);
  });
}

ExpertFetch::Arrival ExpertFetch::arrival_of(ExpertCache::Slot slot) {
  Loading& loading = at(slot);
  --in_flight_;
  loading.is_in_flight = false;
  if (loading.landing != nullptr) free_landings_.push_back(std::exchange(loading.landing, nullptr));
  if (loading.status.ok()) return {loading.key, slot, {}};
  return {loading.key, slot,
          loading.status.error().with_context(formatted(
              "layer {} expert {}", index(loading.key.layer), index(loading.key.expert)))};
}

Status fetch_all(const ExpertTable& table, ExpertFetch& fetch, size_t most,
                 const std::function<ExpertCache::Slot(ExpertKey)>& slot_of,
                 const std::function<Status(const ExpertFetch::Arrival&)>& arrived) {
  std::vector<ExpertFetch::Arrival> arrivals;
  size_t taken = 0;
  const auto leave = [&](size_t in_work) -> Status {
    while (fetch.in_flight() + arrivals.size() - taken > in_work) {
      if (taken == arrivals.size()) {
        arrivals = fetch.wait();
        taken = 0;
      }
      MF_RETURN_IF_ERROR(arrivals[taken].status);
      MF_RETURN_IF_ERROR(arrived(arrivals[taken++]));
    }
    return {};
  };
  for (size_t l = 0; l < table.layers.size(); ++l) {
    for (int32_t e = 0; e < table.layers[l].num_experts; ++e) {
      MF_RETURN_IF_ERROR(leave(most - 1));
      const ExpertKey key{LayerId{static_cast<int32_t>(l)}, ExpertId{e}};
      fetch.start(key, slot_of(key), ReadPriority::kDemand);
    }
  }
  return leave(0);
}

}  // namespace moeflux
