#include "load/layer_stream.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <new>
#include <utility>

#include "base/check.h"
#include "base/format.h"

namespace moeflux {
namespace {

using Clock = std::chrono::steady_clock;

uint64_t us_since(Clock::time_point begin) {
  return static_cast<uint64_t>((Clock::now() - begin) / std::chrono::microseconds(1));
}

Weight as_stored(const StreamedModule& module) {
  return lay_out(module.from.format, module.to.rows, module.to.cols);
}

/// Where a matrix lies in its slot.
Parts<std::span<std::byte>> bytes_of(const Weight& weight) {
  Parts<std::span<std::byte>> bytes;
  for (const PartRole role : kPartRoles) {
    const Tensor& part = weight.parts[role];
    if (weight.has(role)) bytes[role] = {host_ptr<std::byte>(part), part.size_bytes()};
  }
  return bytes;
}

}  // namespace

LayerStream::LayerStream(const TensorIndex& files, std::span<const StreamedModule> modules,
                         std::unique_ptr<AsyncReader> reader, int threads)
    : files_(files), reader_(std::move(reader)), arrangers_(threads) {
  uint64_t landing_bytes = 0;
  for (size_t begin = 0, end = 0; begin < modules.size(); begin = end) {
    while (end < modules.size() && modules[end].layer == modules[begin].layer) ++end;
    Layer layer{.id = modules[begin].layer, .modules = modules.subspan(begin, end - begin)};
    for (const StreamedModule& module : layer.modules) {
      Weight stored = as_stored(module);
      layer.stored_bytes += stored.size_bytes();
      if (module.is_arranged()) {
        layer.landing_bytes = place_parts(stored, layer.landing_bytes, kDirectAlignment);
      }
      MF_CHECK(module.slot == layer.modules.front().slot);
      slots_.resize(std::max(slots_.size(), static_cast<size_t>(module.slot) + 1));
    }
    landing_bytes = std::max(landing_bytes, layer.landing_bytes);
    layers_.push_back(layer);
  }
  MF_CHECK(!layers_.empty());
  if (landing_bytes > 0) landing_.reserve(landing_bytes);
  thread_ = std::jthread([this](const std::stop_token& stop) { read_on(stop); });
}

LayerStream::~LayerStream() = default;

LayerStream::Stats LayerStream::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

void LayerStream::read_on(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  while (true) {
    const bool goes_on = changed_.wait(
        lock, stop, [&] { return !has_failed_ && slot_of(next_read_).layer == SIZE_MAX; });
    if (!goes_on || stop.stop_requested()) return;
    const size_t layer = next_read_;
    slot_of(layer) = {.layer = layer, .status = {}};
    is_reading_ = true;
    lock.unlock();
    const Clock::time_point begin = Clock::now();
    Status status = read(layers_[layer]);
    lock.lock();
    is_reading_ = false;
    stats_.read_us += us_since(begin);
    if (status.ok()) {
      stats_.bytes_read += layers_[layer].stored_bytes;
    } else {
      status = status.error().with_context(formatted("layer {}", index(layers_[layer].id)));
    }
    has_failed_ = !status.ok();
    Slot& slot = slot_of(layer);
    slot.status = std::move(status);
    slot.has_arrived = true;
    next_read_ = after(layer);
    changed_.notify_all();
  }
}

// Nothing is in flight afterwards, however it ends.
Status LayerStream::read(const Layer& layer) {
  Status status;
  try {
    status = read_modules(layer);
  } catch (const std::bad_alloc&) {
    status = Error(ErrorCode::kResourceExhausted, "out of memory");
  }
  while (reader_->in_flight() > 0) (void)reader_->wait();
  return status;
}

void LayerStream::list_requests(const Layer& layer) {
  requests_.clear();
  landed_.assign(layer.modules.size(), {});
  uint64_t landing_used = 0;
  for (size_t i = 0; i < layer.modules.size(); ++i) {
    const StreamedModule& module = layer.modules[i];
    Parts<std::span<std::byte>> into;
    if (module.is_arranged()) {
      landed_[i] = as_stored(module);
      landing_used = place_parts(landed_[i], landing_used, kDirectAlignment);
      into = landed_[i].bytes_in(landing_.reserve(layer.landing_bytes));
    } else {
      into = bytes_of(module.to);
    }
    for (const PartRole role : kPartRoles) {
      if (into[role].empty()) continue;
      const TensorEntry& entry = *module.from.parts[role].entry;
      requests_.push_back({.file = &files_.file(entry.file),
                           .offset = entry.offset_bytes,
                           .into = into[role],
                           .tag = i});
    }
  }
}

// An exception must not leave a thread.
Status LayerStream::arrange_landed(const Layer& layer) {
  std::byte* const landing = landing_.reserve(layer.landing_bytes);
  std::atomic<bool> out_of_memory{false};
  arrangers_.parallel_for(static_cast<int64_t>(pieces_.size()), [&](int64_t i) {
    const Piece& piece = pieces_[static_cast<size_t>(i)];
    const Weight& to = layer.modules[piece.module].to;
    const Weight& stored = landed_[piece.module];
    try {
      arrange_rows(to, bytes_of(to), stored, stored.bytes_in(landing), piece.begin, piece.rows);
    } catch (const std::bad_alloc&) {
      out_of_memory = true;
    }
  });
  pieces_.clear();
  if (out_of_memory) return Error(ErrorCode::kResourceExhausted, "out of memory");
  return {};
}

// A matrix that has arrived is arranged while others are on their way.
Status LayerStream::read_modules(const Layer& layer) {
  list_requests(layer);
  pieces_.clear();
  std::vector<size_t> reads_left(layer.modules.size(), 0);
  for (const ReadRequest& request : requests_) ++reads_left[request.tag];
  reader_->submit(requests_);
  while (reader_->in_flight() > 0) {
    for (const ReadCompletion& completion : reader_->wait()) {
      const StreamedModule& module = layer.modules[completion.tag];
      if (!completion.status.ok()) {
        return completion.status.error().with_context("module " + module.from.name);
      }
      if (--reads_left[completion.tag] > 0 || !module.is_arranged()) continue;
      const Weight& stored = landed_[completion.tag];
      const int64_t step = rows_arranged_at_once(module.to, stored);
      for (int64_t row = 0; row < stored.rows; row += step) {
        pieces_.push_back({completion.tag, row, std::min(step, stored.rows - row)});
      }
    }
    if (!pieces_.empty()) MF_RETURN_IF_ERROR(arrange_landed(layer));
  }
  return {};
}

// Forgets what has been read ahead.
void LayerStream::begin_anew(size_t layer, std::unique_lock<std::mutex>& lock) {
  changed_.wait(lock, [this] { return !is_reading_; });
  for (Slot& slot : slots_) slot = {};
  next_read_ = next_asked_ = layer;
  has_failed_ = false;
  changed_.notify_all();
}

const Status& LayerStream::wait_for(size_t layer, std::unique_lock<std::mutex>& lock) {
  Slot& slot = slot_of(layer);
  changed_.wait(lock, [&] { return slot.layer == layer && slot.has_arrived; });
  return slot.status;
}

Status LayerStream::begin_layer(LayerId id, Encoder& encoder) {
  const auto found = std::ranges::find(layers_, id, &Layer::id);
  if (found == layers_.end()) return {};
  const auto layer = static_cast<size_t>(found - layers_.begin());
  // Work before this may still read the slot that is given up.
  MF_RETURN_IF_ERROR(encoder.wait(encoder.submit()));
  const Clock::time_point begin = Clock::now();
  std::unique_lock lock(mutex_);
  if (layer != next_asked_) begin_anew(layer, lock);
  for (Slot& slot : slots_) {
    if (slot.is_used) slot = {};
  }
  changed_.notify_all();
  if (!wait_for(layer, lock).ok()) begin_anew(layer, lock);
  MF_RETURN_IF_ERROR(wait_for(layer, lock));
  slot_of(layer).is_used = true;
  next_asked_ = after(layer);
  stats_.stall_us += us_since(begin);
  return {};
}

}  // namespace moeflux
