#include "engine/ngram_rows.h"

#include <algorithm>
#include <utility>

#include "backend/host_buffer.h"
#include "base/check.h"
#include "base/format.h"
#include "quant/weight.h"

namespace moeflux {

/// What a step has of one table.
struct NgramRows::Table {
  const NgramTable* stored = nullptr;
  std::vector<int64_t> wanted;   // the row of each head of each token
  std::vector<int64_t> rows;     // the same, ascending, each once
  std::unique_ptr<Buffer> room;  // of rows as they are stored
  Weight arrived;                // there
  size_t in_flight = 0;
  Status status;
  std::vector<float> numbers;  // of rows
  std::vector<float> out;

  void want(std::span<const Text> texts) {
    const NgramHashes& hashes = stored->hashes;
    const auto heads = static_cast<size_t>(hashes.heads());
    wanted.clear();
    for (const Text& text : texts) {
      for (size_t i = 0; i < text.tokens.size(); ++i) {
        wanted.resize(wanted.size() + heads);
        hashes.find_rows(text.past, text.tokens, i, std::span(wanted).last(heads));
      }
    }
    rows.assign(wanted.begin(), wanted.end());
    std::ranges::sort(rows);
    rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
  }
};

NgramRows::NgramRows(const TensorIndex& index, std::span<const NgramTable> tables,
                     std::unique_ptr<AsyncReader> reader)
    : index_(index), reader_(std::move(reader)) {
  for (const NgramTable& table : tables) {
    tables_.push_back(std::make_unique<Table>());
    tables_.back()->stored = &table;
  }
}

NgramRows::~NgramRows() = default;

Status NgramRows::begin_step(std::span<const Text> texts) {
  while (reader_->in_flight() > 0) (void)reader_->wait();
  for (size_t i = 0; i < tables_.size(); ++i) {
    tables_[i]->want(texts);
    MF_RETURN_IF_ERROR(request(*tables_[i], i));
  }
  return {};
}

Status NgramRows::request(Table& table, uint64_t tag) {
  const NgramTable& stored = *table.stored;
  const auto count = static_cast<int64_t>(table.rows.size());
  Weight rows = lay_out(stored.format(), count, stored.row_dim);
  const uint64_t bytes = place_parts(rows, 0, kDirectAlignment);
  if (table.room == nullptr || table.room->size_bytes() < bytes) {
    MF_ASSIGN_OR_RETURN(table.room, allocate_host_buffer(bytes + bytes / 4));
  }
  table.arrived = rows.at(*table.room, 0);
  table.status = {};
  requests_.clear();
  const Parts<std::span<std::byte>> parts = rows.bytes_in(table.room->host_data());
  for (const PartRole role : kPartRoles) {
    if (!rows.has(role)) continue;
    const uint64_t row_bytes = parts[role].size() / static_cast<uint64_t>(count);
    for (int64_t i = 0; i < count; ++i) {
      const int64_t row = table.rows[static_cast<size_t>(i)];
      const auto part = static_cast<size_t>(row / stored.part_rows);
      const auto within = static_cast<uint64_t>(row % stored.part_rows);
      const TensorEntry& entry = *stored.parts[part].parts[role].entry;
      requests_.push_back(
          {.file = &index_.file(entry.file),
           .offset = entry.offset_bytes + within * row_bytes,
           .into = parts[role].subspan(static_cast<uint64_t>(i) * row_bytes, row_bytes),
           .tag = tag});
    }
  }
  table.in_flight = requests_.size();
  reader_->submit(requests_);
  return {};
}

void NgramRows::collect(std::span<const ReadCompletion> completions) {
  for (const ReadCompletion& completion : completions) {
    Table& table = *tables_[completion.tag];
    --table.in_flight;
    if (table.status.ok() && !completion.status.ok()) {
      table.status = completion.status.error().with_context(
          formatted("layer {}: rows of n-grams", index(table.stored->layer)));
    }
  }
}

Status NgramRows::write_rows(LayerId layer, Encoder& encoder, Tensor to) {
  const auto found = std::ranges::find_if(
      tables_, [&](const auto& table) { return table->stored->layer == layer; });
  MF_CHECK(found != tables_.end());
  Table& table = **found;
  while (table.in_flight > 0) collect(reader_->wait());
  MF_RETURN_IF_ERROR(table.status);
  const auto dim = static_cast<size_t>(table.stored->row_dim);
  MF_CHECK(static_cast<size_t>(to.num_elements()) == table.wanted.size() * dim);
  table.numbers.resize(table.rows.size() * dim);
  for (size_t i = 0; i < table.rows.size(); ++i) {
    decode_row(table.arrived, static_cast<int64_t>(i),
               std::span(table.numbers).subspan(i * dim, dim));
  }
  table.out.resize(table.wanted.size() * dim);
  for (size_t i = 0; i < table.wanted.size(); ++i) {
    const auto row = std::ranges::lower_bound(table.rows, table.wanted[i]) - table.rows.begin();
    std::copy_n(table.numbers.begin() + row * static_cast<ptrdiff_t>(dim), dim,
                table.out.begin() + static_cast<ptrdiff_t>(i * dim));
  }
  encoder.write(to, std::as_bytes(std::span(table.out)));
  return {};
}

}  // namespace moeflux
