// Residuals of several streams, against the reference and in pieces.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/format.h"
#include "tests/conformance/joined.h"
#include "tests/conformance/models.h"
#include "tests/conformance/support.h"

namespace moeflux::conformance {
namespace {

/// Inputs of the gates of n tokens, and the gates of writing and mixing, one behind the other.
struct GateProblem {
  int64_t n = 1;
  int64_t streams = 4;
  int64_t iterations = 20;  // 0: they read alone; -1: they read and write
  int64_t cols = 12;
  std::vector<float> x = {};
  std::vector<float> logits = {};
  std::vector<float> base = {};

  static GateProblem make(Random& random, int64_t n, int64_t streams, int64_t iterations,
                          int64_t cols = 12) {
    const int64_t width = (iterations > 0 ? 2 + streams : 1 - iterations) * streams;
    return {n,
            streams,
            iterations,
            cols,
            random.floats(n * streams * cols),
            random.floats(n * width, -4.0f, 4.0f),
            random.floats(width, -2.0f, 2.0f)};
  }
  std::vector<float> run(Session& s, const Chunks& chunks) const {
    const bool alone = iterations == 0;
    const bool mixes = iterations > 0;
    const int64_t width = (mixes ? 2 + streams : 1 - iterations) * streams;
    const StreamGates all{s.zeros({n, streams}), s.zeros({n, streams, streams})};
    const Tensor out = s.zeros({n, cols});
    const Tensor from = s.floats({n, streams, cols}, x);
    const Tensor in = s.floats({n, width}, logits);
    const std::vector<float> scales{0.5f, 1.5f, 1.0f};
    const int64_t kinds = mixes ? 3 : 1 - iterations;
    const StreamGateOptions options{s.floats({kinds}, {scales.begin(), scales.begin() + kinds}),
                                    s.floats({width}, base),
                                    iterations,
                                    1e-6f,
                                    mixes ? 2.0f : 1.5f,
                                    mixes ? 0.0f : 1e-2f};
    int64_t at = 0;
    for (const int64_t rows : chunks) {
      s.encoder().run(
          ops::ReadStreams{out.slice(0, at, rows),
                           alone ? StreamGates{}
                                 : StreamGates{all.write.slice(0, at, rows),
                                               mixes ? all.mix.slice(0, at, rows) : Tensor{}},
                           from.slice(0, at, rows), in.slice(0, at, rows), options});
      at += rows;
    }
    return joined({s.read(out), s.read(all.write), s.read(all.mix)});
  }
};

TEST(ReadStreams, MatchesTheReference) {
  Random random(81);
  for (const int64_t streams : {1, 2, 3, 4, 5}) {
    for (const int64_t iterations : {-1, 0, 1, 2, 20}) {
      const int64_t cols = iterations == 1 ? 1 : iterations == 2 ? 515 : 12;
      const GateProblem p = GateProblem::make(random, 5, streams, iterations, cols);
      // Two sigmoids, and numbers up to 1 that have been divided twice an iteration.
      const std::vector<float> tolerance(
          static_cast<size_t>(p.n * (cols + streams + streams * streams)),
          kRounding * static_cast<float>(16 + 8 * std::abs(iterations)));
      compare_with_reference(
          {"read_streams", formatted("{} streams, {} iterations", streams, iterations), streams,
           tolerance},
          [&](Session& s) { return p.run(s, {p.n}); });
    }
  }
}

TEST(ReadStreams, AMixKeepsSumsOfRowsAndColumns) {
  Random random(82);
  const GateProblem p = GateProblem::make(random, 3, 4, 20);
  for (const NamedDevice* device : one_device_per_family()) {
    Session s(*device->device);
    const std::vector<float> gates = p.run(s, {3});
    for (size_t t = 0; t < 3; ++t) {
      for (size_t i = 0; i < 4; ++i) {
        float row = 0.0f;
        float column = 0.0f;
        for (size_t j = 0; j < 4; ++j) {
          row += gates[48 + t * 16 + i * 4 + j];
          column += gates[48 + t * 16 + j * 4 + i];
        }
        EXPECT_NEAR(row, 1.0f, 0.05f) << device->name;
        EXPECT_NEAR(column, 1.0f, 1e-4f) << device->name;
      }
    }
  }
}

/// Sums over streams, each number of which has a gate.
std::vector<float> gated_sum_of(Session& s, const Shape& shape, const std::vector<float>& x,
                                const std::vector<float>& gates, const Chunks& chunks) {
  const Tensor from = s.floats(shape, x);
  const Tensor gate = s.floats(shape, gates);
  const Tensor out = s.zeros({shape[0], shape[2]});
  int64_t at = 0;
  for (const int64_t rows : chunks) {
    s.encoder().run(
        ops::SumGated{out.slice(0, at, rows), from.slice(0, at, rows), gate.slice(0, at, rows)});
    at += rows;
  }
  return s.read(out);
}

TEST(SumGated, MatchesTheReference) {
  Random random(88);
  for (const int64_t streams : {1, 3, 4}) {
    for (const int64_t cols : {1, 7, 64, 130, 515}) {
      const Shape shape{3, streams, cols};
      const std::vector<float> x = random.floats(shape.num_elements());
      const std::vector<float> gates = random.floats(shape.num_elements(), -30.0f, 30.0f);
      const std::vector<float> tolerance(static_cast<size_t>(3 * cols), 16.0f * kRounding);
      compare_with_reference(
          {"sum_gated", formatted("{} streams of {}", streams, cols), cols, tolerance},
          [&](Session& s) { return gated_sum_of(s, shape, x, gates, {3}); });
    }
  }
}

/// Dot products of rows of streams.
std::vector<float> root_dots_of(Session& s, const Shape& shape, const std::vector<float>& a,
                                const std::vector<float>& b, const Chunks& chunks) {
  const Tensor left = s.floats(shape, a);
  const Tensor right = s.floats(shape, b);
  const Tensor out = s.zeros({shape[0], shape[1]});
  int64_t at = 0;
  for (const int64_t rows : chunks) {
    s.encoder().run(ops::RootDots{out.slice(0, at, rows),
                                  left.slice(0, at, rows),
                                  right.slice(0, at, rows),
                                  {.scale = 0.5f, .least = 1e-6f}});
    at += rows;
  }
  return s.read(out);
}

TEST(RootDots, MatchTheReference) {
  Random random(89);
  for (const int64_t streams : {1, 4}) {
    for (const int64_t cols : {1, 3, 16, 33, 128, 515}) {
      const Shape shape{5, streams, cols};
      const std::vector<float> a = random.floats(shape.num_elements());
      const std::vector<float> b = random.floats(shape.num_elements());
      // Near zero a root makes much of an error under it.
      const std::vector<float> tolerance(static_cast<size_t>(5 * streams),
                                         std::sqrt(kRounding * static_cast<float>(cols)) / 16.0f);
      compare_with_reference(
          {"root_dots", formatted("{} streams of {}", streams, cols), streams, tolerance},
          [&](Session& s) { return root_dots_of(s, shape, a, b, {5}); });
    }
  }
}

TEST(RootDots, KeepSignsAndTheLeastRootOfWhatIsNotZero) {
  for (const NamedDevice* device : one_device_per_family()) {
    Session s(*device->device);
    const std::vector<float> roots =
        root_dots_of(s, {1, 4, 2}, {8.0f, 0.0f, -8.0f, 0.0f, 0.0f, 0.0f, -1e-8f, 0.0f},
                     {1.0f, 5.0f, 1.0f, 5.0f, 1.0f, 1.0f, 1.0f, 5.0f}, {1});
    EXPECT_NEAR(roots[0], 2.0f, 1e-5f) << device->name;
    EXPECT_NEAR(roots[1], -2.0f, 1e-5f) << device->name;
    EXPECT_EQ(roots[2], 0.0f) << device->name;
    EXPECT_NEAR(roots[3], -1e-3f, 1e-8f) << device->name;
  }
}

/// Sums of a token's states behind blocks, of all calls.
std::vector<float> mixed_blocks_of(Session& s, const Shape& shape, const std::vector<float>& states,
                                   const std::vector<float>& query, bool sums_normed,
                                   bool one_by_one) {
  const int64_t n = shape[1];
  const int64_t cols = shape[2];
  const Tensor all = s.floats(shape, states);
  const Tensor out = s.zeros({n, cols});
  const Tensor by = s.floats({cols}, query);
  const int64_t blocks = shape[0] - 1;
  const BlockMix options{.scale = 0.7f, .eps = 1e-5f, .sums_normed = sums_normed};
  if (!one_by_one) {
    s.encoder().run(ops::MixBlocks{out, all.slice(0, 0, blocks),
                                   all.slice(0, blocks, 1).reshape({n, cols}), by, options});
    return s.read(out);
  }
  for (int64_t t = 0; t < n; ++t) {
    const Tensor own = s.zeros({blocks, 1, cols});
    s.encoder().run(ops::Copy{own, all.slice(0, 0, blocks).slice(1, t, 1)});
    s.encoder().run(ops::MixBlocks{out.slice(0, t, 1), own,
                                   all.slice(0, blocks, 1).slice(1, t, 1).reshape({1, cols}), by,
                                   options});
  }
  return s.read(out);
}

TEST(MixBlocks, MatchesTheReference) {
  Random random(97);
  for (const int64_t count : {2, 5, 31}) {
    for (const int64_t cols : {1, 7, 64, 130, 515}) {
      for (const bool sums_normed : {false, true}) {
        const Shape shape{count, 3, cols};
        const std::vector<float> states = random.floats(shape.num_elements());
        const std::vector<float> query = random.floats(cols, -2.0f, 2.0f);
        const std::vector<float> tolerance(static_cast<size_t>(3 * cols), 256.0f * kRounding);
        for (const bool one_by_one : {false, true}) {
          compare_with_reference(
              {"mix_blocks", formatted("{} states of {}", count, cols), cols, tolerance},
              [&](Session& s) {
                return mixed_blocks_of(s, shape, states, query, sums_normed, one_by_one);
              });
        }
      }
    }
  }
}

TEST(ClipRows, MatchTheReference) {
  Random random(98);
  for (const int64_t cols : {1, 7, 64, 130, 515}) {
    const std::vector<float> x = random.floats(3 * 2 * cols, -2.0f, 2.0f);
    // Some rows are longer, some are not, all are, none is.
    for (const float longest : {1.15f * std::sqrt(static_cast<float>(cols)), 0.01f, 1e4f}) {
      const std::vector<float> tolerance(x.size(), 64.0f * kRounding);
      for (const int64_t step : {1, 3}) {
        compare_with_reference({"clip_rows", formatted("{} by {}", cols, longest), cols, tolerance},
                               [&](Session& s) {
                                 const Tensor all = s.floats({3, 2, cols}, x);
                                 for (int64_t t = 0; t < 3; t += step) {
                                   s.encoder().run(ops::ClipRows{all.slice(0, t, step), longest});
                                 }
                                 return s.read(all);
                               });
      }
    }
  }
}

struct ExpandProblem {
  int64_t n = 1;
  int64_t streams = 4;
  int64_t cols = 64;
  bool mixes = true;
  bool has_logits = false;
  std::vector<float> x = {};
  std::vector<float> branch = {};
  std::vector<float> write = {};
  std::vector<float> mix = {};

