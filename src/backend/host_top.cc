#include "backend/host_top.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>

#include "base/check.h"

namespace moeflux {
namespace {

constexpr size_t kBlock = 128;  // whole words of a mask
constexpr int32_t kInfinityKey = 0x7f800000;

// Integers in the order of the floats: equal for both zeros, that of plus infinity for what is no
// number. Compilers find their maximum in vectors, which they may not for floats.
int32_t key_of(float value) {
  const auto bits = std::bit_cast<int32_t>(value);
  const int32_t magnitude = bits & 0x7fffffff;
  const int32_t key = bits < 0 ? -magnitude : magnitude;
  return magnitude > kInfinityKey ? kInfinityKey : key;
}

int32_t greatest_key(std::span<const float> values) {
  int32_t greatest = std::numeric_limits<int32_t>::min();
  for (const float value : values) greatest = std::max(greatest, key_of(value));
  return greatest;
}

// Whether a mask leaves out `count` numbers from a block's first on.
bool is_left_out(std::span<const uint32_t> mask, size_t begin, size_t count) {
  if (mask.empty()) return false;
  const auto words = mask.subspan(begin / 32, (count + 31) / 32);
  return std::ranges::all_of(words, [](uint32_t word) { return word == 0; });
}

}  // namespace

// Blocks without a key above the least that is kept are passed over; for equal keys the first stay.
void top_of_row(std::span<const float> row, std::span<float> values, std::span<int32_t> ids,
                std::span<const uint32_t> mask) {
  const size_t wanted = values.size();
  MF_CHECK(wanted == ids.size() && wanted <= row.size() && wanted <= kTopRowsMax);
  if (wanted == 0) return;
  std::array<int32_t, kTopRowsMax> keys;
  size_t count = 0;
  for (size_t begin = 0; begin < row.size(); begin += kBlock) {
    const std::span<const float> block = row.subspan(begin, std::min(kBlock, row.size() - begin));
    const int32_t greatest = greatest_key(block);
    if (count == wanted && greatest <= keys[wanted - 1]) continue;
    if (greatest < kInfinityKey && is_left_out(mask, begin, block.size())) continue;
    for (size_t i = 0; i < block.size(); ++i) {
      const int32_t key = key_of(block[i]);
      if (count == wanted && key <= keys[wanted - 1]) continue;
      const bool is_allowed =
          mask.empty() || (mask[(begin + i) / 32] >> ((begin + i) % 32) & 1u) != 0;
      if (!is_allowed && key < kInfinityKey) continue;
      if (count < wanted) ++count;
      size_t at = count - 1;
      for (; at > 0 && keys[at - 1] < key; --at) {
        keys[at] = keys[at - 1];
        ids[at] = ids[at - 1];
      }
      keys[at] = key;
      ids[at] = static_cast<int32_t>(begin + i);
    }
  }
  for (size_t i = 0; i < count; ++i) values[i] = row[static_cast<size_t>(ids[i])];
  std::ranges::fill(values.subspan(count), -std::numeric_limits<float>::infinity());
  std::ranges::fill(ids.subspan(count), -1);
}

void host_top_rows(const ops::TopRows& op) {
  const auto& [values, ids, x, mask] = op;
  MF_CHECK(values.shape == ids.shape && values.is_contiguous() && ids.is_contiguous() &&
           values.shape.back() <= std::min(kTopRowsMax, x.shape.back()));
  const RowsView rows(x);
  const auto k = static_cast<size_t>(values.shape.back());
  for (int64_t r = 0; r < rows.rows; ++r) {
    const size_t at = static_cast<size_t>(r) * k;
    std::span<const uint32_t> allowed;
    if (!mask.is_null()) {
      const auto words = static_cast<size_t>(mask_words(rows.cols));
      const int32_t* row = host_ptr<int32_t>(mask) + static_cast<size_t>(r) * words;
      allowed = {reinterpret_cast<const uint32_t*>(row), words};
    }
    top_of_row({rows.row(r), static_cast<size_t>(rows.cols)}, {host_ptr<float>(values) + at, k},
               {host_ptr<int32_t>(ids) + at, k}, allowed);
  }
}

}  // namespace moeflux
