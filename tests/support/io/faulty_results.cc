#include "tests/support/io/faulty_results.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace moeflux {
namespace {

void spoil_from(std::span<const iovec> into, size_t kept) {
  for (const iovec& piece : into) {
    const size_t skipped = std::min(kept, piece.iov_len);
    kept -= skipped;
    std::memset(static_cast<char*>(piece.iov_base) + skipped, 0xA5, piece.iov_len - skipped);
  }
}

}  // namespace

int64_t FaultyResults::filter(std::span<const iovec> into, int64_t result) {
  double drawn = 0;
  uint64_t length = 0;
  {
    const std::lock_guard lock(mutex_);
    drawn = static_cast<double>(random_() >> 11) * 0x1p-53;
    length = random_();
  }
  int64_t told = result;
  if ((drawn -= options_.eintr_probability) < 0) {
    told = -EINTR;
  } else if ((drawn -= options_.eagain_probability) < 0) {
    told = -EAGAIN;
  } else if ((drawn -= options_.eio_probability) < 0) {
    told = -EIO;
  } else if ((drawn -= options_.short_probability) < 0 && result > 1) {
    told = 1 + static_cast<int64_t>(length % static_cast<uint64_t>(result - 1));
  }
  if (told == result) return result;
  spoil_from(into, told < 0 ? 0 : static_cast<size_t>(told));
  const std::lock_guard lock(mutex_);
  ++falsified_;
  return told;
}

uint64_t FaultyResults::falsified() const {
  const std::lock_guard lock(mutex_);
  return falsified_;
}

}  // namespace moeflux
