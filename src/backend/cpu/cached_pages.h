// Pages of keys and values in the terms of the kernels.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/cpu/kernels/kernel_table.h"
#include "backend/ops/select_keys.h"
#include "backend/sequence_rows.h"

namespace moeflux::cpu {

/// Where each page begins, in `storage`; all have the strides of the first.
const uint8_t** page_pointers(std::span<const Tensor> pages, std::vector<const uint8_t*>& storage);
int64_t element_bytes(const Tensor& page);
CachedType cached_type(const Tensor& page);
/// x [n, heads, width] becomes the rows of the n tokens from kv.length on.
void append_to_cache(const KernelTable& kernels, const Tensor& x, std::span<const Tensor> pages,
                     const KvView& kv);
/// The same for keys of candidates; gives the pages with a row a key, in `storage` where candidates
/// are whole.
KvView append_index_keys(const KernelTable& kernels, const Tensor& k, const KvView& kv,
                         const SelectOptions& options, std::vector<Tensor>& storage);

}  // namespace moeflux::cpu
