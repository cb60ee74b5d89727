// NgramRows: the rows of n-gram tables that a step's tokens have, read from the drive while the
// layers before them compute. Nothing is kept from step to step.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "backend/device.h"
#include "base/ids.h"
#include "base/result.h"
#include "checkpoint/tensor_index.h"
#include "io/async_reader.h"
#include "model/row_lookup.h"
#include "model/weights/ngram_table.h"

namespace moeflux {

/// Thread-compatible.
class NgramRows : public RowLookup {
 public:
  /// References must outlive the rows; the reader is theirs alone.
  NgramRows(const TensorIndex& index, std::span<const NgramTable> tables,
            std::unique_ptr<AsyncReader> reader);
  ~NgramRows() override;

  /// Bytes of the host's memory that steps of so many tokens come to hold, whatever the tokens:
  /// rows as they are stored and as numbers, requests, and where unaligned reads land.
  static uint64_t memory_bytes(std::span<const NgramTable> tables, int64_t step_tokens,
                               int reader_depth);
  /// The part of it that is held now, without what the reader has.
  uint64_t held_bytes() const;

  /// Bytes of rows that steps were given, and time that they waited for them.
  uint64_t bytes_read() const { return bytes_read_; }
  uint64_t stall_us() const { return stall_us_; }

  /// Consecutive tokens of a step, which follow `past`.
  struct Text {
    std::span<const TokenId> past;
    std::span<const TokenId> tokens;
  };
  /// Asks for the rows of a step's tokens, each once. Reads of a step before that was given up end
  /// first. Fails with kResourceExhausted.
  Status begin_step(std::span<const Text> texts);

  Status write_rows(LayerId layer, Encoder& encoder, Tensor to) override;

 private:
  struct Table;
  Status request(Table& table, uint64_t tag);
  void collect(std::span<const ReadCompletion> completions);

  const TensorIndex& index_;
  std::vector<std::unique_ptr<Table>> tables_;
  std::vector<ReadRequest> requests_;
  uint64_t bytes_read_ = 0;
  uint64_t stall_us_ = 0;
  std::unique_ptr<AsyncReader> reader_;  // goes first: it writes to the tables' memory
};

}  // namespace moeflux
