#include "backend/host_top.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <vector>

#include "backend/ops.h"
#include "base/check.h"

namespace moeflux {

void top_of_row(std::span<const float> row, std::span<float> values, std::span<int32_t> ids) {
  MF_CHECK(values.size() == ids.size() && values.size() <= row.size());
  // Infinity for what is no number, so that any two values compare.
  const auto rank_of = [&](int32_t id) {
    const float value = row[static_cast<size_t>(id)];
    return value == value ? value : std::numeric_limits<float>::infinity();
  };
  std::vector<int32_t> order(row.size());
  std::iota(order.begin(), order.end(), 0);
  const auto middle = order.begin() + static_cast<std::ptrdiff_t>(ids.size());
  std::partial_sort(order.begin(), middle, order.end(), [&](int32_t a, int32_t b) {
    return rank_of(a) != rank_of(b) ? rank_of(a) > rank_of(b) : a < b;
  });
  std::copy(order.begin(), middle, ids.begin());
  for (size_t i = 0; i < ids.size(); ++i) values[i] = row[static_cast<size_t>(ids[i])];
}

void host_top_rows(Tensor values, Tensor ids, Tensor x) {
  MF_CHECK(values.shape == ids.shape && values.is_contiguous() && ids.is_contiguous() &&
           values.shape.back() <= std::min(kTopRowsMax, x.shape.back()));
  const RowsView rows(x);
  const auto k = static_cast<size_t>(values.shape.back());
  for (int64_t r = 0; r < rows.rows; ++r) {
    const size_t at = static_cast<size_t>(r) * k;
    top_of_row({rows.row(r), static_cast<size_t>(rows.cols)}, {host_ptr<float>(values) + at, k},
               {host_ptr<int32_t>(ids) + at, k});
  }
}

}  // namespace moeflux
