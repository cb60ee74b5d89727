// Bytes between host and device: all of them, whatever their number and place, in the order of the
// calls, few and many of them taking different ways.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "base/format.h"
#include "tests/conformance/support.h"

namespace moeflux::conformance {
namespace {

using Bytes = std::vector<std::byte>;

Bytes random_bytes(Random& random, size_t count) {
  Bytes bytes(count);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random.next() >> 56);
  return bytes;
}

/// Memory of a device, and what it should hold.
class Mirror {
 public:
  Mirror(Session& s, size_t count)
      : encoder_(s.encoder()), all_(s.zeros({size(count)}, DType::kI8)), expected_(count) {}

  void write(size_t offset, const Bytes& bytes) {
    std::copy(bytes.begin(), bytes.end(), expected_.begin() + static_cast<ptrdiff_t>(offset));
    encoder_.write(part(offset, bytes.size()), bytes);
  }
  void expect(const std::string& what, size_t offset, size_t count) {
    Bytes got(count);
    const Status done = encoder_.read(got, part(offset, count));
    ASSERT_TRUE(done.ok()) << what << ": " << done.error().to_string();
    const auto begin = expected_.begin() + static_cast<ptrdiff_t>(offset);
    EXPECT_TRUE(std::equal(got.begin(), got.end(), begin)) << what;
  }
  void expect_all(const std::string& what) { expect(what, 0, expected_.size()); }

 private:
  static int64_t size(size_t count) { return static_cast<int64_t>(count); }
  Tensor part(size_t offset, size_t count) const {
    return Tensor::view(*all_.buffer, offset, {size(count)}, DType::kI8);
  }

  Encoder& encoder_;
  Tensor all_;
  Bytes expected_;
};

TEST(Transfer, BytesArriveInAnyNumberAndAtAnyPlace) {
  for (const NamedDevice& device : devices()) {
    Random random(91);
    Session s(*device.device);
    Mirror memory(s, 70000);
    for (const size_t count : {0,    1,    2,    3,    4,    5,    31,   255,  256,   257,
                               1022, 1023, 1024, 1025, 4094, 4095, 4096, 4097, 16384, 65537}) {
      for (const size_t offset : {0, 1, 2, 3, 8, 4099}) {
        const std::string what = formatted("{}: {} bytes at {}", device.name, count, offset);
        memory.write(offset, random_bytes(random, count));
        memory.expect(what, offset, count);
        memory.expect_all(what);
      }
    }
  }
}

TEST(Transfer, OfOverlappingWritesTheLaterOnesStay) {
  constexpr size_t kBytes = 12000;
  for (const NamedDevice& device : devices()) {
    Random random(92);
    Session s(*device.device);
    Mirror memory(s, kBytes);
    for (int round = 0; round < 20; ++round) {
      for (int i = 0; i < 12; ++i) {
        const size_t count = random.next() % (i % 3 == 0 ? 6000 : 1200);
        memory.write(random.next() % (kBytes - count), random_bytes(random, count));
      }
      const size_t few = random.next() % 4200;
      const std::string what = formatted("{}, round {}", device.name, round);
      memory.expect(what, random.next() % (kBytes - few), few);
      memory.expect_all(what);
    }
  }
}

/// Writes a row of `cols` numbers before each of some launches that copy it elsewhere; nothing
/// waits before the last. The same launches come every time, so that a device may replay them.
void expect_order(const NamedDevice& device, int64_t cols, int64_t launches) {
  constexpr int64_t kCopied = 3;
  Random random(93);
  Session s(*device.device);
  Encoder& e = s.encoder();
  const Tensor x = s.zeros({1, cols});
  const Tensor out = s.zeros({kCopied, launches, cols});
  for (int round = 0; round < 4; ++round) {
    std::vector<float> expected;
    for (int64_t row = 0; row < kCopied; ++row) {
      const std::vector<float> values = random.floats(cols, -1.0f, 1.0f);
      e.write(x, std::as_bytes(std::span(values)));
      for (int64_t i = 0; i < launches; ++i) {
        e.run(ops::Copy{out.slice(0, row, 1).slice(1, i, 1).reshape({1, cols}), x});
        expected.insert(expected.end(), values.begin(), values.end());
      }
    }
    // The last number arrives no earlier than the others.
    std::vector<float> got(expected.size());
    const Tensor last =
        out.slice(0, kCopied - 1, 1).slice(1, launches - 1, 1).slice(2, cols - 1, 1);
    ASSERT_TRUE(e.read(std::as_writable_bytes(std::span(got).first(1)), last.reshape({1})).ok());
    EXPECT_EQ(got.front(), expected.back()) << device.name << ", round " << round;
    ASSERT_TRUE(e.read(std::as_writable_bytes(std::span(got)), out).ok());
    expect_same_bits(formatted("{}: {} launches of {}", device.name, launches, cols), expected,
                     got);
  }
}

TEST(Transfer, LaunchesSeeWhatWasWrittenBeforeThemAndNothingLater) {
  for (const NamedDevice& device : devices()) {
    for (const int64_t cols : {1, 7, 256, 257, 5000}) {
      for (const int64_t launches : {1, 2, 9, 40}) {
        if (device.is_slow && cols * launches > 10000) continue;
        expect_order(device, cols, launches);
      }
    }
  }
}

TEST(Transfer, AReadWaitsForAllThatWasRecorded) {
  constexpr int64_t kCols = 3000;
  constexpr int kLaunches = 200;
  for (const NamedDevice& device : devices()) {
    Session s(*device.device);
    Encoder& e = s.encoder();
    const int launches = device.is_slow ? 20 : kLaunches;
    const std::vector<float> ones(kCols, 1.0f);
    const Tensor step = s.floats({1, kCols}, ones);
    const Tensor x = s.zeros({1, kCols});
    for (int round = 1; round <= 5; ++round) {
      for (int i = 0; i < launches; ++i) e.run(ops::Add{x, x, step});
      EXPECT_TRUE(e.read({}, Tensor::view(*x.buffer, 0, {0}, DType::kF32)).ok());
      for (int i = 0; i < launches; ++i) e.run(ops::Add{x, x, step});
      float got = 0.0f;
      ASSERT_TRUE(e.read(std::as_writable_bytes(std::span(&got, 1)),
                         Tensor::view(*x.buffer, 4 * (kCols - 1), {1}, DType::kF32))
                      .ok());
      EXPECT_EQ(got, static_cast<float>(2 * round * launches)) << device.name;
    }
  }
}

}  // namespace
}  // namespace moeflux::conformance
