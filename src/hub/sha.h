// SHA-256, and SHA-1 as git names blobs with it. Sources: FIPS 180-4.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace moeflux::hub {

/// A hash of bytes that come in parts. `Words` is 8 for SHA-256 and 5 for SHA-1.
template <size_t Words>
class Sha {
 public:
  Sha();
  void add(std::span<const std::byte> bytes);
  /// In lower-case hexadecimal digits. Nothing is added afterwards.
  std::string finish();

 private:
  void take_block(const std::byte* block);

  std::array<uint32_t, Words> state_;
  std::array<std::byte, 64> rest_{};
  uint64_t size_bytes_ = 0;
};

using Sha256 = Sha<8>;
using Sha1 = Sha<5>;

}  // namespace moeflux::hub
