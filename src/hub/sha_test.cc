#include "hub/sha.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>

namespace moeflux::hub {
namespace {

template <typename Hash>
std::string hash_of(std::string_view text, size_t piece) {
  Hash hash;
  for (size_t i = 0; i < text.size(); i += piece) {
    hash.add(std::as_bytes(std::span(text.substr(i, piece))));
  }
  return hash.finish();
}

// Examples of FIPS 180-4.
TEST(Sha, HashesAreThoseOfTheStandard) {
  EXPECT_EQ(hash_of<Sha256>("abc", 3),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(hash_of<Sha256>("", 1),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(hash_of<Sha256>("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 56),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(hash_of<Sha1>("abc", 3), "a9993e364706816aba3e25717850c26c9cd0d89d");
  EXPECT_EQ(hash_of<Sha1>(std::string(1'000'000, 'a'), 4096),
            "34aa973cd4c4daa4f61eeb2bdbad27316534016f");
  EXPECT_EQ(hash_of<Sha256>(std::string(1'000'000, 'a'), 4096),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha, PiecesOfAnySizeGiveTheSameHash) {
  std::string text;
  for (int i = 0; i < 300; ++i) text += static_cast<char>(i * 7);
  for (size_t size : {0, 1, 54, 55, 56, 63, 64, 65, 119, 120, 128, 300}) {
    const std::string_view part = std::string_view(text).substr(0, size);
    for (const size_t piece : {1, 13, 64}) {
      EXPECT_EQ(hash_of<Sha256>(part, piece), hash_of<Sha256>(part, 300)) << size;
      EXPECT_EQ(hash_of<Sha1>(part, piece), hash_of<Sha1>(part, 300)) << size;
    }
  }
}

}  // namespace
}  // namespace moeflux::hub
