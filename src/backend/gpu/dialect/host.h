// The kernel dialect as ordinary C++ on the emulator: pointers that check every access, exchanges
// that switch fibers. cuda.h lists the vocabulary.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "backend/gpu/dialect/types.h"
#include "backend/gpu/emulator/machine.h"
#include "base/check.h"
#include "tensor/dtype.h"

#define MF_FN inline
#define MF_FN_APART inline
#define MF_TABLE(T, name) static const T name[]
#define MF_FN_MEMBER
#define MF_T const ::moeflux::gpu::Thread&
#define MF_GLOBAL(T) ::moeflux::gpu::GlobalPointer<T>
#define MF_SHARED(T) ::moeflux::gpu::SharedPointer<T>
#define MF_LOCAL(T) T*
#define MF_PARAMS(P) const P&
#define MF_READ(index, T, name) ::moeflux::gpu::GlobalPointer<const T> name
#define MF_CONST(index, T, name) ::moeflux::gpu::ConstantPointer<T> name
#define MF_WRITE(index, T, name) ::moeflux::gpu::GlobalPointer<T> name
// Its call is in the function that unpacks it: no pointer is written down on the way.
#define MF_KERNEL(name, P, ...)                                                             \
  [[gnu::always_inline]] inline void name([[maybe_unused]] const ::moeflux::gpu::Thread& t, \
                                          const P& p, __VA_ARGS__)
#define MF_FITS(threads, groups)
#define MF_THREAD_EARLY static_cast<void>(p)
#define MF_THREAD  \
  MF_THREAD_EARLY; \
  ::moeflux::gpu::await_inputs(t)
#define MF_UNROLL
#define MF_ROLLED
#define MF_CAST(T, pointer) (pointer).template cast<T>()
#define MF_AT(t, T, address) ::moeflux::gpu::GlobalPointer<T>(t, address)
#define MF_ADDRESS_OF(pointer) (pointer).address()
#define MF_SHARED_AT(t, T, offset_bytes) ::moeflux::gpu::SharedPointer<T>(t, offset_bytes)
#define MF_HAS_REDUCTIONS 1
#define MF_HAS_MATRIX_MULTIPLY 1

namespace moeflux::gpu {

struct Index3 {
  u32 x, y, z;
};

struct Thread {
  u32 index, threads, lane, simd, simds;
  Index3 group;
  emulator::Machine* machine;
  mutable bool has_inputs = false;  // it may touch what kernels before this one write
};

/// A pointer into a bound range, or into the allocation around an address; it may point anywhere,
/// but only elements inside may be touched.
template <typename T>
class GlobalPointer {
 public:
  GlobalPointer(const Thread& t, const emulator::BoundRange& range)
      : GlobalPointer(t, range, reinterpret_cast<uintptr_t>(range.begin), range.awaits) {}
  GlobalPointer(const Thread& t, u64 address)
      : GlobalPointer(t, t.machine->resolve(t.index, address), address, /*awaits=*/false) {}

  T& operator[](int64_t i) const { return *reinterpret_cast<T*>(checked(i, 1)); }
  GlobalPointer operator+(int64_t elements) const {
    GlobalPointer moved = *this;
    moved.at_ += static_cast<uintptr_t>(elements * static_cast<int64_t>(sizeof(T)));
    return moved;
  }
  template <typename U>
  GlobalPointer<U> cast() const {
    static_assert(std::is_const_v<U> || !std::is_const_v<T>);
    return GlobalPointer<U>(*thread_, *range_, at_, awaits_);
  }
  bool is_null() const { return range_->begin == nullptr; }
  u64 address() const { return at_; }
  /// The address of `count` elements from element i, which several must be aligned to in all.
  uintptr_t checked(int64_t i, size_t count) const {
    const uintptr_t address = at_ + static_cast<uintptr_t>(i * static_cast<int64_t>(sizeof(T)));
    const auto begin = reinterpret_cast<uintptr_t>(range_->begin);
    const auto end = reinterpret_cast<uintptr_t>(range_->end);
    const size_t bytes = count * sizeof(T);
    const bool is_inside = address >= begin && address <= end && end - address >= bytes;
    if (!is_inside || address % (count == 1 ? alignof(T) : bytes) != 0 ||
        range_->watched != nullptr || (awaits_ && !thread_->has_inputs)) {
      examine(address, count);
    }
    return address;
  }

