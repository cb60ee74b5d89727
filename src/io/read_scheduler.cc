#include "io/read_scheduler.h"

#include <algorithm>

#include "base/format.h"
#include "base/units.h"

namespace moeflux {
namespace {

/// As push_back() grows, so that many small reservations cost no more than it does.
template <typename T>
void grow(std::vector<T>& list, size_t size) {
  if (list.capacity() < size) list.reserve(std::max(size, 2 * list.capacity()));
}

}  // namespace

ReadScheduler::ReadScheduler(const ReadSchedulerOptions& options) : options_(options) {
  MF_CHECK(options.chunk_bytes >= kDirectAlignment && options.depth >= 1 &&
           options.speculative_depth >= 1);
}

void ReadScheduler::reserve(size_t requests) {
  const size_t most = in_flight_ + requests;
  grow(requests_, most);
  grow(free_ids_, std::max(most, requests_.size()));
  grow(demand_, most);
  grow(speculative_, most);
  grow(completed_, most);
}

void ReadScheduler::add(const ReadRequest& request) {
  MF_CHECK(request.file != nullptr);
  reserve(1);
  ++in_flight_;
  if (request.into.empty()) {
    completed_.push_back({request.tag, {}});
    return;
  }
  if (free_ids_.empty()) {
    free_ids_.push_back(requests_.size());
    requests_.emplace_back();
  }
  const size_t id = free_ids_.back();
  free_ids_.pop_back();
  // Equal chunks: a short last one would cost a command of its own and finish with the others.
  const size_t size = request.into.size();
  const size_t chunks = (size - 1) / options_.chunk_bytes + 1;
  const size_t equal = chunks == 1 ? size : round_up((size - 1) / chunks + 1, kDirectAlignment);
  requests_[id] = {.asked = request, .chunk_bytes = std::min(equal, options_.chunk_bytes)};
  queue_of(request.priority).push_back(id);
}

ReadChunk ReadScheduler::cut(size_t id) {
  Request& request = requests_[id];
  const ReadRequest& asked = request.asked;
  const uint64_t begin = asked.offset + request.done;
  size_t size = std::min(request.chunk_bytes, asked.into.size() - request.done);
  // Inner borders lie on the alignment, so that only a request's own edges are read twice.
  const size_t ragged = static_cast<size_t>((begin + size) % kDirectAlignment);
  if (request.done + size < asked.into.size() && ragged < size) size -= ragged;
  const ReadChunk chunk{.file = asked.file,
                        .offset = begin,
                        .into = asked.into.subspan(request.done, size),
                        .request = id,
                        .priority = asked.priority};
  request.done += size;
  ++request.chunks_started;
  return chunk;
}

std::optional<ReadChunk> ReadScheduler::next() {
  if (chunks_started_ >= options_.depth) return std::nullopt;
  const bool speculative = demand_.empty();
  if (speculative && (speculative_.empty() || speculative_started_ >= options_.speculative_depth)) {
    return std::nullopt;
  }
  std::vector<size_t>& queue = speculative ? speculative_ : demand_;
  const size_t id = queue.front();
  const ReadChunk chunk = cut(id);
  if (requests_[id].done == requests_[id].asked.into.size()) queue.erase(queue.begin());
  ++chunks_started_;
  if (speculative) ++speculative_started_;
  return chunk;
}

void ReadScheduler::finish(const ReadChunk& chunk, Status status) {
  Request& request = requests_[chunk.request];
  MF_CHECK(request.chunks_started > 0);
  --request.chunks_started;
  --chunks_started_;
  if (chunk.priority == ReadPriority::kSpeculative) --speculative_started_;
  if (!status.ok() && request.status.ok()) {
    request.status = std::move(status);
    if (request.done < request.asked.into.size()) {
      request.done = request.asked.into.size();
      std::erase(queue_of(request.asked.priority), chunk.request);
    }
  }
  if (request.chunks_started == 0 && request.done == request.asked.into.size()) {
    complete(chunk.request);
  }
}

void ReadScheduler::complete(size_t id) {
  Request& request = requests_[id];
  completed_.push_back({request.asked.tag, std::move(request.status)});
  request = {};
  free_ids_.push_back(id);
}

size_t ReadScheduler::promote(uint64_t tag) {
  size_t changed = 0;
  std::erase_if(speculative_, [&](size_t id) {
    Request& request = requests_[id];
    if (request.asked.tag != tag) return false;
    request.asked.priority = ReadPriority::kDemand;
    demand_.push_back(id);
    ++changed;
    return true;
  });
  return changed;
}

size_t ReadScheduler::cancel(uint64_t tag) {
  size_t cancelled = 0;
  for (std::vector<size_t>* queue : {&demand_, &speculative_}) {
    std::erase_if(*queue, [&](size_t id) {
      Request& request = requests_[id];
      if (request.asked.tag != tag || request.done > 0) return false;
      request.status =
          make_error(ErrorCode::kCancelled, "{}: the read of {} bytes at offset {}",
                     request.asked.file->path(), request.asked.into.size(), request.asked.offset);
      complete(id);
      ++cancelled;
      return true;
    });
  }
  return cancelled;
}

void ReadScheduler::abandon() {
  demand_.clear();
  speculative_.clear();
}

std::vector<ReadCompletion> ReadScheduler::take_completed() {
  std::vector<ReadCompletion> taken;
  if (completed_.empty()) return taken;
  taken.reserve(in_flight_ - completed_.size());  // for those that complete later
  taken.swap(completed_);
  in_flight_ -= taken.size();
  return taken;
}

}  // namespace moeflux
