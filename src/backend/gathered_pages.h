// Scratch for the keys and values that one token attends to, in the order of a selection, as a page
// of a cache that holds nothing else.
#pragma once

#include "backend/encoder.h"
#include "backend/ops/attention.h"
#include "backend/sequence_rows.h"
#include "base/units.h"

namespace moeflux {

struct GatheredPages {
  Tensor keys;    // [tokens, kv_heads, bytes or elements of a row]
  Tensor values;  // the same, or a view of the keys
  int64_t tokens = 0;
};

/// Laid out as the pages of kv are; values of their own unless the pages of values are views of
/// those of keys.
inline GatheredPages take_gathered_pages(Encoder& encoder, const KeySelection& selected,
                                         const KvView& kv, bool has_values) {
  // Whole tiles of every kernel.
  constexpr uint64_t kTokens = 256;
  const auto tokens =
      static_cast<int64_t>(round_up(static_cast<uint64_t>(selected.dense_end()), kTokens));
  const Tensor& k = kv.k_pages.front();
  const Tensor& v = kv.v_pages.front();
  GatheredPages pages;
  pages.tokens = tokens;
  pages.keys = encoder.scratch({tokens, k.dim(1), k.dim(2)}, k.dtype);
  pages.values = has_values ? encoder.scratch({tokens, v.dim(1), v.dim(2)}, v.dtype)
                            : pages.keys.slice(2, 0, v.dim(2));
  return pages;
}

}  // namespace moeflux