 protected:
  template <typename U>
  friend class GlobalPointer;
  GlobalPointer(const Thread& t, const emulator::BoundRange& range, uintptr_t at, bool awaits)
      : thread_(&t), range_(&range), at_(at), awaits_(awaits) {}

 private:
  /// Reports what is wrong with an access, or notes it where copies have to do with the memory.
  [[gnu::noinline]] void examine(uintptr_t address, size_t count) const {
    const auto begin = reinterpret_cast<uintptr_t>(range_->begin);
    const auto end = reinterpret_cast<uintptr_t>(range_->end);
    if (address < begin || address > end || end - address < count * sizeof(T)) {
      thread_->machine->report_bounds(thread_->index, *range_,
                                      static_cast<int64_t>(address - begin), sizeof(T));
    }
    const size_t alignment = count == 1 ? alignof(T) : count * sizeof(T);
    if (address % alignment != 0) {
      thread_->machine->report_misaligned(thread_->index, *range_, alignment);
    }
    if (awaits_ && !thread_->has_inputs) {
      thread_->machine->report_early(thread_->index, *range_);
    }
    if (range_->watched != nullptr) {
      thread_->machine->touch_watched(thread_->index, *range_->watched, address, count * sizeof(T),
                                      !std::is_const_v<T>);
    }
  }

  const Thread* thread_;
  const emulator::BoundRange* range_;
  uintptr_t at_;
  bool awaits_;
};

/// A binding that nobody writes, which may be read before the inputs are there.
template <typename T>
class ConstantPointer : public GlobalPointer<const T> {
 public:
  ConstantPointer(const Thread& t, const emulator::BoundRange& range)
      : GlobalPointer<const T>(t, range, reinterpret_cast<uintptr_t>(range.begin),
                               /*awaits=*/false) {}
};

/// Shared memory: each read and write is recorded, which finds races and reads of nothing.
template <typename T>
class SharedPointer {
  static_assert(sizeof(T) == 4, "the record of accesses is kept per 4 bytes");

 public:
  SharedPointer(const Thread& t, uint64_t offset_bytes) : thread_(&t), offset_(offset_bytes) {}

  class Element {
   public:
    Element(const Thread& t, uint64_t offset) : thread_(t), offset_(offset) {}
    operator T() const {  // NOLINT: reads as the element does
      return std::bit_cast<T>(thread_.machine->shared_read(thread_.index, offset_));
    }
    const Element& operator=(T value) const {
      thread_.machine->shared_write(thread_.index, offset_, std::bit_cast<u32>(value));
      return *this;
    }
    const Element& operator=(const Element& other) const { return *this = static_cast<T>(other); }
    const Element& operator+=(T value) const { return *this = static_cast<T>(*this) + value; }

   private:
    const Thread& thread_;
    uint64_t offset_;
  };
  Element operator[](int64_t i) const {
    return Element(*thread_, offset_ + static_cast<uint64_t>(i * 4));
  }
  SharedPointer operator+(int64_t elements) const {
    return SharedPointer(*thread_, offset_ + static_cast<uint64_t>(elements * 4));
  }

