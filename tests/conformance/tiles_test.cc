// Weights in tiled order with f32 activations, and products that an encoder puts off.
#include <gtest/gtest.h>

#include "base/format.h"
#include "tests/conformance/models.h"
#include "tests/conformance/support.h"

namespace moeflux::conformance {
namespace {

TEST(TiledLinear, MatchesTheReferenceInEveryFormat) {
  Random random(80);
  for (const QuantFormat& format : tiled_formats()) {
    for (const LinearProblem& p :
         {LinearProblem{1, 16, 128}, LinearProblem{2, 32, 384}, LinearProblem{3, 48, 640},
          LinearProblem{4, 16, 1152}, LinearProblem{7, 80, 384}}) {
      check_linear("linear, tiles", random, format, p);
    }
  }
}

TEST(TiledLinear, MatchesTheReferenceAtAnyTokenCount) {
  Random random(81);
  for (const int bits : {4, 8}) {
    const QuantFormat format =
        QuantFormat::affine(bits, 64, DType::kBf16).with_order(WeightOrder::kTiled);
    for (int64_t n = 1; n <= 26; ++n) check_linear("linear, tiles", random, format, {n, 48, 320});
    for (const int64_t n : {64, 65, 130, 515})
      check_linear("linear, tiles", random, format, {n, 32, 192});
  }
}

TEST(TiledLinear, ATokensBitsDoNotDependOnItsCompany) {
  Random random(82);
  for (const QuantFormat& format : tiled_formats()) {
    const EncodedWeight w = random_weight(random, format, 48, 640);
    const std::vector<float> x = random.floats(70 * 640);
    for (const NamedDevice* device : one_device_per_family()) {
      Session s(*device->device);
      const Weight weight = s.weight(w);
      const Tensor in = s.floats({70, 640}, x);
      const Tensor whole = s.zeros({70, 48});
      s.encoder().run(ops::Linear{whole, in, weight});
      for (const Chunks& chunks : {one_by_one(70), Chunks{64, 6}, Chunks{1, 2, 3, 4, 5, 6, 49}}) {
        const Tensor out = s.zeros({70, 48});
        int64_t at = 0;
        for (const int64_t count : chunks) {
          s.encoder().run(ops::Linear{out.slice(0, at, count), in.slice(0, at, count), weight});
          at += count;
        }
        expect_same_bits(
            formatted("{}, {}, {} calls", device->name, format.to_string(), chunks.size()),
            s.read(whole), s.read(out));
      }
    }
  }
}

TEST(TiledLinear, ProductsPutOffTogetherAreThoseOfOneAfterTheOther) {
  Random random(83);
  const QuantFormat four = QuantFormat::affine(4, 64, DType::kBf16).with_order(WeightOrder::kTiled);
  const QuantFormat eight = QuantFormat::affine(8, 32, DType::kF16).with_order(WeightOrder::kTiled);
  const EncodedWeight a = random_weight(random, four, 64, 128);
  const EncodedWeight b = random_weight(random, eight, 128, 64);
  const EncodedWeight c = random_weight(random, four, 48, 128);
  for (const int64_t n : {1, 3, 9}) {
    const std::vector<float> x = random.floats(n * 128);
    for (const NamedDevice* device : one_device_per_family()) {
      const auto run = [&](bool at_once) {
        Session s(*device->device);
        Encoder& e = s.encoder();
        const auto step = [&] {
          if (at_once) return;
          EXPECT_TRUE(e.wait(e.submit()).ok());
        };
        const Tensor in = s.floats({n, 128}, x);
        const Tensor first = s.zeros({n, 64});
        const Tensor chained = s.zeros({n, 128});
        const Tensor last = s.zeros({n, 48});
        e.run(ops::Linear{first, in, s.weight(a)});
        step();
        e.run(ops::Linear{last, in, s.weight(c)});  // independent
        step();
        e.run(ops::Linear{chained, first, s.weight(b)});  // reads what the first one writes
        step();
        e.run(ops::Linear{first, chained, s.weight(a)});  // overwrites what was read
        step();
        e.run(ops::Linear{last, chained, s.weight(c)});  // overwrites a result
        step();
        e.run(ops::Add{first, first, first});
        std::vector<float> all = s.read(first);
        for (const Tensor& more : {chained, last}) {
          const std::vector<float> values = s.read(more);
          all.insert(all.end(), values.begin(), values.end());
        }
        return all;
      };
      expect_same_bits(formatted("{}, {} tokens", device->name, n), run(false), run(true));
    }
  }
}

TEST(TiledLinear, MoreProductsThanAreKeptWaiting) {
  Random random(84);
  const EncodedWeight w = random_weight(
      random, QuantFormat::affine(4, 64, DType::kBf16).with_order(WeightOrder::kTiled), 16, 128);
  for (const NamedDevice* device : one_device_per_family()) {
    Session s(*device->device);
    const Tensor in = s.floats({2, 128}, random.floats(2 * 128));
    std::vector<Tensor> outs;
    for (int i = 0; i < 20; ++i) {
      outs.push_back(s.zeros({2, 16}));
      s.encoder().run(ops::Linear{outs.back(), in, s.weight(w)});
    }
    const std::vector<float> expected = s.read(outs.front());
    EXPECT_NE(largest(expected), 0.0f);
    for (const Tensor& out : outs) expect_same_bits(device->name, expected, s.read(out));
  }
}

TEST(TiledEmbed, MatchesTheReference) {
  Random random(85);
  for (const QuantFormat& format : tiled_formats()) {
    const EncodedWeight w = random_weight(random, format, 32, 256);
    const std::vector<float> tolerance(3 * 256, 2.0f * kRounding * largest(w.decoded));
    compare_with_reference({"embed, tiles", format.to_string(), 256, tolerance}, [&](Session& s) {
      const Tensor out = s.zeros({3, 256});
      s.encoder().run(ops::Embed{out, s.weight(w), s.ints({3}, std::vector<int32_t>{17, 0, 31})});
      return s.read(out);
    });
  }
}

}  // namespace
}  // namespace moeflux::conformance
