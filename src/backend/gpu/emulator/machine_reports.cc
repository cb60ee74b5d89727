// Reports of mistakes of kernels: what a thread did or waits for, and where.
#include <algorithm>
#include <string>
#include <string_view>

#include "backend/gpu/dialect/host.h"
#include "backend/gpu/emulator/machine.h"
#include "base/format.h"

namespace moeflux::gpu::emulator {
namespace {

std::string_view exchange_name(Exchange op) {
  switch (op) {
    case Exchange::kSum:
      return "simd_sum";
    case Exchange::kSums:
      return "simd_sums";
    case Exchange::kMax:
      return "simd_max";
    case Exchange::kHighest:
      return "simd_max of integers";
    case Exchange::kLowest:
      return "simd_min of integers";
    case Exchange::kShuffle:
      return "simd_shuffle";
    case Exchange::kShuffleXor:
      return "simd_shuffle_xor";
    case Exchange::kShufflesXor:
      return "simd_shuffles_xor";
    case Exchange::kBallot:
      return "simd_ballot";
    case Exchange::kSimdBarrier:
      return "simd_barrier";
    case Exchange::kMultiply:
      return "matrix_multiply_add";
  }
  __builtin_unreachable();
}

std::string text_of(SourceLine place) {
  const std::string_view path(place.file);
  const size_t slash = path.find_last_of('/');
  return formatted("{}:{}", slash == std::string_view::npos ? path : path.substr(slash + 1),
                   place.line);
}

}  // namespace

std::string Machine::where() const {
  return formatted("kernel {}, group ({}, {}, {})", launch_->name, group_.x, group_.y, group_.z);
}

std::string Machine::describe(const Lane& lane) const {
  switch (lane.state) {
    case State::kReady:
      return formatted("thread {} runs", lane.index);
    case State::kFinished:
      return formatted("thread {} has finished", lane.index);
    case State::kAtBarrier:
      return formatted("thread {} waits at barrier ({})", lane.index, text_of(lane.place));
    case State::kAtExchange:
      return formatted("thread {} waits at {} ({})", lane.index, exchange_name(lane.op),
                       text_of(lane.place));
  }
  __builtin_unreachable();
}

void Machine::report_divergence() {
  // The first thread that waits, and the first that does something else.
  const auto waits = std::find_if(lanes_.begin(), lanes_.end(),
                                  [](const Lane& lane) { return lane.state != State::kFinished; });
  const auto differs = std::find_if(lanes_.begin(), lanes_.end(), [&](const Lane& lane) {
    return lane.state != waits->state || lane.op != waits->op || !(lane.place == waits->place);
  });
  fault_ = formatted("{}: divergence: {}", where(), describe(*waits));
  if (differs != lanes_.end()) fault_ += formatted(" while {}", describe(*differs));
}

void Machine::fault(u32 thread, const std::string& what) {
  fault_ = formatted("{}, thread {}: {}", where(), thread, what);
}

void Machine::stop(u32 thread) { lanes_[thread].fiber->finish(); }

std::string Machine::name_of(const SharedWord& word) const {
  const auto first = (&word - shared_.data()) * 4;
  return formatted("shared bytes {}..{}", first, first + 3);
}

void Machine::report_race(u32 thread, const SharedWord& word, const char* verb) {
  const bool by_write = is_concurrent(word.write, thread);
  const Touch& other =
      by_write ? word.write : word.reads[is_concurrent(word.reads[0], thread) ? 0 : 1];
  fault(thread, formatted("race on {}: {} what thread {} {} since the last barrier", name_of(word),
                          verb, other.thread, by_write ? "wrote" : "read"));
  stop(thread);
}

void Machine::report_unwritten(u32 thread, const SharedWord& word) {
  fault(thread, formatted("reads {}, which nobody wrote", name_of(word)));
  stop(thread);
}

void Machine::report_copy_race(u32 thread, const WatchedMemory& memory, uintptr_t address,
                               bool writes) {
  fault(thread, launch_->copies->report(memory, address, writes));
  stop(thread);
}

void Machine::report_shared_bounds(u32 thread, uint64_t offset_bytes) {
  fault(thread, formatted("shared byte {} of {}, or not on a 4-byte boundary",
                          static_cast<int64_t>(offset_bytes), shared_bytes_));
  stop(thread);
}

void Machine::report_bounds(u32 thread, const BoundRange& range, int64_t offset_bytes,
                            size_t bytes) {
  fault(thread, formatted("out of bounds: {}, index {} of {} elements of {} bytes",
                          range.index < 0 ? std::string("memory found through an address")
                                          : formatted("binding {}", range.index),
                          offset_bytes / static_cast<int64_t>(bytes),
                          static_cast<size_t>(range.end - range.begin) / bytes, bytes));
  stop(thread);
}

void Machine::report_early(u32 thread, const BoundRange& range) {
  fault(thread, formatted("touches binding {} before its inputs are there", range.index));
  stop(thread);
}

void Machine::report_misaligned(u32 thread, const BoundRange& range, size_t bytes) {
  fault(thread, formatted("misaligned: binding {} for an access of {} bytes", range.index, bytes));
  stop(thread);
}

}  // namespace moeflux::gpu::emulator
