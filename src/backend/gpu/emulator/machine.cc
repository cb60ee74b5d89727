#include "backend/gpu/emulator/machine.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <span>

#include "backend/gpu/dialect/host.h"
#include "base/format.h"

namespace moeflux::gpu::emulator {
namespace {

constexpr u64 kPageBytes = 4096;

std::string_view exchange_name(Exchange op) {
  switch (op) {
    case Exchange::kSum:
      return "simd_sum";
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

// The order of simd_sum in dialect/common.h: halves fold onto each other.
template <typename Combine>
float fold(std::array<float, kSimdLanes> values, Combine combine) {
  for (u32 half = kSimdLanes / 2; half > 0; half /= 2) {
    for (u32 lane = 0; lane < half; ++lane) {
      values[lane] = combine(values[lane], values[lane + half]);
    }
  }
  return values[0];
}

}  // namespace

Status Machine::run(const Launch& launch) {
  prepare(launch);
  const Extent3 groups = launch.plan->groups;
  const uint64_t count = uint64_t{groups.x} * groups.y * groups.z;
  // A stride without a common divisor visits every group once, in an order the seed chooses.
  uint64_t stride = count > 2 ? random_ % (count - 1) + 1 : 1;
  while (std::gcd(stride, count) > 1) ++stride;
  uint64_t at = count > 0 ? random_ % count : 0;
  for (uint64_t i = 0; i < count; ++i, at = (at + stride) % count) {
    const Extent3 group{static_cast<u32>(at % groups.x), static_cast<u32>(at / groups.x % groups.y),
                        static_cast<u32>(at / groups.x / groups.y)};
    if (!run_group(group)) return Error(ErrorCode::kFailedPrecondition, fault_);
  }
  return {};
}

void Machine::prepare(const Launch& launch) {
  launch_ = &launch;
  resolved_.fill({});
  threads_ = launch.plan->group_size;
  MF_CHECK(threads_ > 0 && threads_ % kSimdLanes == 0 && threads_ <= kGroupSizeMax);
  MF_CHECK(launch.plan->shared_bytes <= kMmaSharedBytesMax);
  random_ = launch.seed * 0x9e3779b97f4a7c15u + 0x632be59bd9b4e019u;
  while (fibers_.size() < threads_) fibers_.push_back(std::make_unique<Fiber>(outside_));
  if (lanes_.size() != threads_) {
    lanes_.resize(threads_);
    lane_order_.resize(kSimdLanes);
    simd_order_.resize(threads_ / kSimdLanes);
    for (u32 i = 0; i < kSimdLanes; ++i) lane_order_[i] = i;
    for (u32 i = 0; i < simd_order_.size(); ++i) simd_order_[i] = i;
    simd_epochs_.assign(threads_ / kSimdLanes, 0);
  }
  shared_bytes_ = launch.plan->shared_bytes;
  if (shared_.size() < (shared_bytes_ + 3) / 4) {
    shared_.resize((shared_bytes_ + 3) / 4);
    shadow_.resize(shared_.size());
  }
}

bool Machine::run_group(Extent3 group) {
  group_ = group;
  has_inputs_.assign(threads_, 0);
  first_epoch_ = ++epoch_;
  fault_.clear();
  used_fibers_ = 0;
  finished_ = 0;
  for (u32 i = 0; i < threads_; ++i) {
    lanes_[i] = Lane{};
    lanes_[i].index = i;
  }
  shuffle(lane_order_);
  for (u32 first = 0; first < threads_; first += kSimdLanes) {
    for (u32 i = 1; i < kSimdLanes; ++i) {
      lanes_[first + lane_order_[i - 1]].next = &lanes_[first + lane_order_[i]];
    }
  }
  while (true) {
    shuffle(simd_order_);
    const bool goes_on = run_round();
    if (!fault_.empty()) return false;
    if (goes_on) continue;
    if (finished_ == threads_) return true;
    if (!release_barrier()) {
      report_divergence();
      return false;
    }
  }
}

// Gives every SIMD group one turn; false when no thread can go on.
bool Machine::run_round() {
  bool goes_on = false;
  for (const u32 simd : simd_order_) {
    while (Lane* const lane = ready_lane(first_lane(simd))) {
      fiber_of(*lane).resume();
      if (!fault_.empty()) return false;
    }
    if (complete_exchange(simd)) goes_on = true;
  }
  return goes_on;
}

Fiber& Machine::fiber_of(Lane& lane) {
  if (lane.fiber == nullptr) {
    lane.fiber = fibers_[used_fibers_++].get();
    lane.fiber->start(&run_lanes, this);
    begins_ = &lane;
  }
  return *lane.fiber;
}

void Machine::run_kernel(const Lane& lane) {
  const Thread thread{lane.index,
                      threads_,
                      lane.index % kSimdLanes,
                      lane.index / kSimdLanes,
                      threads_ / kSimdLanes,
                      {group_.x, group_.y, group_.z},
                      this};
  launch_->entry(thread, launch_->plan->params.data(), launch_->bindings.data());
}

void Machine::run_lanes(void* machine) {
  Machine& self = *static_cast<Machine*>(machine);
  Lane* lane = self.begins_;
  Fiber& fiber = *lane->fiber;
  while (true) {
    self.run_kernel(*lane);
    lane->state = State::kFinished;
    ++self.finished_;
    Lane* const next = ready_lane(lane->next);
    if (next == nullptr) fiber.finish();
    if (next->fiber != nullptr) fiber.finish(*next->fiber);
    next->fiber = &fiber;
    lane = next;
  }
}

inline void Machine::leave(Lane& lane) {
  Lane* next = ready_lane(lane.next);
  if (next == nullptr) {
    const u32 simd = lane.index / kSimdLanes;
    if (lane.op == Exchange::kSimdBarrier || !complete_exchange(simd)) return lane.fiber->pause();
    next = first_lane(simd);
  }
  lane.fiber->hand_over(fiber_of(*next));
}

void Machine::barrier(u32 thread, SourceLine place) {
  lanes_[thread].state = State::kAtBarrier;
  lanes_[thread].place = place;
  leave(lanes_[thread]);
}

bool Machine::release_barrier() {
  const SourceLine place = lanes_.front().place;
  for (const Lane& lane : lanes_) {
    if (lane.state != State::kAtBarrier || !(lane.place == place)) return false;
  }
  ++epoch_;
  for (Lane& lane : lanes_) lane.state = State::kReady;
  return true;
}

u32 Machine::exchange(const Thread& thread, Exchange op, u32 bits, u32 operand, SourceLine place) {
  Machine& self = *thread.machine;
  Lane& lane = self.lanes_[thread.index];
  lane.state = State::kAtExchange;
  lane.op = op;
  lane.bits = bits;
  lane.operand = operand;
  lane.place = place;
  self.leave(lane);
  return lane.result;
}

void Machine::multiply(const Thread& thread, const MatrixPart& part, SourceLine place) {
  thread.machine->lanes_[thread.index].part = &part;
  exchange(thread, Exchange::kMultiply, 0, 0, place);
}

void Machine::multiply_halves(const Lane* lanes) {
  // Columns 2 s and 2 s + 1 of a are in lane s of four, 8 more in its last two words.
  float a[16][16];
  float b[16][8];
  const auto value = [](u32 word, u32 half) {
    return to_float(F16{static_cast<uint16_t>(half == 0 ? word : word >> 16)});
  };
  for (u32 i = 0; i < kSimdLanes; ++i) {
    const MatrixPart& part = *lanes[i].part;
    for (u32 half = 0; half < 2; ++half) {
      const u32 at = i % 4 * 2 + half;
      for (u32 word = 0; word < 4; ++word) {
        a[i / 4 + word % 2 * 8][at + word / 2 * 8] = value(part.a[word], half);
      }
      for (u32 word = 0; word < 2; ++word) b[at + word * 8][i / 4] = value(part.b[word], half);
    }
  }
  // Column by column of a, for all elements of the result at once.
  float sums[16][8];
  for (u32 i = 0; i < kSimdLanes; ++i) {
    for (u32 j = 0; j < 4; ++j) sums[i / 4 + j / 2 * 8][i % 4 * 2 + j % 2] = lanes[i].part->c[j];
  }
  for (u32 row = 0; row < 16; ++row) {
    for (u32 k = 0; k < 16; ++k) {
      for (u32 col = 0; col < 8; ++col) sums[row][col] += a[row][k] * b[k][col];
    }
  }
  for (u32 i = 0; i < kSimdLanes; ++i) {
    for (u32 j = 0; j < 4; ++j) lanes[i].part->c[j] = sums[i / 4 + j / 2 * 8][i % 4 * 2 + j % 2];
  }
}

void Machine::multiply_bytes(const Lane* lanes) {
  // Columns 4 s to 4 s + 3 of a are in lane s of four, 16 more in its last two words; the first of
  // them in a word's lowest byte, where the host has it first too.
  static_assert(std::endian::native == std::endian::little);
  uint8_t a_bytes[16][32];
  int8_t b_bytes[8][32];  // a column of b each
  for (u32 i = 0; i < kSimdLanes; ++i) {
    const MatrixPart& part = *lanes[i].part;
    const u32 at = i % 4 * 4;
    for (u32 word = 0; word < 4; ++word) {
      std::memcpy(&a_bytes[i / 4 + word % 2 * 8][at + word / 2 * 16], &part.a[word], 4);
    }
    for (u32 word = 0; word < 2; ++word) {
      std::memcpy(&b_bytes[i / 4][at + word * 16], &part.b[word], 4);
    }
  }
  int16_t a[16][32];
  int16_t b[8][32];
  const bool is_signed = lanes[0].part->is_signed;
  for (u32 row = 0; row < 16; ++row) {
    for (u32 k = 0; k < 32; ++k) {
      const uint8_t own = a_bytes[row][k];
      a[row][k] = is_signed ? static_cast<int16_t>(static_cast<int8_t>(own)) : int16_t{own};
    }
  }
  for (u32 col = 0; col < 8; ++col) {
    for (u32 k = 0; k < 32; ++k) b[col][k] = b_bytes[col][k];
  }
  for (u32 i = 0; i < kSimdLanes; ++i) {
    for (u32 j = 0; j < 4; ++j) {
      const int16_t* const left = a[i / 4 + j / 2 * 8];
      const int16_t* const right = b[i % 4 * 2 + j % 2];
      i32 sum = 0;
      for (u32 k = 0; k < 32; ++k) sum += left[k] * right[k];
      lanes[i].part->sums[j] += sum;
    }
  }
}

// True when all lanes of the SIMD group stood at one exchange, which is then done.
bool Machine::complete_exchange(u32 simd) {
  const std::span<Lane, kSimdLanes> lanes(&lanes_[simd * kSimdLanes], kSimdLanes);
  for (const Lane& lane : lanes) {
    if (lane.state != State::kAtExchange || lane.op != lanes[0].op ||
        !(lane.place == lanes[0].place)) {
      return false;
    }
  }
  const auto give_all = [&](u32 result) {
    for (Lane& lane : lanes) lane.result = result;
  };
  const auto folded = [&](auto combine) {
    std::array<float, kSimdLanes> values;
    for (u32 i = 0; i < kSimdLanes; ++i) values[i] = std::bit_cast<float>(lanes[i].bits);
    return std::bit_cast<u32>(fold(values, combine));
  };
  switch (lanes[0].op) {
    case Exchange::kSum:
      give_all(folded([](float a, float b) { return a + b; }));
      break;
    case Exchange::kMax:
      give_all(folded([](float a, float b) { return mf_max(a, b); }));
      break;
    case Exchange::kHighest:
      give_all(std::ranges::max(lanes, {}, &Lane::bits).bits);
      break;
    case Exchange::kLowest:
      give_all(std::ranges::min(lanes, {}, &Lane::bits).bits);
      break;
    case Exchange::kShuffle:
      for (Lane& lane : lanes) lane.result = lanes[lane.operand % kSimdLanes].bits;
      break;
    case Exchange::kShuffleXor:
      for (u32 i = 0; i < kSimdLanes; ++i) {
        lanes[i].result = lanes[(i ^ lanes[i].operand) % kSimdLanes].bits;
      }
      break;
    case Exchange::kBallot: {
      u32 ballot = 0;
      for (u32 i = 0; i < kSimdLanes; ++i) ballot |= (lanes[i].bits != 0 ? 1u : 0u) << i;
      give_all(ballot);
      break;
    }
    case Exchange::kSimdBarrier:
      ++simd_epochs_[simd];
      break;
    case Exchange::kMultiply:
      lanes[0].part->c != nullptr ? multiply_halves(lanes.data()) : multiply_bytes(lanes.data());
      break;
  }
  for (Lane& lane : lanes) lane.state = State::kReady;
  return true;
}

void Machine::shuffle(std::vector<u32>& order) {
  if (launch_->seed == 0) return;  // in order
  for (size_t i = order.size(); i > 1; --i) {
    random_ ^= random_ << 13;
    random_ ^= random_ >> 7;
    random_ ^= random_ << 17;
    std::swap(order[i - 1], order[random_ % i]);
  }
}

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

void Machine::report_race(u32 thread, uint64_t word, const char* verb) {
  const Shadow& shadow = shadow_[word];
  const bool by_write = is_concurrent(shadow.write, thread);
  const Touch& other =
      by_write ? shadow.write : shadow.reads[is_concurrent(shadow.reads[0], thread) ? 0 : 1];
  fault(thread,
        formatted("race on shared bytes {}..{}: {} what thread {} {} since the last barrier",
                  word * 4, word * 4 + 3, verb, other.thread, by_write ? "wrote" : "read"));
  stop(thread);
}

void Machine::report_unwritten(u32 thread, uint64_t word) {
  fault(thread, formatted("reads shared bytes {}..{}, which nobody wrote", word * 4, word * 4 + 3));
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

BoundRange Machine::resolve(u32 thread, u64 address) {
  // Kernels ask for the same few pages and experts again and again.
  BoundRange& recent = resolved_[address / kPageBytes % resolved_.size()];
  const auto begin = reinterpret_cast<uintptr_t>(recent.begin);
  if (address >= begin && address < reinterpret_cast<uintptr_t>(recent.end)) return recent;
  for (const Allocations* allocations : launch_->allocations) {
    auto after = allocations->upper_bound(address);
    if (after == allocations->begin()) continue;
    --after;
    if (address >= after->second) continue;
    recent = {reinterpret_cast<std::byte*>(after->first),
              reinterpret_cast<std::byte*>(after->second), -1};
    if (launch_->copies != nullptr) recent.watched = launch_->copies->find(recent.begin);
    return recent;
  }
  fault(thread, formatted("address {:#x} from a table lies in no allocation", address));
  stop(thread);
}

}  // namespace moeflux::gpu::emulator