 private:
  const Thread* thread_;
  uint64_t offset_;
};

struct F4 {
  f32 v[4];
};
struct W4 {
  u32 v[4];
};
struct W2 {
  u32 v[2];
};

inline void await_inputs(const Thread& t) { t.has_inputs = true; }
inline void await_launch(const Thread& t) { await_inputs(t); }
inline void let_next_start(const Thread&) {}
template <typename T>
void prefetch(const Thread&, const GlobalPointer<T>&) {}

using emulator::Exchange;
using emulator::SourceLine;

inline void barrier(const Thread& t, SourceLine place = SourceLine::here()) {
  t.machine->barrier(t.index, place);
}
inline void simd_barrier(const Thread& t, SourceLine place = SourceLine::here()) {
  emulator::Machine::exchange(t, Exchange::kSimdBarrier, 0, 0, place);
}
inline u32 simd_shuffle(const Thread& t, u32 value, u32 lane,
                        SourceLine place = SourceLine::here()) {
  return emulator::Machine::exchange(t, Exchange::kShuffle, value, lane, place);
}
inline f32 simd_shuffle(const Thread& t, f32 value, u32 lane,
                        SourceLine place = SourceLine::here()) {
  return std::bit_cast<f32>(simd_shuffle(t, std::bit_cast<u32>(value), lane, place));
}
inline u32 simd_shuffle_xor(const Thread& t, u32 value, u32 mask,
                            SourceLine place = SourceLine::here()) {
  return emulator::Machine::exchange(t, Exchange::kShuffleXor, value, mask, place);
}
inline f32 simd_shuffle_xor(const Thread& t, f32 value, u32 mask,
                            SourceLine place = SourceLine::here()) {
  return std::bit_cast<f32>(simd_shuffle_xor(t, std::bit_cast<u32>(value), mask, place));
}
inline u32 simd_ballot(const Thread& t, bool value, SourceLine place = SourceLine::here()) {
  return emulator::Machine::exchange(t, Exchange::kBallot, value ? 1u : 0u, 0, place);
}
inline f32 simd_sum(const Thread& t, f32 value, SourceLine place = SourceLine::here()) {
  return std::bit_cast<f32>(
      emulator::Machine::exchange(t, Exchange::kSum, std::bit_cast<u32>(value), 0, place));
}
template <u32 N>
void simd_sums(const Thread& t, f32* values, SourceLine place = SourceLine::here()) {
  emulator::Machine::sum(t, {values, N}, place);
}
template <u32 N>
void simd_shuffles_xor(const Thread& t, f32* values, u32 mask,
                       SourceLine place = SourceLine::here()) {
  emulator::Machine::shuffle_xor(t, {values, N}, mask, place);
}
inline f32 simd_max(const Thread& t, f32 value, SourceLine place = SourceLine::here()) {
  return std::bit_cast<f32>(
      emulator::Machine::exchange(t, Exchange::kMax, std::bit_cast<u32>(value), 0, place));
}
inline void matrix_multiply_add_f16(const Thread& t, f32* c, u32 a0, u32 a1, u32 a2, u32 a3, u32 b0,
                                    u32 b1, SourceLine place = SourceLine::here()) {
  emulator::Machine::multiply(t, {c, nullptr, {a0, a1, a2, a3}, {b0, b1}}, place);
}
inline void matrix_multiply_add_bytes(const Thread& t, i32* c, u32 a0, u32 a1, u32 a2, u32 a3,
                                      u32 b0, u32 b1, SourceLine place = SourceLine::here()) {
  emulator::Machine::multiply(t, {nullptr, c, {a0, a1, a2, a3}, {b0, b1}}, place);
}
inline void matrix_multiply_add_signed_bytes(const Thread& t, i32* c, u32 a0, u32 a1, u32 a2,
                                             u32 a3, u32 b0, u32 b1,
                                             SourceLine place = SourceLine::here()) {
  emulator::Machine::multiply(t, {nullptr, c, {a0, a1, a2, a3}, {b0, b1}, true}, place);
}
inline u32 simd_max(const Thread& t, u32 value, SourceLine place = SourceLine::here()) {
  return emulator::Machine::exchange(t, Exchange::kHighest, value, 0, place);
}
inline u32 simd_min(const Thread& t, u32 value, SourceLine place = SourceLine::here()) {
  return emulator::Machine::exchange(t, Exchange::kLowest, value, 0, place);
}
inline u32 count_bits(u32 bits) { return static_cast<u32>(std::popcount(bits)); }

inline f32 as_float(u32 bits) { return std::bit_cast<f32>(bits); }
inline u32 as_bits(f32 value) { return std::bit_cast<u32>(value); }
/// Without branches, so that loops over it are vectors'.
inline f32 f16_to_float(u16 bits) {
  constexpr u32 kLeast = 113u << 23;  // 2^-14, of which lesser ones are parts
  const u32 size = (bits & 0x7fffu) << 13;
  const u32 lesser = as_bits(as_float(size + kLeast) - as_float(kLeast));
  const u32 other = size + (size < 0x0f800000u ? 112u << 23 : 224u << 23);
  return as_float((size < 1u << 23 ? lesser : other) | (bits & 0x8000u) << 16);
}

inline F4 load4(const GlobalPointer<const f32>& from) {
  return *reinterpret_cast<const F4*>(from.checked(0, 4));
}
inline W4 load4(const GlobalPointer<const u32>& from) {
  return *reinterpret_cast<const W4*>(from.checked(0, 4));
}
inline F4 load4(const SharedPointer<f32>& from) { return {{from[0], from[1], from[2], from[3]}}; }
inline W2 load2(const GlobalPointer<const u32>& from) {
  return *reinterpret_cast<const W2*>(from.checked(0, 2));
}
inline W2 load2(const SharedPointer<u32>& from) { return {{from[0], from[1]}}; }
inline W4 load4(const SharedPointer<u32>& from) { return {{from[0], from[1], from[2], from[3]}}; }
inline u32 shared_byte(const Thread& t, u32 at) {
  return MF_SHARED_AT(t, u32, at & ~3u)[0] >> (at % 4u * 8u) & 0xffu;
}
inline u32 shared_half(const Thread& t, u32 at) {
  MF_CHECK(at % 2u == 0u);
  return MF_SHARED_AT(t, u32, at & ~3u)[0] >> (at % 4u * 8u) & 0xffffu;
}
inline void store4(const SharedPointer<u32>& to, W4 value) {
  for (int i = 0; i < 4; ++i) to[i] = value.v[i];
}
inline void store2(const SharedPointer<u32>& to, W2 value) {
  for (int i = 0; i < 2; ++i) to[i] = value.v[i];
}
inline void store2(const GlobalPointer<u32>& to, W2 value) {
  *reinterpret_cast<W2*>(to.checked(0, 2)) = value;
}
inline void store4(const GlobalPointer<u32>& to, W4 value) {
  *reinterpret_cast<W4*>(to.checked(0, 4)) = value;
}
inline void store4(const GlobalPointer<f32>& to, F4 value) {
  *reinterpret_cast<F4*>(to.checked(0, 4)) = value;
}
inline void store4(const SharedPointer<f32>& to, F4 value) {
  for (int i = 0; i < 4; ++i) to[i] = value.v[i];
}

inline void store_whole(const GlobalPointer<u64>& to, u64 value) { to[0] = value; }

/// The library's, whose call takes five times as long as the instruction that it ends in.
inline f32 mf_fma(f32 a, f32 b, f32 c) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("fma")) {
    asm("vfmadd213ss %2, %1, %0" : "+x"(a) : "x"(b), "x"(c));
    return a;
  }
#endif
  return std::fma(a, b, c);
}
inline f32 mf_exp(f32 x) { return std::exp(x); }
inline f32 mf_exp2(f32 x) { return std::exp2(x); }
inline f32 mf_exp2_normal(f32 x) { return mf_exp2(x); }
inline f32 mf_log1p(f32 x) { return std::log1p(x); }
inline f32 mf_tanh(f32 x) { return std::tanh(x); }
inline f32 mf_sin(f32 x) { return std::sin(x); }
inline f32 mf_cos(f32 x) { return std::cos(x); }
inline f32 mf_sqrt(f32 x) { return std::sqrt(x); }
inline f32 mf_min(f32 a, f32 b) { return std::fmin(a, b); }
inline f32 mf_max(f32 a, f32 b) { return b != b || a > b ? a : b; }
inline f32 mf_infinity() { return std::numeric_limits<f32>::infinity(); }

}  // namespace moeflux::gpu

#include "backend/gpu/dialect/common.h"
