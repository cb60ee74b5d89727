#include "load/ngram_rows.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "backend/host_buffer.h"
#include "base/check.h"
#include "base/format.h"
#include "base/units.h"
#include "quant/weight.h"

namespace moeflux {
namespace {

/// As much more than a step needs is taken, so that the next ones fit as well.
uint64_t with_room(uint64_t bytes) { return bytes + bytes / 4; }

int num_parts(const QuantFormat& format, int64_t row_dim) {
  const Weight row = lay_out(format, 1, row_dim);
  return static_cast<int>(
      std::ranges::count_if(kPartRoles, [&](PartRole role) { return row.has(role); }));
}

}  // namespace

/// A step's rows of one table.
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

  /// A row of each token and head: its number twice, its floats twice.
  static uint64_t bytes_of_numbers(uint64_t rows, int64_t row_dim) {
    return rows * 2 * (sizeof(int64_t) + static_cast<uint64_t>(row_dim) * sizeof(float));
  }
  uint64_t held_bytes() const {
    return (wanted.capacity() + rows.capacity()) * sizeof(int64_t) +
           (numbers.capacity() + out.capacity()) * sizeof(float) +
           (room == nullptr ? 0 : room->size_bytes());
  }
  void want(std::span<const Text> texts) {
    const NgramHashes& hashes = stored->hashes;
    const auto heads = static_cast<size_t>(hashes.heads());
    size_t count = 0;
    for (const Text& text : texts) count += text.tokens.size() * heads;
    wanted.clear();
    wanted.reserve(count);
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

uint64_t NgramRows::memory_bytes(std::span<const NgramTable> tables, int64_t step_tokens,
                                 int reader_depth) {
  uint64_t bytes = 0;
  uint64_t requests = 0;  // of all tables, which the reader may hold at once
  uint64_t requests_most = 0;
  uint64_t part_most = 0;
  for (const NgramTable& table : tables) {
    const int64_t rows = step_tokens * table.hashes.heads();
    const auto count = static_cast<uint64_t>(rows);
    Weight stored = lay_out(table.format(), rows, table.row_dim);
    bytes += with_room(place_parts(stored, 0, kDirectAlignment)) +
             Table::bytes_of_numbers(count, table.row_dim);
    const uint64_t own = count * static_cast<uint64_t>(num_parts(table.format(), table.row_dim));
    requests += own;
    requests_most = std::max(requests_most, own);
    const Parts<uint64_t> parts = part_bytes(table.format(), 1, table.row_dim);
    for (const PartRole role : kPartRoles) part_most = std::max(part_most, parts[role]);
  }
  if (tables.empty()) return 0;
  const uint64_t landing = round_up(part_most, kDirectAlignment) + kDirectAlignment;
  return bytes + (requests + requests_most) * sizeof(ReadRequest) +
         static_cast<uint64_t>(reader_depth) * landing;
}

uint64_t NgramRows::held_bytes() const {
  uint64_t bytes = requests_.capacity() * sizeof(ReadRequest);
  for (const auto& table : tables_) bytes += table->held_bytes();
  return bytes;
}

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
    MF_ASSIGN_OR_RETURN(table.room, allocate_host_buffer(with_room(bytes)));
  }
  table.arrived = rows.at(*table.room, 0);
  table.status = {};
  requests_.clear();
  requests_.reserve(static_cast<size_t>(count) *
                    static_cast<size_t>(num_parts(stored.format(), stored.row_dim)));
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
  using Clock = std::chrono::steady_clock;
  const Clock::time_point begin = Clock::now();
  while (table.in_flight > 0) collect(reader_->wait());
  stall_us_ += static_cast<uint64_t>(
      std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - begin).count());
  MF_RETURN_IF_ERROR(table.status);
  bytes_read_ += table.arrived.size_bytes();
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
