#include "state/block_supply.h"

#include <algorithm>
#include <utility>

#include "backend/ops/copy.h"
#include "base/check.h"
#include "base/units.h"

namespace moeflux {
namespace {

// Blocks begin where vectors and lines of caches do.
constexpr uint64_t kAlignment = 256;
// A copy of zeros at a time: as much memory holds nothing else.
constexpr uint64_t kZerosMax = 4 * kMiB;
constexpr uint64_t kCopyMax = 256 * kMiB;

/// Keeps memory that a copy reads or writes until the copy has finished.
template <typename T>
class Kept : public Retained {
 public:
  explicit Kept(T memory) : memory_(std::move(memory)) {}

 private:
  T memory_;
};

template <typename T>
void keep(Encoder& encoder, T memory) {
  encoder.keep_alive(std::make_unique<Kept<T>>(std::move(memory)));
}

// As f32, whatever it holds: what copies move.
Tensor words_of(const StateBlock& block, uint64_t offset, uint64_t bytes) {
  constexpr auto kWord = static_cast<uint64_t>(sizeof(float));
  MF_CHECK(bytes % kWord == 0);
  const auto words = static_cast<int64_t>(bytes / kWord);
  constexpr auto kRow = static_cast<int64_t>(kAlignment / kWord);
  const Shape shape = words % kRow == 0 ? Shape{words / kRow, kRow} : Shape{1, words};
  return Tensor::view(*block.buffer, block.offset_bytes + offset, shape, DType::kF32);
}

}  // namespace

uint64_t BlockSupply::aligned(uint64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

void BlockSupply::want(const Kind& kind, LayerId layer, uint64_t bytes) {
  Pool& pool = pools_[kind];
  if (pool.blocks++ == 0) pool.layer = layer;
  pool.size_bytes += aligned(bytes);
}

BlockSupply::BlockPtr BlockSupply::take(const Kind& kind, uint64_t bytes) {
  const auto found = pools_.find(kind);
  if (found == pools_.end() || found->second.blocks < 2) return nullptr;
  Pool& pool = found->second;
  if (!std::exchange(pool.is_fetched, true)) {
    pool.buffer = fetch(kind, pool.layer, pool.size_bytes);
  }
  if (pool.buffer == nullptr || pool.size_bytes - pool.taken_bytes < bytes) return nullptr;
  const uint64_t offset = std::exchange(pool.taken_bytes, pool.taken_bytes + aligned(bytes));
  return std::make_shared<const StateBlock>(StateBlock{pool.buffer, offset, bytes});
}

BlockSupply::BlockPtr BlockSupply::take_spare(const Kind& kind, LayerId layer, uint64_t bytes) {
  if (encoder_ == nullptr) return nullptr;
  std::shared_ptr<Buffer> spare = memory_.take_spare(bytes, kind.use, layer);
  if (spare == nullptr || (!kind.is_copied && !clear(spare, bytes, layer))) return nullptr;
  return std::make_shared<const StateBlock>(StateBlock{std::move(spare), 0, bytes});
}

std::shared_ptr<Buffer> BlockSupply::fetch(const Kind& kind, LayerId layer, uint64_t bytes) {
  if (const BlockPtr spare = take_spare(kind, layer, bytes)) return spare->buffer;
  return memory_.take_near(bytes, kind.use, layer);
}

// False where there is no room for zeros.
bool BlockSupply::clear(const std::shared_ptr<Buffer>& buffer, uint64_t bytes, LayerId layer) {
  const uint64_t piece = std::min(bytes, kZerosMax);
  const std::shared_ptr<Buffer> zeros = memory_.zeros(piece, layer);
  if (zeros == nullptr) return false;
  const StateBlock whole{buffer, 0, bytes};
  const StateBlock none{zeros, 0, piece};
  for (uint64_t at = 0; at < bytes; at += piece) {
    const uint64_t count = std::min(piece, bytes - at);
    encoder_->run(ops::Copy{words_of(whole, at, count), words_of(none, 0, count)});
  }
  keep(*encoder_, buffer);
  keep(*encoder_, zeros);
  return true;
}

void BlockSupply::copy(const BlockPtr& to, const BlockPtr& from) {
  const auto follows = [](const StateBlock& before, const StateBlock& next) {
    return before.buffer == next.buffer &&
           before.offset_bytes + aligned(before.size_bytes) == next.offset_bytes;
  };
  const uint64_t bytes = aligned(to_.size_bytes) + to->size_bytes;
  const bool is_neighbour = !copied_.empty() && follows(to_, *to) && follows(from_, *from);
  if (is_neighbour && bytes <= kCopyMax) {
    to_.size_bytes = from_.size_bytes = bytes;
  } else {
    flush();
    to_ = *to;
    from_ = *from;
  }
  copied_.push_back(from);
}

void BlockSupply::flush() {
  if (copied_.empty()) return;
  const uint64_t bytes = to_.size_bytes;
  encoder_->run(ops::Copy{words_of(to_, 0, bytes), words_of(from_, 0, bytes)});
  keep(*encoder_, std::exchange(copied_, {}));
  keep(*encoder_, std::move(to_.buffer));
}

}  // namespace moeflux
