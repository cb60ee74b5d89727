#include "backend/reference/cached_rows.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "quant/q8_rows.h"

namespace moeflux::reference {
namespace {

// The cached row of a token, wherever its page is.
std::byte* cached(const KvView& kv, std::span<const Tensor> pages, int64_t position, int64_t head) {
  const auto page = static_cast<size_t>(position / kv.page_tokens) % pages.size();
  const Tensor& tensor = pages[page];
  const int64_t at = position % kv.page_tokens * tensor.strides[0] + head * tensor.strides[1];
  return host_ptr<std::byte>(tensor) + at * dtype_bits(tensor.dtype) / 8;
}

}  // namespace

const float* read_cached(const KvView& kv, std::span<const Tensor> pages, int64_t position,
                         int64_t head, std::span<float> space) {
  const std::byte* row = cached(kv, pages, position, head);
  const DType dtype = pages.front().dtype;
  if (dtype == DType::kF32) return reinterpret_cast<const float*>(row);
  const int64_t width = pages.front().dim(2);
  const int64_t cols = dtype == DType::kI8 ? q8_rows::cols_of(width) : width;
  // The room is for keys or values, whichever is wider: a row may be shorter.
  space = space.first(std::min(space.size(), static_cast<size_t>(cols)));
  if (dtype == DType::kI8) {
    q8_rows::decode(space, row, cols);
    return space.data();
  }
  for (size_t i = 0; i < space.size(); ++i) {
    space[i] = load_float(row, static_cast<int64_t>(i), dtype);
  }
  return space.data();
}

void append_to_cache(const KvView& kv, std::span<const Tensor> pages, const Tensor& x) {
  const RowsView rows(x);
  const int64_t heads = x.dim(1);
  const DType dtype = pages.front().dtype;
  MF_CHECK(dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kI8);
  for (int64_t r = 0; r < rows.rows; ++r) {
    std::byte* to = cached(kv, pages, kv.length + r / heads, r % heads);
    if (dtype == DType::kI8) {
      const auto row_bytes = static_cast<size_t>(pages.front().dim(2));
      q8_rows::encode({to, row_bytes}, {rows.row(r), static_cast<size_t>(rows.cols)});
      continue;
    }
    for (int64_t i = 0; i < rows.cols; ++i) {
      const float value = rows.row(r)[i];
      if (dtype == DType::kF16) {
        const F16 half = to_f16(value);
        std::memcpy(to + 2 * i, &half, sizeof(half));
      } else {
        std::memcpy(to + 4 * i, &value, sizeof(value));
      }
    }
  }
}

}  // namespace moeflux::reference
