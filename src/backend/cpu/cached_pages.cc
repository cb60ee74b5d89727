#include "backend/cpu/cached_pages.h"

#include <cstring>

#include "backend/cpu/kernel_args.h"
#include "backend/cpu/spaces.h"
#include "backend/pooled_pages.h"

namespace moeflux::cpu {

const uint8_t** page_pointers(std::span<const Tensor> pages, std::vector<const uint8_t*>& storage) {
  const uint8_t** pointers = workspace(storage, static_cast<int64_t>(pages.size()));
  for (size_t p = 0; p < pages.size(); ++p) {
    MF_CHECK(pages[p].strides == pages[0].strides && pages[p].dtype == pages[0].dtype);
    pointers[p] = bytes_of(pages[p]);
  }
  return pointers;
}

int64_t element_bytes(const Tensor& page) { return dtype_bits(page.dtype) / 8; }

CachedType cached_type(const Tensor& page) {
  if (page.dtype == DType::kI8) return CachedType::kQ8;
  return page.dtype == DType::kF16 ? CachedType::kF16 : CachedType::kF32;
}

void append_to_cache(const KernelTable& kernels, const Tensor& x, std::span<const Tensor> pages,
                     const KvView& kv) {
  const RowsView rows(x);
  const int64_t heads = x.dim(1);
  const CachedType type = cached_type(pages.front());
  for (int64_t t = 0; t < x.dim(0); ++t) {
    const int64_t position = kv.length + t;
    const Tensor& page = pages[static_cast<size_t>(position / kv.page_tokens) % pages.size()];
    std::byte* to = host_ptr<std::byte>(page) +
                    position % kv.page_tokens * page.strides[0] * element_bytes(page);
    for (int64_t h = 0; h < heads; ++h) {
      std::byte* head = to + h * page.strides[1] * element_bytes(page);
      const float* row = rows.row(t * heads + h);
      if (type == CachedType::kF16) {
        kernels.to_f16(reinterpret_cast<uint8_t*>(head), row, rows.cols);
      } else if (type == CachedType::kQ8) {
        kernels.to_q8(reinterpret_cast<uint8_t*>(head), row, rows.cols);
      } else {
        std::memcpy(head, row, static_cast<size_t>(rows.cols) * sizeof(float));
      }
    }
  }
}

KvView append_index_keys(const KernelTable& kernels, const Tensor& k, const KvView& kv,
                         const SelectOptions& options, std::vector<Tensor>& storage) {
  if (!options.whole) {
    append_to_cache(kernels, k, kv.k_pages, kv);
    return kv;
  }
  KvView keys = pooled_view(kv, options.unit, k.dim(2), storage);
  for_each_pooled_key(k, kv.length, options.unit, [&](const Tensor& rows, int64_t at) {
    keys.length = at;
    append_to_cache(kernels, rows, keys.k_pages, keys);
  });
  return keys;
}

}  // namespace moeflux::cpu
