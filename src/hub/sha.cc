#include "hub/sha.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace moeflux::hub {
namespace {

constexpr std::array<uint32_t, 8> kStart256 = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                               0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
constexpr std::array<uint32_t, 5> kStart1 = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476,
                                             0xc3d2e1f0};
constexpr std::array<uint32_t, 64> kRound256 = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

uint32_t big_endian(const std::byte* bytes) {
  uint32_t word = 0;
  for (size_t i = 0; i < 4; ++i) word = word << 8 | std::to_integer<uint32_t>(bytes[i]);
  return word;
}

void add_block(std::array<uint32_t, 8>& state, const std::byte* block) {
  std::array<uint32_t, 64> w;
  for (size_t i = 0; i < 16; ++i) w[i] = big_endian(block + 4 * i);
  for (size_t i = 16; i < 64; ++i) {
    const uint32_t s0 = std::rotr(w[i - 15], 7) ^ std::rotr(w[i - 15], 18) ^ (w[i - 15] >> 3);
    const uint32_t s1 = std::rotr(w[i - 2], 17) ^ std::rotr(w[i - 2], 19) ^ (w[i - 2] >> 10);
    w[i] = w[i - 16] + s0 + w[i - 7] + s1;
  }
  auto [a, b, c, d, e, f, g, h] = state;
  for (size_t i = 0; i < 64; ++i) {
    const uint32_t s1 = std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25);
    const uint32_t first = h + s1 + ((e & f) ^ (~e & g)) + kRound256[i] + w[i];
    const uint32_t s0 = std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22);
    const uint32_t second = s0 + ((a & b) ^ (a & c) ^ (b & c));
    h = g;
    g = f;
    f = e;
    e = d + first;
    d = c;
    c = b;
    b = a;
    a = first + second;
  }
  const std::array<uint32_t, 8> added = {a, b, c, d, e, f, g, h};
  for (size_t i = 0; i < 8; ++i) state[i] += added[i];
}

void add_block(std::array<uint32_t, 5>& state, const std::byte* block) {
  std::array<uint32_t, 80> w;
  for (size_t i = 0; i < 16; ++i) w[i] = big_endian(block + 4 * i);
  for (size_t i = 16; i < 80; ++i) {
    w[i] = std::rotl(w[i - 3] ^ w[i - 8] ^ w[i - 14] ^ w[i - 16], 1);
  }
  auto [a, b, c, d, e] = state;
  for (size_t i = 0; i < 80; ++i) {
    uint32_t mixed = b ^ c ^ d;
    uint32_t constant = i < 40 ? 0x6ed9eba1 : 0xca62c1d6;
    if (i < 20) {
      mixed = (b & c) | (~b & d);
      constant = 0x5a827999;
    } else if (i >= 40 && i < 60) {
      mixed = (b & c) | (b & d) | (c & d);
      constant = 0x8f1bbcdc;
    }
    const uint32_t next = std::rotl(a, 5) + mixed + e + constant + w[i];
    e = d;
    d = c;
    c = std::rotl(b, 30);
    b = a;
    a = next;
  }
  const std::array<uint32_t, 5> added = {a, b, c, d, e};
  for (size_t i = 0; i < 5; ++i) state[i] += added[i];
}

template <size_t Words>
constexpr std::array<uint32_t, Words> start() {
  if constexpr (Words == 8) {
    return kStart256;
  } else {
    return kStart1;
  }
}

}  // namespace

template <size_t Words>
Sha<Words>::Sha() : state_(start<Words>()) {}

template <size_t Words>
void Sha<Words>::take_block(const std::byte* block) {
  add_block(state_, block);
}

template <size_t Words>
void Sha<Words>::add(std::span<const std::byte> bytes) {
  if (bytes.empty()) return;
  const size_t begun = size_bytes_ % rest_.size();
  size_bytes_ += bytes.size();
  if (begun > 0) {
    const size_t count = std::min(bytes.size(), rest_.size() - begun);
    std::memcpy(rest_.data() + begun, bytes.data(), count);
    bytes = bytes.subspan(count);
    if (begun + count < rest_.size()) return;
    take_block(rest_.data());
  }
  for (; bytes.size() >= rest_.size(); bytes = bytes.subspan(rest_.size())) {
    take_block(bytes.data());
  }
  if (!bytes.empty()) std::memcpy(rest_.data(), bytes.data(), bytes.size());
}

template <size_t Words>
std::string Sha<Words>::finish() {
  const uint64_t bits = 8 * size_bytes_;
  std::array<std::byte, 72> tail{};
  tail[0] = std::byte{0x80};
  const size_t zeros = (119 - size_bytes_ % 64) % 64;
  for (size_t i = 0; i < 8; ++i) {
    tail[1 + zeros + i] = static_cast<std::byte>(bits >> (56 - 8 * i) & 0xff);
  }
  add(std::span<const std::byte>(tail).first(1 + zeros + 8));
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const uint32_t word : state_) {
    for (int shift = 28; shift >= 0; shift -= 4) text += kDigits[word >> shift & 15];
  }
  return text;
}

template class Sha<8>;
template class Sha<5>;

}  // namespace moeflux::hub