  static ExpandProblem make(Random& random, int64_t n, int64_t streams, int64_t cols, bool mixes,
                            bool has_logits = false) {
    return {n,
            streams,
            cols,
            mixes,
            has_logits,
            random.floats(n * streams * cols),
            random.floats(n * cols),
            has_logits ? random.floats(n * streams, -30.0f, 30.0f)
                       : random.floats(n * streams, 0.0f, 2.0f),
            random.floats(n * streams * streams, 0.0f, 1.0f)};
  }
  std::vector<float> run(Session& s, const Chunks& chunks) const {
    const Tensor out = s.zeros({n, streams, cols});
    const Tensor from = s.floats({n, streams, cols}, x);
    const Tensor added = s.floats({n, cols}, branch);
    const Tensor writes = s.floats({n, streams}, write);
    const Tensor mixed = s.floats({n, streams, streams}, mix);
    int64_t at = 0;
    for (const int64_t rows : chunks) {
      s.encoder().run(ops::ExpandStreams{
          out.slice(0, at, rows),
          from.slice(0, at, rows),
          added.slice(0, at, rows),
          {writes.slice(0, at, rows), mixes ? mixed.slice(0, at, rows) : Tensor{}, has_logits}});
      at += rows;
    }
    return s.read(out);
  }
};

TEST(ExpandStreams, MatchesTheReference) {
  Random random(83);
  for (const auto& [mixes, has_logits] : {std::pair{true, false}, {false, true}, {false, false}}) {
    for (const int64_t streams : {1, 2, 4, 5}) {
      for (const int64_t cols : {1, 7, 64, 130}) {
        const ExpandProblem p = ExpandProblem::make(random, 3, streams, cols, mixes, has_logits);
        const std::vector<float> tolerance(p.x.size(), 16.0f * kRounding);
        compare_with_reference({"expand_streams",
                                formatted("{} streams of {}{}", streams, cols,
                                          mixes        ? ", mixed"
                                          : has_logits ? ", by logits"
                                                       : ""),
                                cols, tolerance},
                               [&](Session& s) { return p.run(s, {3}); });
      }
    }
  }
}

TEST(Streams, ATokensResultsAreItsOwn) {
  Random random(84);
  const GateProblem gates = GateProblem::make(random, 30, 4, 20);
  const ExpandProblem expand = ExpandProblem::make(random, 30, 4, 40, true);
  const std::vector<float> other = random.floats(30 * 4 * 40);
  for (const NamedDevice* device : one_device_per_family()) {
    Session s(*device->device);
    const std::vector<float> expected_gates = gates.run(s, {30});
    const std::vector<float> expected = expand.run(s, {30});
    const Shape shape{30, 4, 40};
    const std::vector<float> dots = root_dots_of(s, shape, expand.x, other, {30});
    const std::vector<float> sums = gated_sum_of(s, shape, expand.x, other, {30});
    for (const Chunks& chunks : {one_by_one(30), Chunks{1, 9, 20}}) {
      expect_same_bits(device->name, expected_gates, gates.run(s, chunks));
      expect_same_bits(device->name, expected, expand.run(s, chunks));
      expect_same_bits(device->name, dots, root_dots_of(s, shape, expand.x, other, chunks));
      expect_same_bits(device->name, sums, gated_sum_of(s, shape, expand.x, other, chunks));
    }
  }
}

}  // namespace
}  // namespace moeflux::conformance
