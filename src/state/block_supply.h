// Memory for the blocks that one call of a SequenceState needs, taken together. A GPU takes some
// 15 us for each allocation and 3 us for each copy, and a step of a hybrid model with a new
// sequence needs memory for a hundred tensors.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "backend/encoder.h"
#include "base/ids.h"
#include "state/state_memory.h"

namespace moeflux {

/// One page of a tensor, or all of one of a fixed size.
struct StateBlock {
  std::shared_ptr<Buffer> buffer;
  uint64_t offset_bytes = 0;
  uint64_t size_bytes = 0;
  bool is_far = false;  // see StateMemory::Blocks
};

/// Lives for one call, whose encoder does the copies. Thread-compatible.
class BlockSupply {
 public:
  using BlockPtr = std::shared_ptr<const StateBlock>;

  /// Blocks with the same of all these share an allocation: they come and go together.
  struct Kind {
    size_t part = 0;  // of the device
    StateMemory::Use use = StateMemory::Use::kEveryStep;
    size_t number = 0;       // of the block in its tensor
    bool is_copied = false;  // it is filled from another one, and zeros otherwise
    auto operator<=>(const Kind&) const = default;
  };

  /// Without an encoder memory is not used again, and nothing can be copied.
  BlockSupply(StateMemory& memory, Encoder* encoder) : memory_(memory), encoder_(encoder) {}
  BlockSupply(const BlockSupply&) = delete;
  BlockSupply& operator=(const BlockSupply&) = delete;

  /// Bytes that a block takes of an allocation.
  static uint64_t aligned(uint64_t bytes);
  /// Counts a block that will be taken. The layer's part of the device is kind.part.
  void want(const Kind& kind, LayerId layer, uint64_t bytes);
  /// A block that was wanted, or null where the device's memory has no room for all of its kind:
  /// the caller then finds memory for each.
  BlockPtr take(const Kind& kind, uint64_t bytes);
  /// The same for one block, whether wanted or not, from memory that was given back.
  BlockPtr take_spare(const Kind& kind, LayerId layer, uint64_t bytes);
  /// Records a copy into a block of as many bytes. Neighbours are copied together, by flush() at
  /// the latest.
  void copy(const BlockPtr& to, const BlockPtr& from);
  void flush();

 private:
  struct Pool {
    LayerId layer{};  // of the first block
    uint64_t size_bytes = 0;
    uint64_t taken_bytes = 0;
    size_t blocks = 0;
    bool is_fetched = false;
    std::shared_ptr<Buffer> buffer;
  };

  std::shared_ptr<Buffer> fetch(const Kind& kind, LayerId layer, uint64_t bytes);
  bool clear(const std::shared_ptr<Buffer>& buffer, uint64_t bytes, LayerId layer);

  StateMemory& memory_;
  Encoder* const encoder_;
  std::map<Kind, Pool> pools_;
  StateBlock to_;                 // of the copy at hand
  StateBlock from_;               // likewise, of as many bytes
  std::vector<BlockPtr> copied_;  // its blocks; none: no copy is at hand
};

}  // namespace moeflux
