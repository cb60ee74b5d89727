// Pools of rows: against the reference, in pieces, and beside other sequences.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/format.h"
#include "tests/conformance/joined.h"
#include "tests/conformance/models.h"
#include "tests/conformance/support.h"

namespace moeflux::conformance {
namespace {

/// Pools of a sequence's tokens from `position` on, and the state behind them.
struct PoolProblem {
  int64_t n = 1;
  int64_t position = 0;
  int64_t unit = 4;
  int64_t cols = 16;
  bool weighs = true;
  bool overlaps = false;
  std::vector<float> x = {};
  std::vector<float> gate = {};
  std::vector<float> bias = {};
  std::vector<float> past = {};

  int64_t state_cols() const { return (weighs ? 2 : 1) * cols; }
  int64_t state_rows() const { return PoolGates{.overlaps = overlaps}.kept_rows(unit); }
  int64_t out_cols() const { return overlaps ? cols / 2 : cols; }
  PoolProblem& fill(Random& random) {
    x = random.floats(n * cols);
    gate = random.floats(n * cols, -3.0f, 3.0f);
    bias = random.floats(unit * cols);
    past = random.floats(state_rows() * state_cols());
    return *this;
  }
  std::vector<float> run(Session& s, const Chunks& chunks) const {
    const Tensor out = s.zeros({n, out_cols()});
    const Tensor from = s.floats({n, cols}, x);
    const Tensor gates = s.floats({n, cols}, gate);
    const Tensor biases = s.floats({unit, cols}, bias);
    const Tensor state = s.floats({state_rows(), state_cols()}, past);
    std::vector<int32_t> numbers;
    for (int64_t i = 0; i < n; ++i) numbers.push_back(static_cast<int32_t>(position + i));
    const Tensor positions = s.ints({n}, numbers);
    int64_t at = 0;
    for (const int64_t rows : chunks) {
      const StateRows sequence{rows, state};
      const PoolGates all{gates.slice(0, at, rows), biases, overlaps};
      s.encoder().run(ops::PoolRows{out.slice(0, at, rows),
                                    from.slice(0, at, rows),
                                    weighs ? all : PoolGates{},
                                    positions.slice(0, at, rows),
                                    {&sequence, 1},
                                    unit});
      at += rows;
    }
    return joined({s.read(out), s.read(state)});
  }
};

TEST(PoolRows, MatchTheReference) {
  Random random(85);
  for (const bool weighs : {true, false}) {
    for (const auto& [unit, cols, n, position] : {std::tuple{4, 32, 1, 0},
                                                  {4, 33, 1, 7},
                                                  {2, 1, 9, 3},
                                                  {4, 130, 23, 6},
                                                  {16, 20, 40, 13},
                                                  {3, 8, 2, 1}}) {
      PoolProblem p{n, position, unit, cols, weighs};
      p.fill(random);
      const size_t size = static_cast<size_t>(n * cols + (unit - 1) * p.state_cols());
      const std::vector<float> tolerance(size, 32.0f * kRounding);
      compare_with_reference(
          {"pool_rows",
           formatted("{} of {}, {} from {}{}", unit, cols, n, position, weighs ? ", weighed" : ""),
           cols, tolerance},
          [&](Session& s) { return p.run(s, {p.n}); });
    }
  }
}

TEST(PoolRows, PoolsThatOverlapMatchTheReference) {
  Random random(88);
  for (const auto& [unit, cols, n, position] : {std::tuple{4, 32, 1, 0},
                                                {4, 66, 1, 7},
                                                {4, 34, 13, 2},
                                                {2, 2, 9, 3},
                                                {4, 130, 23, 6},
                                                {128, 20, 300, 13},
                                                {3, 8, 2, 1}}) {
    PoolProblem p{.n = n, .position = position, .unit = unit, .cols = cols, .overlaps = true};
    p.fill(random);
    const auto size = static_cast<size_t>(n * p.out_cols() + p.state_rows() * p.state_cols());
    const std::vector<float> tolerance(size, 64.0f * kRounding);
    compare_with_reference(
        {"pool_rows", formatted("{} of {}, {} from {}, overlapped", unit, cols, n, position),
         p.out_cols(), tolerance},
        [&](Session& s) { return p.run(s, {p.n}); });
  }
}

// A row sums the first half of the columns over the pool before, the second half over its own.
TEST(PoolRows, APoolHasTheFirstHalvesOfTheOneBefore) {
  for (const NamedDevice* device : one_device_per_family()) {
    Session s(*device->device);
    const Tensor out = s.zeros({4, 1});
    const Tensor state = s.zeros({4, 4});
    const std::vector<float> x = {1, 10, 2, 20, 3, 30, 4, 40};
    const std::vector<int32_t> positions = {0, 1, 2, 3};
    const StateRows sequence{4, state};
    s.encoder().run(ops::PoolRows{out,
                                  s.floats({4, 2}, x),
                                  {s.zeros({4, 2}), s.zeros({2, 2}), true},
                                  s.ints({4}, positions),
                                  {&sequence, 1},
                                  2});
    const std::vector<float> expected = {10.0f, 15.0f, (1.0f + 2.0f + 30.0f) / 3.0f,
                                         (1.0f + 2.0f + 30.0f + 40.0f) / 4.0f};
    const std::vector<float> got = s.read(out);
    for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(got[i], expected[i], 1e-5f) << device->name;
  }
}

void expect_same_rows_in_chunks(const PoolProblem& p) {
  for (const NamedDevice* device : one_device_per_family()) {
    Session s(*device->device);
    const std::vector<float> expected = p.run(s, {37});
    for (const Chunks& chunks : {one_by_one(37), Chunks{2, 1, 30, 4}, Chunks{3, 34}}) {
      expect_same_bits(device->name, expected, p.run(s, chunks));
    }
  }
}

TEST(PoolRows, ARowIsThatOfItsPoolWhateverTheChunk) {
  Random random(86);
  PoolProblem p{.n = 37, .position = 6, .cols = 24};
  expect_same_rows_in_chunks(p.fill(random));
  p.overlaps = true;
  expect_same_rows_in_chunks(p.fill(random));
}

// Rows of two sequences in one call, each with its own state.
TEST(PoolRows, SequencesDoNotMix) {
  Random random(87);
  PoolProblem first{.n = 5, .position = 2};
  PoolProblem second{.n = 6, .position = 9};
  first.fill(random);
  second.fill(random);
  second.bias = first.bias;
  for (const NamedDevice* device : one_device_per_family()) {
    Session s(*device->device);
    const std::vector<float> alone = first.run(s, {5});
    const std::vector<float> other = second.run(s, {6});
    const Tensor states[] = {s.floats({3, 32}, first.past), s.floats({3, 32}, second.past)};
    const StateRows sequences[] = {{5, states[0]}, {6, states[1]}};
    const Tensor out = s.zeros({11, 16});
    const std::vector<int32_t> numbers = {2, 3, 4, 5, 6, 9, 10, 11, 12, 13, 14};
    s.encoder().run(ops::PoolRows{
        out,
        s.floats({11, 16}, joined({first.x, second.x})),
        {s.floats({11, 16}, joined({first.gate, second.gate})), s.floats({4, 16}, first.bias)},
        s.ints({11}, numbers),
        sequences,
        4});
    const std::vector<float> rows = s.read(out);
    const auto half = rows.begin() + 5 * 16;
    expect_same_bits(device->name, alone, joined({{rows.begin(), half}, s.read(states[0])}));
    expect_same_bits(device->name, other, joined({{half, rows.end()}, s.read(states[1])}));
  }
}

/// A token of each of several sequences in one call, with the bits of each alone.
void expect_tokens_of_each(const PoolProblem& like, size_t count) {
  Random random(88);
  std::vector<PoolProblem> problems(count, like);
  std::vector<float> x;
  std::vector<float> gates;
  std::vector<int32_t> positions;
  for (size_t i = 0; i < count; ++i) {
    problems[i].position = static_cast<int64_t>(i * 3 % 17);
    problems[i].fill(random);
    problems[i].bias = problems.front().bias;
    x.insert(x.end(), problems[i].x.begin(), problems[i].x.end());
    gates.insert(gates.end(), problems[i].gate.begin(), problems[i].gate.end());
    positions.push_back(static_cast<int32_t>(problems[i].position));
  }
  const auto n = static_cast<int64_t>(count);
  for (const NamedDevice* device : one_device_per_family()) {
    Session s(*device->device);
    std::vector<Tensor> states;
    std::vector<StateRows> sequences;
    for (const PoolProblem& p : problems) {
      states.push_back(s.floats({p.state_rows(), p.state_cols()}, p.past));
      sequences.push_back({1, states.back()});
    }
    const Tensor out = s.zeros({n, like.out_cols()});
    const PoolGates weights{s.floats({n, like.cols}, gates),
                            s.floats({like.unit, like.cols}, problems.front().bias), like.overlaps};
    s.encoder().run(ops::PoolRows{out, s.floats({n, like.cols}, x),
                                  like.weighs ? weights : PoolGates{}, s.ints({n}, positions),
                                  sequences, like.unit});
    const std::vector<float> rows = s.read(out);
    for (size_t i = 0; i < count; ++i) {
      Session alone(*device->device);
      const auto own = rows.begin() + static_cast<ptrdiff_t>(i) * like.out_cols();
      expect_same_bits(formatted("{}, sequence {} of {}", device->name, i, count),
                       problems[i].run(alone, {1}),
                       joined({{own, own + like.out_cols()}, s.read(states[i])}));
    }
  }
}

TEST(PoolRows, ATokenOfEachOfSeveralSequencesIsItsOwn) {
  for (const size_t count : {size_t{2}, size_t{9}, size_t{100}}) {
    expect_tokens_of_each({}, count);
    expect_tokens_of_each({.weighs = false}, count);
    expect_tokens_of_each({.overlaps = true}, count);
  }
}

}  // namespace
}  // namespace moeflux::conformance
