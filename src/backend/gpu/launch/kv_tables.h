// Where kernels find the pages of keys and values: of one sequence, or, where a step has a token of
// each of several, of all of them.
#pragma once

#include <cstdint>
#include <span>

#include "backend/gpu/launch/recorder.h"
#include "backend/sequence_rows.h"

namespace moeflux::gpu {

struct KvTables {
  Binding keys;          // addresses of pages; of several sequences, kSequenceWords for each
  Binding values;        // of one sequence
  uint64_t lengths = 0;  // address of the lengths of several sequences; 0: one
  std::span<const KvRows> sequences = {};  // the several

  bool is_of_one() const { return lengths == 0; }
};

/// False if the recorder fails. Keys that nobody has values for may be without pages of these.
bool place_tables(Recorder& recorder, const KvView& kv, KvTables& tables);
/// The same of several sequences with a token each, whose pages lie alike, or of one.
bool place_tables(Recorder& recorder, std::span<const KvRows> sequences, KvTables& tables);
/// The most bytes that tables of these, together or of one alone, take.
size_t table_bytes(std::span<const KvRows> sequences);
/// Whether rows of all pages begin on 16-byte boundaries: of those of `kv`, the view of the first
/// sequence, and of those of the several, which lie alike.
bool have_wide_pages(const KvTables& tables, const KvView& kv,
                     std::span<const Tensor> KvView::*pages);
/// The same, and rows of heads are multiples of 16 bytes.
bool have_wide_rows(const KvTables& tables, const KvView& kv,
                    std::span<const Tensor> KvView::*pages);
/// Whether pages of all have one type, one size and one layout.
bool lie_alike(std::span<const KvRows> sequences);

}  // namespace moeflux::gpu
