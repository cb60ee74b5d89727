#include "backend/ops/attention.h"

#include <algorithm>

#include "backend/encoder.h"
#include "base/format.h"
#include "quant/q8_rows.h"

namespace moeflux::ops {
namespace {

int64_t rows_of_all(std::span<const KvRows> sequences) {
  int64_t rows = 0;
  for (const KvRows& s : sequences) rows += s.rows;
  return rows;
}

void check_selection(Conditions& c, const Attention& op) {
  const KeySelection& selected = op.options.selected;
  if (selected.is_null()) return;
  c.holds("selected", selected.ids,
          selected.ids.shape.rank() == 3 && selected.ids.dim(0) == op.q.dim(0) &&
              selected.ids.dtype == DType::kI32 && selected.ids.is_contiguous(),
          "i32 [rows of q, groups, most], contiguous")
      .equal("window with selected keys", op.options.window, 0);
  if (selected.ids.shape.rank() != 3) return;
  c.holds("selected", selected.ids, selected.groups() > 0 && op.k.dim(1) % selected.groups() == 0,
          "groups that divide the heads of k");
}

void check_pooled(Conditions& c, const Attention& op) {
  const PooledKeys& pooled = op.options.pooled;
  if (pooled.is_null()) return;
  c.holds("pooled", op.k.dim(1) == 1 && op.v.is_null(), "one head of keys, which are the values")
      .holds("pooled", op.options.selected.is_null(), "no selected keys beside them")
      .holds("pooled", !op.options.chunked && op.options.window > 0, "a window that is not chunked")
      .is("out with pooled keys", op.out, op.q.shape)
      .is("pooled.keys", pooled.keys, {op.q.dim(0), 1, op.q.dim(2)})
      .holds("pooled.ids", pooled.ids, pooled.ids.is_null() || pooled.ids.is_contiguous(),
             "contiguous")
      .equal("sequences of pooled keys", static_cast<int64_t>(pooled.sequences.size()),
             static_cast<int64_t>(op.sequences.size()));
  for (size_t i = 0; i < std::min(pooled.sequences.size(), op.sequences.size()); ++i) {
    const KvView& own = pooled.sequences[i].kv;
    const KvView& kv = op.sequences[i].kv;
    c.equal("length of pooled keys", own.length, kv.length)
        .holds("pages of pooled keys",
               own.k_pages.front().dtype == kv.k_pages.front().dtype &&
                   own.k_pages.front().dtype != DType::kI8,
               "the type of the tokens' keys, not I8");
  }
}

void check_bias(Conditions& c, const Attention& op) {
  const Tensor& bias = op.options.distance_bias;
  if (bias.is_null()) return;
  c.holds("distance_bias", bias,
          bias.dtype == DType::kF32 && bias.shape.rank() == 3 && bias.dim(0) == op.q.dim(0) &&
              bias.dim(1) == op.q.dim(1) && bias.dim(2) > 0 && bias.is_contiguous(),
          "f32 [rows of q, heads, extent], contiguous")
      .holds("distance_bias", op.options.selected.is_null() && op.options.pooled.is_null(),
             "no selected and no pooled keys beside it");
}

void check_sinks(Conditions& c, const Attention& op) {
  const Tensor& sinks = op.options.sinks;
  if (sinks.is_null()) return;
  if (sinks.shape.rank() != 2) return (void)c.has("sinks", sinks, op.q.dim(1));
  c.has("sinks", sinks, op.q.dim(0) * op.q.dim(1))
      .holds("sinks", op.options.selected.is_null() && op.options.pooled.is_null(),
             "no rows of their own beside selected and pooled keys");
}

/// Pages whose rows have room for x's.
void check_rows(Conditions& c, std::string_view operand, const Tensor& page, const Tensor& x) {
  const int64_t width = x.dim(2);
  const bool is_narrow = page.dtype == DType::kI8;
  c.holds(operand, page,
          page.shape.rank() == 3 && page.dim(1) == x.dim(1) &&
              (is_narrow ? page.dim(2) == q8_rows::row_bytes(width)
                         : page.dim(2) >= width &&
                               (page.dtype == DType::kF32 || page.dtype == DType::kF16)),
          "F32 or F16 of its heads and columns, or I8 of rows of blocks");
}

/// Pages that hold the step's tokens and all that they see. Pages of a sequence without rows may
/// be anything.
void check_pages(Conditions& c, const Attention& op, const KvRows& s) {
  if (s.rows == 0) return;
  const int64_t window = op.options.window;
  const KvView& kv = s.kv;
  const int64_t tokens = static_cast<int64_t>(kv.k_pages.size()) * kv.page_tokens;
  c.holds("pages", !kv.k_pages.empty() && kv.k_pages.size() == kv.v_pages.size(),
          "as many of keys as of values");
  if (kv.k_pages.empty() || kv.v_pages.empty()) return;
  check_rows(c, "pages of keys", kv.k_pages.front(), op.k);
  if (!op.v.is_null()) check_rows(c, "pages of values", kv.v_pages.front(), op.v);
  if (window == 0) {
    c.holds("pages", kv.length + s.rows <= tokens, "room for all tokens of the sequence");
  } else {
    c.holds("pages", std::min(kv.length, window - 1) + s.rows <= tokens,
            "room for the window and the step");
  }
}

}  // namespace

Status Attention::check() const {
  Conditions c(kName);
  c.is_float("q", q).is_float("k", k).equal("extents of q", q.shape.rank(), 3);
  c.equal("extents of k", k.shape.rank(), 3);
  if (q.shape.rank() != 3 || k.shape.rank() != 3) return c.status();
  const int64_t n = q.dim(0);
  const int64_t kv_heads = k.dim(1);
  c.is("k", k, {n, kv_heads, q.dim(2)})
      .holds("k", k, kv_heads > 0 && q.dim(1) % kv_heads == 0, "heads that divide those of q")
      .is_float("out", out)
      .is("out", out, {n, q.dim(1), out.shape.back()});
  if (!v.is_null()) c.is("v", v, {n, kv_heads, out.shape.back()});
  check_sinks(c, *this);
  check_bias(c, *this);
  check_selection(c, *this);
  check_pooled(c, *this);
  c.equal("rows of sequences", rows_of_all(sequences), n);
  for (const KvRows& s : sequences) check_pages(c, *this, s);
  return c.status();
}

Cost Attention::cost() const {
  uint64_t sum = 0;
  for_each_part(*this, [&](const Attention& one) {
    const KeySelection& selected = one.options.selected;
    const PooledKeys& pooled = one.options.pooled;
    const KvRows& s = one.sequences.front();
    const int64_t stored = s.kv.length + s.rows;
    const bool chooses = !selected.is_null() && stored > selected.dense_end();
    int64_t seen = chooses ? std::min(stored, selected.dense_end()) : stored;
    if (!pooled.is_null()) seen = std::min(stored, options.window) + pooled.count_at(stored - 1);
    sum += 2 * product(one.q.num_elements(), seen, 1);
  });
  return {.multiply_adds = sum};
}

std::string Attention::text() const {
  const KeySelection& selected = options.selected;
  const PooledKeys& pooled = options.pooled;
  return formatted("attention {} = {} over {} + {}{}{}{}{}{}", out.shape.to_string(),
                   q.shape.to_string(), k.shape.to_string(), sequences.front().kv.length,
                   options.window > 0
                       ? formatted(" {} {}", options.chunked ? "chunks" : "window", options.window)
                       : "",
                   options.sinks.is_null() ? "" : " sinks",
                   options.distance_bias.is_null()
                       ? ""
                       : formatted(" bias up to {}", options.distance_bias.dim(2)),
                   selected.is_null() ? "" : formatted(" selected {}", selected.dense_end()),
                   pooled.is_null() ? "" : formatted(" and pools of {}", pooled.unit));
}

}  // namespace moeflux::ops
