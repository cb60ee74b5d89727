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

// The order of simd_sum in dialect/common.h: halves fold onto each other.
template <u32 kHalf = kSimdLanes / 2, typename Combine>
float fold(float* values, Combine combine) {
  for (u32 lane = 0; lane < kHalf; ++lane)
    values[lane] = combine(values[lane], values[lane + kHalf]);
  if constexpr (kHalf > 1) return fold<kHalf / 2>(values, combine);
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
  resolved_.clear();
  size_t reached = 0;
  for (const Allocations* allocations : launch.allocations) reached += allocations->size();
  resolved_.reserve(reached);
  recent_.fill(nullptr);
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
    simd_barriers_.resize(threads_ / kSimdLanes);
    simds_.resize(threads_ / kSimdLanes);
    for (u32 i = 0; i < threads_; ++i) lanes_[i].index = i;
  }
  shared_bytes_ = launch.plan->shared_bytes;
  if (shared_.size() < (shared_bytes_ + 3) / 4) shared_.resize((shared_bytes_ + 3) / 4);
}

bool Machine::run_group(Extent3 group) {
  group_ = group;
  pass_barrier();
  group_begin_ = barrier_;
  fault_.clear();
  used_fibers_ = 0;
  finished_ = 0;
  for (Lane& lane : lanes_) {
    lane.fiber = nullptr;
    lane.next = nullptr;
    lane.state = State::kReady;
  }
  for (Simd& simd : simds_) {
    simd.ready = ~0u;
    simd.arrived = 0;
  }
  at_barrier_ = 0;
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
    while (Lane* const lane = ready_lane(simds_[simd], first_lane(simd))) {
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

void Machine::run_lanes(void* machine) {
  Machine& self = *static_cast<Machine*>(machine);
  Lane* lane = self.begins_;
  Fiber& fiber = *lane->fiber;
  const u32 number = lane->index / kSimdLanes;
  const Simd& simd = self.simds_[number];
  const Extent3& group = self.group_;
  Thread thread{
      0, self.threads_, 0, number, self.threads_ / kSimdLanes, {group.x, group.y, group.z}, &self};
  while (true) {
    thread.index = lane->index;
    thread.lane = lane->index % kSimdLanes;
    thread.has_inputs = self.launch_->reads_early;
    self.launch_->entry(thread, self.launch_->plan->params.data(), self.launch_->bindings.data());
    self.wait_at(*lane, State::kFinished, {});
    ++self.finished_;
    Lane* const next = ready_lane(simd, lane->next);
    if (next == nullptr) fiber.finish();
    if (next->fiber != nullptr) fiber.finish(*next->fiber);
    next->fiber = &fiber;
    lane = next;
  }
}

inline void Machine::leave(Lane& lane) {
  const u32 simd = lane.index / kSimdLanes;
  Lane* next = ready_lane(simds_[simd], lane.next);
  if (next == nullptr) {
    if (lane.op == Exchange::kSimdBarrier || !complete_exchange(simd)) return lane.fiber->pause();
    next = first_lane(simd);
  }
  lane.fiber->hand_over(fiber_of(*next));
}

void Machine::barrier(u32 thread, SourceLine place) {
  if (at_barrier_++ == 0) {
    barrier_place_ = place;
    is_barrier_mixed_ = false;
  } else if (!(place == barrier_place_)) {
    is_barrier_mixed_ = true;
  }
  wait_at(lanes_[thread], State::kAtBarrier, place);
  leave(lanes_[thread]);
}

bool Machine::release_barrier() {
  if (at_barrier_ != threads_ || is_barrier_mixed_) return false;
  pass_barrier();
  at_barrier_ = 0;
  for (Simd& simd : simds_) simd.ready = ~0u;
  return true;
}

u32 Machine::exchange(const Thread& thread, Exchange op, u32 bits, u32 operand, SourceLine place) {
  Machine& self = *thread.machine;
  Lane& lane = self.lanes_[thread.index];
  Simd& simd = self.simds_[thread.simd];
  if (simd.arrived++ == 0) {
    simd.op = op;
    simd.place = place;
    simd.is_mixed = false;
  } else if (op != simd.op || !(place == simd.place)) {
    simd.is_mixed = true;
  }
  simd.bits[thread.lane] = bits;
  simd.operands[thread.lane] = operand;
  lane.op = op;
  self.wait_at(lane, State::kAtExchange, place);
  self.leave(lane);
  return simd.results[thread.lane];
}

void Machine::multiply(const Thread& thread, const MatrixPart& part, SourceLine place) {
  thread.machine->lanes_[thread.index].part = &part;
  exchange(thread, Exchange::kMultiply, 0, 0, place);
}

void Machine::sum(const Thread& thread, std::span<float> values, SourceLine place) {
  thread.machine->lanes_[thread.index].values = values.data();
  exchange(thread, Exchange::kSums, static_cast<u32>(values.size()), 0, place);
}

void Machine::shuffle_xor(const Thread& thread, std::span<float> values, u32 mask,
                          SourceLine place) {
  thread.machine->lanes_[thread.index].values = values.data();
  exchange(thread, Exchange::kShufflesXor, static_cast<u32>(values.size()), mask, place);
}

void Machine::shuffle_values(const Lane* lanes, const Simd& simd) {
  for (u32 at = 0; at < simd.bits[0]; ++at) {
    float values[kSimdLanes];
    for (u32 i = 0; i < kSimdLanes; ++i) values[i] = lanes[i].values[at];
    for (u32 i = 0; i < kSimdLanes; ++i) {
      lanes[i].values[at] = values[(i ^ simd.operands[i]) % kSimdLanes];
    }
  }
}

void Machine::sum_values(const Lane* lanes, u32 count) {
  for (u32 at = 0; at < count; ++at) {
    float values[kSimdLanes];
    for (u32 i = 0; i < kSimdLanes; ++i) values[i] = lanes[i].values[at];
    const float sum = fold(values, [](float a, float b) { return a + b; });
    for (u32 i = 0; i < kSimdLanes; ++i) lanes[i].values[at] = sum;
  }
}

void Machine::multiply_halves(const Lane* lanes) {
  // Columns 2 s and 2 s + 1 of a are in lane s of four, 8 more in its last two words; the first of
  // them in a word's lower half, where the host has it first too.
  static_assert(std::endian::native == std::endian::little);
  u16 a_halves[16][16];
  u16 b_halves[8][16];  // a column of b each
  float sums[16][8];
  for (u32 i = 0; i < kSimdLanes; ++i) {
    const MatrixPart& part = *lanes[i].part;
    const u32 at = i % 4 * 2;
    for (u32 word = 0; word < 4; ++word) {
      std::memcpy(&a_halves[i / 4 + word % 2 * 8][at + word / 2 * 8], &part.a[word], 4);
    }
    for (u32 word = 0; word < 2; ++word) {
      std::memcpy(&b_halves[i / 4][at + word * 8], &part.b[word], 4);
    }
    for (u32 j = 0; j < 4; ++j) sums[i / 4 + j / 2 * 8][at + j % 2] = part.c[j];
  }
  float a[16][16];
  float b[16][8];
  for (u32 row = 0; row < 16; ++row) {
    for (u32 k = 0; k < 16; ++k) a[row][k] = f16_to_float(a_halves[row][k]);
  }
  for (u32 k = 0; k < 16; ++k) {
    for (u32 col = 0; col < 8; ++col) b[k][col] = f16_to_float(b_halves[col][k]);
  }
  // Column by column of a, for all elements of the result at once.
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
  Simd& all = simds_[simd];
  if (all.arrived != kSimdLanes || all.is_mixed) return false;
  // Lanes that came with other numbers of values came from elsewhere.
  const bool counts = all.op == Exchange::kSums || all.op == Exchange::kShufflesXor;
  if (counts && std::ranges::count(all.bits, all.bits[0]) != kSimdLanes) return false;
  exchange_all(simd);
  all.arrived = 0;
  all.ready = ~0u;
  return true;
}

void Machine::exchange_all(u32 simd) {
  Simd& all = simds_[simd];
  const Lane* const lanes = &lanes_[simd * kSimdLanes];
  const auto folded = [&](auto combine) {
    std::array<float, kSimdLanes> values;
    std::memcpy(values.data(), all.bits.data(), sizeof values);
    all.results.fill(std::bit_cast<u32>(fold(values.data(), combine)));
  };
  switch (all.op) {
    case Exchange::kSum:
      return folded([](float a, float b) { return a + b; });
    case Exchange::kSums:
      return sum_values(lanes, all.bits[0]);
    case Exchange::kMax:
      return folded([](float a, float b) { return mf_max(a, b); });
    case Exchange::kHighest:
      return all.results.fill(std::ranges::max(all.bits));
    case Exchange::kLowest:
      return all.results.fill(std::ranges::min(all.bits));
    case Exchange::kShuffle:
      for (u32 i = 0; i < kSimdLanes; ++i) {
        all.results[i] = all.bits[all.operands[i] % kSimdLanes];
      }
      return;
    case Exchange::kShuffleXor:
      for (u32 i = 0; i < kSimdLanes; ++i) {
        all.results[i] = all.bits[(i ^ all.operands[i]) % kSimdLanes];
      }
      return;
    case Exchange::kShufflesXor:
      return shuffle_values(lanes, all);
    case Exchange::kBallot: {
      u32 ballot = 0;
      for (u32 i = 0; i < kSimdLanes; ++i) ballot |= (all.bits[i] != 0 ? 1u : 0u) << i;
      return all.results.fill(ballot);
    }
    case Exchange::kSimdBarrier:
      simd_barriers_[simd] = ++clock_;
      return;
    case Exchange::kMultiply:
      return lanes[0].part->c != nullptr ? multiply_halves(lanes) : multiply_bytes(lanes);
  }
  __builtin_unreachable();
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

const BoundRange& Machine::resolve(u32 thread, u64 address) {
  // Kernels ask for the same few pages and experts again and again.
  const BoundRange*& recent = recent_[address / kPageBytes % recent_.size()];
  if (recent != nullptr && address >= reinterpret_cast<uintptr_t>(recent->begin) &&
      address < reinterpret_cast<uintptr_t>(recent->end)) {
    return *recent;
  }
  for (const Allocations* allocations : launch_->allocations) {
    auto after = allocations->upper_bound(address);
    if (after == allocations->begin()) continue;
    --after;
    if (address >= after->second) continue;
    auto* const begin = reinterpret_cast<std::byte*>(after->first);
    const auto known = std::ranges::find(resolved_, begin, &BoundRange::begin);
    if (known == resolved_.end()) {
      BoundRange& found = resolved_.emplace_back(
          BoundRange{begin, reinterpret_cast<std::byte*>(after->second), -1});
      if (launch_->copies != nullptr) found.watched = launch_->copies->find(begin);
      return *(recent = &found);
    }
    return *(recent = &*known);
  }
  fault(thread, formatted("address {:#x} from a table lies in no allocation", address));
  stop(thread);
}

}  // namespace moeflux::gpu::emulator
