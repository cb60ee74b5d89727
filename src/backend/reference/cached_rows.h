// Rows in the pages of keys and values, as the reference reads and writes them.
#pragma once

#include <cstdint>
#include <span>

#include "backend/sequence_rows.h"

namespace moeflux::reference {

/// The first elements of a token's cached row as floats, in `space` unless they are floats where
/// they lie.
const float* read_cached(const KvView& kv, std::span<const Tensor> pages, int64_t position,
                         int64_t head, std::span<float> space);

/// x [n, heads, width] becomes the rows of the n tokens from kv.length on.
void append_to_cache(const KvView& kv, std::span<const Tensor> pages, const Tensor& x);

}  // namespace moeflux::reference
