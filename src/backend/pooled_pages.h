// The keys of whole candidates in a cache: each lies in the rows of its tokens, which are `dim /
// unit` numbers each, so that pages, snapshots and prefixes of tokens hold them as they are.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "backend/sequence_rows.h"
#include "base/check.h"

namespace moeflux {

/// The pages of `kv` with a row a key, in `storage`. Its length is that of whole keys.
inline KvView pooled_view(const KvView& kv, int64_t unit, int64_t dim,
                          std::vector<Tensor>& storage) {
  MF_CHECK(kv.page_tokens % unit == 0);
  storage.clear();
  for (const Tensor& page : kv.k_pages) {
    MF_CHECK(page.is_contiguous() && page.dim(1) == 1 && page.dim(2) * unit == dim);
    storage.push_back(page.reshape({page.dim(0) / unit, 1, dim}));
  }
  return {.k_pages = storage,
          .v_pages = storage,
          .page_tokens = kv.page_tokens / unit,
          .length = kv.length / unit};
}

/// Calls append(rows, key) with the rows of k [n, 1, dim], of tokens from `position` on, that are
/// keys so far, and the first one's number: those of keys that become whole, then that of the one
/// that does not.
template <typename Append>
void for_each_pooled_key(const Tensor& k, int64_t position, int64_t unit, const Append& append) {
  const int64_t n = k.dim(0);
  const int64_t first = unit - 1 - position % unit;
  const int64_t whole = std::max<int64_t>(0, (n - first + unit - 1) / unit);
  if (whole > 0) {
    Tensor rows = k.slice(0, first, 1);
    rows.shape = Shape{whole, k.dim(1), k.dim(2)};
    rows.strides[0] = k.strides[0] * unit;
    append(rows, position / unit);
  }
  if (n > 0 && (position + n) % unit != 0) append(k.slice(0, n - 1, 1), (position + n) / unit);
}

}  // namespace moeflux
