#include "backend/gpu/launch/kv_tables.h"

#include <algorithm>
#include <vector>

#include "backend/gpu/kernels/attention/params.h"
#include "backend/gpu/launch/plan_building.h"

namespace moeflux::gpu {
namespace {

uint64_t address_of(Recorder& recorder, const Binding& table) {
  return recorder.platform().device_address(*table.buffer) + table.offset_bytes;
}

}  // namespace

size_t table_bytes(std::span<const KvRows> sequences) {
  size_t words = sequences.size() * (1 + kSequenceWords);
  for (const KvRows& s : sequences) words += s.kv.k_pages.size() + s.kv.v_pages.size() + 4;
  return words * sizeof(u64) + 4 * DeviceTables::kAlignment;
}

bool place_tables(Recorder& recorder, const KvView& kv, KvTables& tables) {
  const KvRows one{1, kv};
  if (!recorder.make_room(table_bytes({&one, 1})) ||
      !recorder.place_addresses(kv.k_pages, tables.keys)) {
    return false;
  }
  tables.values = tables.keys;
  return kv.v_pages.empty() || recorder.place_addresses(kv.v_pages, tables.values);
}

// Pages stay where they are for many steps, and all layers have the same lengths: mostly, a step
// writes these alone.
bool place_tables(Recorder& recorder, std::span<const KvRows> sequences, KvTables& tables) {
  if (sequences.size() == 1) return place_tables(recorder, sequences.front().kv, tables);
  if (!recorder.make_room(table_bytes(sequences))) return false;
  std::vector<u64>& words = recorder.table_words();
  words.clear();
  for (const KvRows& s : sequences) {
    KvTables own;
    if (!place_tables(recorder, s.kv, own)) return false;
    words.insert(words.end(), {address_of(recorder, own.keys), address_of(recorder, own.values),
                               s.kv.k_pages.size()});
  }
  if (!recorder.place_table(std::as_bytes(std::span(words)), tables.keys)) return false;
  tables.values = tables.keys;
  words.clear();
  for (const KvRows& s : sequences) words.push_back(static_cast<u64>(s.kv.length));
  Binding lengths;
  if (!recorder.place_table(std::as_bytes(std::span(words)), lengths)) return false;
  tables.lengths = address_of(recorder, lengths);
  tables.sequences = sequences;
  return true;
}

bool have_wide_pages(const KvTables& tables, const KvView& kv,
                     std::span<const Tensor> KvView::*pages) {
  const auto begins_wide = [](const Tensor& page) { return page.offset_bytes % 16 == 0; };
  const auto begin_wide = [&](const KvRows& s) {
    return std::all_of((s.kv.*pages).begin(), (s.kv.*pages).end(), begins_wide);
  };
  return std::all_of((kv.*pages).begin(), (kv.*pages).end(), is_wide) &&
         std::all_of(tables.sequences.begin(), tables.sequences.end(), begin_wide);
}

bool have_wide_rows(const KvTables& tables, const KvView& kv,
                    std::span<const Tensor> KvView::*pages) {
  const Tensor& page = (kv.*pages).front();
  return page.dim(2) % wide_elements(page.dtype) == 0 && have_wide_pages(tables, kv, pages);
}

bool lie_alike(std::span<const KvRows> sequences) {
  const KvView& first = sequences.front().kv;
  const auto is_like = [](const Tensor& a, const Tensor& b) {
    return a.dtype == b.dtype && a.shape == b.shape && a.strides == b.strides;
  };
  return std::all_of(sequences.begin(), sequences.end(), [&](const KvRows& s) {
    return s.kv.page_tokens == first.page_tokens &&
           is_like(s.kv.k_pages.front(), first.k_pages.front()) &&
           s.kv.v_pages.empty() == first.v_pages.empty() &&
           (first.v_pages.empty() || is_like(s.kv.v_pages.front(), first.v_pages.front()));
  });
}

}  // namespace moeflux::gpu
