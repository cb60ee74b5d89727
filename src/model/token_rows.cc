#include "model/token_rows.h"

#include <algorithm>

#include "backend/ops/copy.h"

namespace moeflux {
namespace {

/// Calls visit(rows of x, rows of a page) for pieces that lie in one page.
template <typename Visit>
void for_each_piece(StepBatch& batch, LayerId layer, size_t tensor, const Tensor& x,
                    const Visit& visit) {
  int64_t row = 0;
  for (const KvRows& sequence : batch.key_values(layer, tensor, tensor)) {
    const KvView& kept = sequence.kv;
    for (int64_t done = 0; done < sequence.rows;) {
      const int64_t position = kept.length + done;
      const int64_t first = position % kept.page_tokens;
      const int64_t rows = std::min(kept.page_tokens - first, sequence.rows - done);
      const auto page = static_cast<size_t>(position / kept.page_tokens) % kept.k_pages.size();
      visit(x.slice(0, row, rows), kept.k_pages[page].slice(0, first, rows));
      done += rows;
      row += rows;
    }
  }
}

}  // namespace

void store_rows(Encoder& e, StepBatch& batch, LayerId layer, size_t tensor, Tensor x) {
  for_each_piece(batch, layer, tensor, x, [&](const Tensor& rows, const Tensor& kept) {
    e.run(ops::Copy{kept, rows});
  });
}

void load_rows(Encoder& e, StepBatch& batch, LayerId layer, size_t tensor, Tensor out) {
  for_each_piece(batch, layer, tensor, out, [&](const Tensor& rows, const Tensor& kept) {
    e.run(ops::Copy{rows, kept});
  });
}

}  // namespace moeflux
