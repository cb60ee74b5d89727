// Vectors of 32-bit words and floats in the compiler's own terms, as wide as the instruction set's:
// what block_fill-inl.h unpacks rows with, a row in a lane. Included by the block_lanes_*-inl.h,
// which say kWordBytes.

#include "backend/cpu/kernels/block_codes-inl.h"

using Words = uint32_t __attribute__((vector_size(kWordBytes)));
using Ints = int32_t __attribute__((vector_size(kWordBytes)));
using Floats = float __attribute__((vector_size(kWordBytes)));
/// Rows that are unpacked together.
constexpr int kWordLanes = kWordBytes / 4;

/// Vectors of other names with the same bytes.
template <class To, class From>
MF_INLINE To same_bits(const From& from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  __builtin_memcpy(&to, &from, sizeof(to));
  return to;
}
MF_INLINE void store_words(void* p, Words words) { __builtin_memcpy(p, &words, kWordBytes); }
MF_INLINE void store_floats(float* p, Floats floats) { __builtin_memcpy(p, &floats, kWordBytes); }

/// Small numbers as floats.
MF_INLINE Floats to_floats(Words words) {
  return __builtin_convertvector(reinterpret_cast<Ints>(words), Floats);
}
/// Where rows are from the first one on. Compilers would keep a register for each of sixteen rows
/// and spill half of them: they do not see through these, and address all rows by four.
struct RowSteps {
  int64_t one;
  int64_t three;

  explicit MF_INLINE RowSteps(int64_t row_bytes) : one(row_bytes), three(3 * row_bytes) {
    asm("" : "+r"(three));
  }
};
/// Four rows, of which the first is row 4 * four from `from` on.
struct FourRows {
  const uint8_t* first;
  const RowSteps& steps;

  MF_INLINE FourRows(const uint8_t* from, const RowSteps& all, int four)
      : first(from + 4 * four * all.one), steps(all) {
    asm("" : "+r"(first));
  }
  MF_INLINE const uint8_t* operator[](int i) const {
    return i == 3 ? first + steps.three : first + i * steps.one;
  }
};

/// Four fields of 2 bits to the lowest bits of four bytes.
MF_INLINE Words spread_pairs(Words bits) {
  const Words two = (bits | bits << 12) & 0x000f000fu;
  return (two | two << 6) & 0x03030303u;
}

/// fn(lane) for each row.
template <class Fn>
MF_INLINE Words words_of(Fn&& fn) {
  alignas(64) uint32_t words[kWordLanes];
  for (int lane = 0; lane < kWordLanes; ++lane) words[lane] = fn(lane);
  return same_bits<Words>(words);
}

/// fn(i) for each i below kEnd, unrolled.
template <int kEnd, int kAt = 0, class Fn>
MF_INLINE void unrolled(const Fn& fn) {
  if constexpr (kAt < kEnd) {
    fn(kAt);
    unrolled<kEnd, kAt + 1>(fn);
  }
}

/// `count`, of which the compiler does not know that: a loop of so many turns stays one.
MF_INLINE int unknown(int count) {
  asm("" : "+r"(count));
  return count;
}

/// fn(i) for each i below kEnd, in a loop: where one turn is long, all of them are more code than
/// the L1 cache holds, and take long to compile.
template <int kEnd, class Fn>
MF_INLINE void looped(const Fn& fn) {
  for (int i = 0, end = unknown(kEnd); i < end; ++i) fn(i);
}

/// Entries of a grid for two indices of 16 bits in each word, one load each. Words are composed in
/// general registers: what was stored in pieces cannot be loaded whole before it has reached the
/// cache.
template <int kSize>
MF_INLINE Words look_up_one_by_one(Words index, const uint16_t (&grid)[kSize]) {
  alignas(64) uint64_t fours[kWordBytes / 8];
  __builtin_memcpy(fours, &index, kWordBytes);
  for (uint64_t& four : fours) {
    uint64_t entries = 0;
    MF_UNROLL
    for (int k = 0; k < 4; ++k) {
      entries |= static_cast<uint64_t>(grid[four >> (16 * k) & (kSize - 1)]) << (16 * k);
    }
    four = entries;
  }
  return same_bits<Words>(fours);
}
