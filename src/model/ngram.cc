#include "model/ngram.h"

#include <limits>

#include "base/check.h"
#include "model/pcg_numbers.h"

namespace moeflux {
namespace {

constexpr uint64_t kGolden = 0x9E3779B97F4A7C15ULL;
constexpr uint64_t kLayerStep = 10007;

// Numbers that differ in one bit become unlike.
uint64_t split_mix(uint64_t v) {
  v += kGolden;
  v = (v ^ (v >> 30)) * 0xBF58476D1CE4E5B9ULL;
  v = (v ^ (v >> 27)) * 0x94D049BB133111EBULL;
  return v ^ (v >> 31);
}

bool is_prime(int64_t n) {
  if (n < 4) return n > 1;
  if (n % 2 == 0) return false;
  for (int64_t d = 3; d * d <= n; d += 2) {
    if (n % d == 0) return false;
  }
  return true;
}

}  // namespace

NgramHashes make_hashes(const NgramSpec& spec, int64_t vocab_size) {
  NgramHashes hashes{.ngram_size = spec.ngram_size,
                     .heads_per_ngram = spec.heads_per_ngram,
                     .boundary = spec.boundary,
                     .before = spec.num_codes > 0 ? spec.pad : -1,
                     .codes = {},
                     .num_codes = spec.num_codes < vocab_size ? spec.num_codes : 0,
                     .multipliers = {},
                     .sizes = {},
                     .offsets = {}};
  const int64_t hashed = spec.num_codes > 0 ? spec.num_codes : vocab_size;
  const auto half = static_cast<uint64_t>(std::numeric_limits<int64_t>::max() / hashed / 2);
  const uint64_t first =
      static_cast<uint64_t>(spec.seed) + kLayerStep * static_cast<uint64_t>(spec.number);
  PcgNumbers drawn(static_cast<uint64_t>(spec.seed));
  for (int64_t s = 0; s < spec.ngram_size; ++s) {
    const uint64_t number = spec.num_codes > 0
                                ? drawn.below(half)
                                : split_mix(first + kGolden * static_cast<uint64_t>(s + 1)) % half;
    hashes.multipliers.push_back(static_cast<int64_t>(2 * number + 1));
  }
  // Each layer goes on where the one before has ended.
  int64_t skipped = spec.number * spec.heads();
  int64_t rows = 0;
  for (int64_t n = spec.vocab_base; hashes.heads() < spec.heads(); ++n) {
    if (!is_prime(n)) continue;
    if (skipped-- > 0) continue;
    hashes.sizes.push_back(n);
    hashes.offsets.push_back(rows);
    rows += n;
  }
  return hashes;
}

int64_t rows_of_part(const NgramSpec& spec, const NgramHashes& hashes) {
  const int64_t divisor = spec.vocab_divisor;
  const int64_t rows = (hashes.rows() + divisor - 1) / divisor * divisor;
  return (rows + spec.parts - 1) / spec.parts;
}

void NgramHashes::find_rows(std::span<const TokenId> past, std::span<const TokenId> tokens,
                            size_t at, std::span<int64_t> rows) const {
  MF_CHECK(static_cast<int64_t>(rows.size()) == heads());
  // A token before all of them is a boundary.
  const auto token_before = [&](size_t back) {
    if (back <= at) return tokens[at - back];
    const size_t behind = back - at;  // from the end of the past
    return behind <= past.size() ? past[past.size() - behind] : boundary;
  };
  const TokenId unseen = before >= 0 ? before : boundary;
  int64_t hash = code_of(tokens[at]) * multipliers[0];
  bool is_cut = false;
  size_t head = 0;
  for (int64_t back = 1; back < ngram_size; ++back) {
    const TokenId own = token_before(static_cast<size_t>(back));
    is_cut = is_cut || own == boundary;
    hash ^= code_of(is_cut ? unseen : own) * multipliers[static_cast<size_t>(back)];
    for (int64_t i = 0; i < heads_per_ngram; ++i, ++head) {
      rows[head] = hash % sizes[head] + offsets[head];
    }
  }
}

}  // namespace moeflux
