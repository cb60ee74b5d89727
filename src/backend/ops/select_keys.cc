#include "backend/ops/select_keys.h"

#include "base/format.h"

namespace moeflux::ops {

Status SelectKeys::check() const {
  Conditions c(kName);
  c.is_float("q", q).is_float("k", k).equal("extents of q", q.shape.rank(), 3);
  c.equal("extents of ids", ids.shape.rank(), 3);
  if (q.shape.rank() != 3 || ids.shape.rank() != 3) return c.status();
  const int64_t n = q.dim(0);
  c.is_packed("ids", ids, {n, ids.dim(1), ids.dim(2)}, DType::kI32)
      .holds("ids", ids, ids.dim(1) > 0 && q.dim(1) % ids.dim(1) == 0,
             "groups that divide the heads of q")
      .is("k", k, {n, 1, q.dim(2)})
      .holds("options.recent", options.unit == 1 || options.whole || options.recent >= 1,
             "at least 1 where a candidate has several tokens")
      .holds("options.recent", options.recent <= ids.dim(2), "at most the candidates chosen")
      .holds("options.recent", !options.whole || options.recent <= 1,
             "at most 1 where candidates are whole");
  if (!head_weights.is_null()) c.is("head_weights", head_weights, {n, q.dim(1)});
  if (!within.is_null()) {
    c.equal("extents of within", within.ids.shape.rank(), 3);
    if (within.ids.shape.rank() != 3) return c.status();
    c.is_packed("within", within.ids, {n, 1, within.most()}, DType::kI32)
        .holds("within", within.ids, !within.whole && within.unit % options.unit == 0,
               "candidates of a multiple of the tokens, the last one among them")
        .holds("within", within.ids,
               (within.most() - 1) * (within.unit / options.unit) + 1 >= ids.dim(2),
               "at least as many candidates as are chosen");
  }
  int64_t rows = 0;
  for (const KvRows& s : sequences) {
    rows += s.rows;
    if (s.rows == 0) continue;
    c.holds("pages of keys",
            !s.kv.k_pages.empty() && (s.kv.k_pages.front().dtype == DType::kF32 ||
                                      s.kv.k_pages.front().dtype == DType::kF16),
            "f32 or f16");
  }
  return c.equal("rows of sequences", rows, n).status();
}

Cost SelectKeys::cost() const {
  uint64_t sum = 0;
  for_each_part(*this, [&](const SelectKeys& one) {
    const KvRows& s = one.sequences.front();
    const int64_t stored = s.kv.length + s.rows;
    if (stored <= options.selection(one.ids).dense_end()) return;
    sum += product(one.q.num_elements(), stored / options.key_tokens(), 1);
  });
  return {.multiply_adds = sum};
}

std::string SelectKeys::text() const {
  return formatted("select_keys {} = {} over {} + {} of {}", ids.shape.to_string(),
                   q.shape.to_string(), k.shape.to_string(), sequences.front().kv.length,
                   options.unit);
}

}  // namespace moeflux::ops
