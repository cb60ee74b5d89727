#include "io/aligned_read.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>

#include "base/format.h"
#include "base/units.h"

namespace moeflux {
namespace {

// In a row, without a byte: far beyond what signals and full queues cause.
constexpr int kRetriesMax = 10000;

}  // namespace

std::byte* BounceBuffer::reserve(size_t bytes) {
  if (bytes > size_) {
    size_ = 0;
    bytes_.reset();
    bytes_.reset(new (std::align_val_t{kDirectAlignment}) std::byte[bytes]);
    size_ = bytes;
  }
  return bytes_.get();
}

AlignedRead::AlignedRead(const ReadChunk& chunk, size_t alignment, BounceBuffer& bounce)
    : chunk_(chunk), alignment_(alignment) {
  const size_t head = static_cast<size_t>(chunk.offset % alignment);
  begin_ = chunk.offset - head;
  needed_ = head + chunk.into.size();
  const size_t end_block = needed_ / alignment * alignment;  // of the last, partial block
  const size_t first_whole = head == 0 ? 0 : alignment;
  const bool congruent = reinterpret_cast<uintptr_t>(chunk.into.data()) % alignment == head;
  if (!congruent || first_whole >= end_block) {
    const size_t widened = round_up(needed_, alignment);
    bounce_ = bounce.reserve(widened);
    head_bytes_ = chunk.into.size();
    add_piece(bounce_, widened);
    return;
  }
  const size_t tail = needed_ - end_block;
  if (head != 0 || tail != 0) bounce_ = bounce.reserve(2 * alignment);
  if (head != 0) {
    head_bytes_ = alignment - head;
    add_piece(bounce_, alignment);
  }
  add_piece(chunk.into.data() + head_bytes_, end_block - first_whole);
  if (tail != 0) {
    tail_bytes_ = tail;
    tail_at_ = alignment;
    add_piece(bounce_ + alignment, alignment);
  }
}

void AlignedRead::add_piece(std::byte* data, size_t size) { pieces_[num_pieces_++] = {data, size}; }

void AlignedRead::drop_front(size_t bytes) {
  while (bytes > 0) {
    iovec& piece = pieces_[first_piece_];
    const size_t dropped = std::min(bytes, piece.iov_len);
    piece.iov_base = static_cast<std::byte*>(piece.iov_base) + dropped;
    piece.iov_len -= dropped;
    bytes -= dropped;
    if (piece.iov_len == 0) ++first_piece_;
  }
}

void AlignedRead::copy_from_bounce() {
  const size_t skipped = static_cast<size_t>(chunk_.offset - begin_);
  if (head_bytes_ > 0) std::memcpy(chunk_.into.data(), bounce_ + skipped, head_bytes_);
  if (tail_bytes_ > 0) {
    std::memcpy(chunk_.into.data() + (chunk_.into.size() - tail_bytes_), bounce_ + tail_at_,
                tail_bytes_);
  }
}

Result<AlignedRead::Step> AlignedRead::take(int64_t result) {
  if (result == -EINTR || result == -EAGAIN) {
    if (++retries_ <= kRetriesMax) return Step::kAgain;
  }
  if (result < 0) {
    // Some filesystems accept O_DIRECT on opening and refuse it, or our alignment, on reading.
    if (result == -EINVAL && alignment_ > 1) return Step::kPlain;
    // io_uring gives up a read for which the kernel may start no thread.
    if (result == -ECANCELED) return Step::kPlain;
    const size_t skipped = static_cast<size_t>(chunk_.offset - begin_);
    return make_error(ErrorCode::kIo, "{}: reading {} bytes at offset {} failed after {} bytes: {}",
                      chunk_.file->path(), chunk_.into.size(), chunk_.offset,
                      done_ - std::min(done_, skipped),
                      std::system_category().message(static_cast<int>(-result)));
  }
  const size_t reached = done_ + static_cast<size_t>(result);
  if (reached >= needed_) {
    copy_from_bounce();
    return Step::kDone;
  }
  const size_t whole = reached / alignment_ * alignment_;
  if (whole == done_) return Step::kPlain;  // the end of the file, or less than a block at a time
  retries_ = 0;
  drop_front(whole - done_);
  done_ = whole;
  return Step::kAgain;
}

}  // namespace moeflux
