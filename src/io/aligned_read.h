// AlignedRead: one read of any offset, size and address, turned into what O_DIRECT accepts, and
// continued until all of it has come. Does no I/O: its owner asks the system and reports back.
#pragma once

#include <sys/uio.h>

#include <array>
#include <cstdint>
#include <memory>
#include <new>
#include <span>

#include "base/result.h"
#include "io/read_scheduler.h"

namespace moeflux {

/// Memory aligned for direct reads that grows to the largest size asked for.
class BounceBuffer {
 public:
  /// At least `bytes`; what was there is lost.
  std::byte* reserve(size_t bytes);

 private:
  struct Delete {
    void operator()(std::byte* bytes) const {
      ::operator delete[](bytes, std::align_val_t{kDirectAlignment});
    }
  };
  std::unique_ptr<std::byte[], Delete> bytes_;
  size_t size_ = 0;
};

class AlignedRead {
 public:
  /// Alignment is a power of two; 1 for descriptors that take anything. The bounce buffer is ours
  /// until the read is over. Blocks that lie in the chunk as they lie in memory are read in place,
  /// all others, widened to whole blocks, through the bounce buffer.
  AlignedRead(const ReadChunk& chunk, size_t alignment, BounceBuffer& bounce);

  /// A request to the system: this many bytes at this offset into these pieces.
  uint64_t offset() const { return begin_ + done_; }
  std::span<const iovec> pieces() const {
    return std::span(pieces_).subspan(first_piece_, num_pieces_ - first_piece_);
  }

  enum class Step {
    kDone,   // every byte is in place
    kAgain,  // ask for pieces() at offset()
    kPlain   // the descriptor does not serve this: File::read_at of the whole chunk decides
  };
  /// Takes the system's answer: bytes or -errno. EINTR and EAGAIN are asked again, short reads
  /// continued; other errors are kIo with the path, the offset and how much had come.
  Result<Step> take(int64_t result);

 private:
  void add_piece(std::byte* data, size_t size);
  void drop_front(size_t bytes);
  void copy_from_bounce();

  ReadChunk chunk_;
  size_t alignment_;
  uint64_t begin_;   // chunk_.offset rounded down
  size_t needed_;    // from begin_ to the last byte asked for
  size_t done_ = 0;  // from begin_, whole blocks
  std::byte* bounce_ = nullptr;
  size_t head_bytes_ = 0;  // leading bytes of the chunk that come through the bounce buffer
  size_t tail_bytes_ = 0;  // trailing ones, behind the head's block
  size_t tail_at_ = 0;     // where in the bounce buffer
  std::array<iovec, 3> pieces_{};
  size_t num_pieces_ = 0;
  size_t first_piece_ = 0;
  int retries_ = 0;
};

}  // namespace moeflux
