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
#include "model/ngram_table.h"
#include "model/row_lookup.h"

namespace moeflux {

/// Thread-compatible.
class NgramRows : public RowLookup {
 public:
  /// References must outlive the rows; the reader is theirs alone.
  NgramRows(const TensorIndex& index, std::span<const NgramTable> tables,
            std::unique_ptr<AsyncReader> reader);
  ~NgramRows() override;

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
  std::unique_ptr<AsyncReader> reader_;  // goes first: it writes to the tables' memory
};

}  // namespace moeflux
