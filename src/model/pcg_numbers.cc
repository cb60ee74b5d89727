#include "model/pcg_numbers.h"

#include <array>
#include <bit>
#include <cstddef>

#include "base/check.h"

namespace moeflux {
namespace {

constexpr size_t kPoolWords = 4;

/// The words that SeedSequence makes of a seed. Each depends on all of its bits.
class SeedWords {
 public:
  explicit SeedWords(uint64_t seed) {
    uint32_t factor = 0x43b0d7e5;
    const auto hashed = [&](uint32_t value) {
      value ^= factor;
      factor *= 0x931e8875;
      value *= factor;
      return value ^ value >> 16;
    };
    const std::array<uint32_t, kPoolWords> given = {static_cast<uint32_t>(seed),
                                                    static_cast<uint32_t>(seed >> 32), 0, 0};
    for (size_t i = 0; i < kPoolWords; ++i) pool_[i] = hashed(given[i]);
    for (size_t from = 0; from < kPoolWords; ++from) {
      for (size_t to = 0; to < kPoolWords; ++to) {
        if (from == to) continue;
        const uint32_t mixed = 0xca01f9dd * pool_[to] - 0x4973f715 * hashed(pool_[from]);
        pool_[to] = mixed ^ mixed >> 16;
      }
    }
  }

  uint64_t next_pair() {
    const uint64_t low = next();
    return low | uint64_t{next()} << 32;
  }

 private:
  uint32_t next() {
    uint32_t value = pool_[at_++ % kPoolWords] ^ factor_;
    factor_ *= 0x58f38ded;
    value *= factor_;
    return value ^ value >> 16;
  }

  std::array<uint32_t, kPoolWords> pool_{};
  uint32_t factor_ = 0x8b51f9dd;
  size_t at_ = 0;
};

}  // namespace

PcgNumbers::PcgNumbers(uint64_t seed) {
  SeedWords words(seed);
  const auto next = [&] {
    const Wide high = words.next_pair();
    return high << 64 | words.next_pair();
  };
  const Wide start = next();
  increment_ = next() << 1 | 1;
  step();
  state_ += start;
  step();
}

void PcgNumbers::step() {
  const Wide factor = Wide{0x2360ed051fc65da4} << 64 | 0x4385df649fccf645;
  state_ = state_ * factor + increment_;
}

uint64_t PcgNumbers::next() {
  step();
  const auto high = static_cast<uint64_t>(state_ >> 64);
  return std::rotr(high ^ static_cast<uint64_t>(state_), static_cast<int>(high >> 58));
}

// Lemire's: the upper half of a product, drawn again where the lower one would favour some.
uint64_t PcgNumbers::below(uint64_t bound) {
  MF_CHECK(bound > uint64_t{1} << 32);
  Wide product = Wide{next()} * bound;
  const uint64_t least = -bound % bound;
  while (static_cast<uint64_t>(product) < least) product = Wide{next()} * bound;
  return static_cast<uint64_t>(product >> 64);
}

}  // namespace moeflux
