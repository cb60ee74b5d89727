// Ops along the sequence over rows of several sequences: each gets the bits that it gets alone,
// whoever comes with it and in whatever pieces.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <span>

#include "base/format.h"
#include "tests/conformance/models.h"
#include "tests/conformance/support.h"

namespace moeflux::conformance {
namespace {

/// The next rows of one of the sequences.
struct Piece {
  size_t sequence = 0;
  int64_t begin = 0;
  int64_t rows = 0;
};
using Pieces = std::vector<Piece>;

/// Steps that take sequences of these lengths to their ends: some of them at a time, in any order,
/// each by one row as often as by more.
std::vector<Pieces> random_steps(Random& random, const std::vector<int64_t>& lengths) {
  std::vector<int64_t> done(lengths.size());
  std::vector<Pieces> steps;
  while (done != lengths) {
    std::vector<size_t> order(lengths.size());
    std::iota(order.begin(), order.end(), size_t{0});
    for (size_t i = order.size(); i > 1; --i) {
      std::swap(order[i - 1], order[static_cast<size_t>(random.below(static_cast<int64_t>(i)))]);
    }
    const bool decodes = random.below(2) == 0;
    Pieces step;
    for (const size_t sequence : order) {
      const int64_t left = lengths[sequence] - done[sequence];
      if (left == 0 || random.below(4) == 0) continue;
      const int64_t rows = decodes ? 1 : std::min<int64_t>(left, 1 + random.below(9));
      step.push_back({sequence, done[sequence], rows});
      done[sequence] += rows;
    }
    if (!step.empty()) steps.push_back(step);
  }
  return steps;
}

/// Two steps: a row of the first sequence before all but a row of each of the others, then the
/// rest, single rows before several as in a server's step.
std::vector<Pieces> mixed_steps(const std::vector<int64_t>& lengths) {
  Pieces first;
  Pieces second;
  for (size_t i = 0; i < lengths.size(); ++i) {
    const int64_t begin = i == 0 ? 1 : std::max<int64_t>(lengths[i] - 1, 1);
    first.push_back({i, 0, begin});
    if (begin < lengths[i]) second.push_back({i, begin, lengths[i] - begin});
  }
  for (Pieces* step : {&first, &second}) std::ranges::stable_sort(*step, {}, &Piece::rows);
  return {first, second};
}

/// Steps of as many rows of each sequence, as long as these last, then steps of a row.
std::vector<Pieces> even_steps(const std::vector<int64_t>& lengths, int64_t rows) {
  std::vector<Pieces> steps;
  for (int64_t begin = 0;; begin += rows) {
    Pieces step;
    for (size_t i = 0; i < lengths.size(); ++i) {
      if (begin + rows <= lengths[i]) step.push_back({i, begin, rows});
    }
    if (step.empty()) break;
    steps.push_back(step);
  }
  for (size_t i = 0; i < lengths.size(); ++i) {
    for (int64_t at = lengths[i] / rows * rows; at < lengths[i]; ++at)
      steps.push_back({{i, at, 1}});
  }
  return steps;
}

std::vector<std::vector<Pieces>> all_steps(Random& random, const std::vector<int64_t>& lengths) {
  return {random_steps(random, lengths), mixed_steps(lengths), even_steps(lengths, 3)};
}

/// The pieces' rows of what each sequence has, one behind the other: widths are of a row.
std::vector<float> gather(const Pieces& step, int64_t width,
                          const std::function<const std::vector<float>&(size_t)>& of) {
  std::vector<float> rows;
  for (const Piece& piece : step) {
    const auto begin = of(piece.sequence).begin() + piece.begin * width;
    rows.insert(rows.end(), begin, begin + piece.rows * width);
  }
  return rows;
}
int64_t rows_of(const Pieces& step) {
  return std::accumulate(step.begin(), step.end(), int64_t{0},
                         [](int64_t sum, const Piece& piece) { return sum + piece.rows; });
}
/// Appends each piece's rows of a result to its sequence's.
void scatter(const Pieces& step, int64_t width, const std::vector<float>& rows,
             std::vector<std::vector<float>>& results) {
  auto next = rows.begin();
  for (const Piece& piece : step) {
    results[piece.sequence].insert(results[piece.sequence].end(), next, next + piece.rows * width);
    next += piece.rows * width;
  }
}

void append(std::vector<float>& to, const std::vector<float>& more) {
  to.insert(to.end(), more.begin(), more.end());
}

/// Each sequence has the bits of `expected` after all ways of steps.
template <typename RunTogether>
void check_steps(const std::string& what, const NamedDevice& device,
                 const std::vector<std::vector<Pieces>>& ways,
                 const std::vector<std::vector<float>>& expected, const RunTogether& run_together) {
  for (const std::vector<Pieces>& steps : ways) {
    Session together(*device.device);
    const std::vector<std::vector<float>> results = run_together(together, steps);
    ASSERT_EQ(results.size(), expected.size());
    for (size_t i = 0; i < expected.size(); ++i) {
      expect_same_bits(
          formatted("{}[{}, sequence {}, {} steps]", what, device.name, i, steps.size()),
          expected[i], results[i]);
    }
  }
}

/// `run_together` gives every sequence's results; alone they are problems[i].run().
template <typename Problem, typename RunTogether>
void check(const std::string& what, const std::vector<Problem>& problems,
           const RunTogether& run_together) {
  std::vector<int64_t> lengths;
  for (const Problem& problem : problems) lengths.push_back(problem.n);
  Random random(91);
  for (const NamedDevice& device : devices()) {
    std::vector<std::vector<float>> alone;
    for (const Problem& problem : problems) {
      Session session(*device.device);
      alone.push_back(problem.run(session, {problem.n}));
    }
    check_steps(what, device, all_steps(random, lengths), alone, run_together);
  }
}

/// The same where alone they are what `run_together` gives for one of them in a step.
template <typename RunTogether>
void check_alike(const std::string& what, const std::vector<int64_t>& lengths,
                 const RunTogether& run_together) {
  std::vector<Pieces> alone;
  for (size_t i = 0; i < lengths.size(); ++i) alone.push_back({{i, 0, lengths[i]}});
  Random random(92);
  for (const NamedDevice& device : devices()) {
    Session apart(*device.device);
    const std::vector<std::vector<float>> expected = run_together(apart, alone);
    check_steps(what, device, all_steps(random, lengths), expected, run_together);
  }
}

struct Pages {
  std::vector<Tensor> keys;
  std::vector<Tensor> values;
};

std::vector<std::vector<float>> attend_together(Session& s, const std::vector<Pieces>& steps,
                                                const std::vector<AttentionProblem>& problems) {
  const AttentionProblem& p = problems.front();
  std::vector<Pages> pages(problems.size());
  for (size_t i = 0; i < problems.size(); ++i) {
    for (int64_t t = 0; t < problems[i].n; t += p.page_tokens) {
      pages[i].keys.push_back(p.page(s, p.head_dim, p.k_type));
      pages[i].values.push_back(p.values_are_keys ? pages[i].keys.back().slice(2, 0, p.v_head_dim)
                                                  : p.page(s, p.v_head_dim, p.v_type));
    }
  }
  const bool has_own = p.has_own_sinks();
  const Tensor sinks = p.sinks.empty() || has_own ? Tensor{} : s.floats({p.heads}, p.sinks);
  std::vector<std::vector<float>> results(problems.size());
  for (const Pieces& step : steps) {
    const int64_t n = rows_of(step);
    const auto placed = [&](int64_t heads, int64_t dim, std::vector<float> AttentionProblem::*of) {
      return s.floats({n, heads, dim}, gather(
                                           step, heads * dim, [&](size_t i) -> const auto& {
                                             return problems[i].*of;
                                           }));
    };
    std::vector<KvRows> rows;
    for (const Piece& piece : step) {
      const Pages& own = pages[piece.sequence];
      rows.push_back({piece.rows, {own.keys, own.values, p.page_tokens, piece.begin}});
    }
    const Tensor out = s.zeros({n, p.heads, p.v_head_dim});
    s.encoder().run(ops::Attention{
        out,
        placed(p.heads, p.head_dim, &AttentionProblem::q),
        placed(p.kv_heads, p.head_dim, &AttentionProblem::k),
        p.values_are_keys ? Tensor{} : placed(p.kv_heads, p.v_head_dim, &AttentionProblem::v),
        rows,
        {.scale = 0.2f,
         .window = p.window,
         .sinks =
             has_own ? placed(1, p.heads, &AttentionProblem::sinks).reshape({n, p.heads}) : sinks,
         .distance_bias = p.bias_extent > 0
                              ? placed(p.heads, p.bias_extent, &AttentionProblem::biases)
                              : Tensor{}}});
    scatter(step, p.heads * p.v_head_dim, s.read(out), results);
  }
  return results;
}

void check_attention(const std::string& what, const AttentionProblem& like, Random& random,
                     std::initializer_list<int64_t> lengths) {
  std::vector<AttentionProblem> problems;
  for (const int64_t n : lengths) {
    AttentionProblem p = AttentionProblem::make(random, like.heads, like.kv_heads, like.head_dim,
                                                like.v_head_dim, like.page_tokens, n);
    p.window = like.window;
    p.sinks = like.sinks;
    if (like.bias_extent > 0) p.add_biases(random, like.bias_extent);
    p.values_are_keys = like.values_are_keys;
    problems.push_back(std::move(p));
  }
  check(what, problems, [&](Session& s, const std::vector<Pieces>& steps) {
    return attend_together(s, steps, problems);
  });
}

TEST(SequenceInvariance, Attention) {
  Random random(61);
  AttentionProblem like{.heads = 6, .kv_heads = 2, .head_dim = 48, .v_head_dim = 32};
  check_attention("attention", like, random, {40, 1, 23, 9});
  like.window = 9;
  like.sinks = random.floats(6, -5.0f, 5.0f);
  check_attention("attention with a window and sinks", like, random, {40, 17});
  like.bias_extent = 12;
  check_attention("attention with biases by distance", like, random, {40, 17});
}

TEST(SequenceInvariance, AttentionOverSharedPages) {
  Random random(62);
  AttentionProblem like{.heads = 20, .kv_heads = 1, .head_dim = 72, .v_head_dim = 64};
  like.values_are_keys = true;
  check_attention("latent attention", like, random, {30, 12, 5});
}

// Longer than what a context of few tokens is cut into.
TEST(SequenceInvariance, AttentionAtDepth) {
  Random random(63);
  AttentionProblem like{.heads = 2, .kv_heads = 1, .head_dim = 16, .v_head_dim = 16};
  like.page_tokens = 256;
  std::vector<AttentionProblem> problems;
  for (const int64_t n : {620, 40, 530}) {
    problems.push_back(AttentionProblem::make(random, 2, 1, 16, 16, 256, n));
  }
  const std::vector<Pieces> steps = {{{0, 0, 500}, {1, 0, 39}, {2, 0, 529}},
                                     {{2, 529, 1}, {0, 500, 60}},
                                     {{0, 560, 1}, {1, 39, 1}},
                                     {{0, 561, 59}}};
  for (const NamedDevice& device : devices()) {
    if (device.is_slow) continue;
    Session together(*device.device);
    const auto results = attend_together(together, steps, problems);
    for (size_t i = 0; i < problems.size(); ++i) {
      Session alone(*device.device);
      expect_same_bits(formatted("attention at depth[{}, sequence {}]", device.name, i),
                       problems[i].run(alone, {problems[i].n}), results[i]);
    }
  }
}

/// A step of a token of each of `count` sequences, of which few are long.
void check_tokens_of_many(size_t count, const AttentionProblem& like) {
  Random random(64);
  std::vector<AttentionProblem> problems;
  Pieces before;
  Pieces last;
  for (size_t i = 0; i < count; ++i) {
    const bool is_long = i % 100 == 1;
    const int64_t n = is_long ? (count > 9 ? 70 : 200) : 1 + static_cast<int64_t>(i * 37 % 11);
    AttentionProblem p = AttentionProblem::make(random, like.heads, like.kv_heads, like.head_dim,
                                                like.v_head_dim, like.page_tokens, n);
    p.window = like.window;
    p.k_type = p.v_type = like.k_type;
    problems.push_back(std::move(p));
    if (n > 1) before.push_back({i, 0, n - 1});
    last.push_back({i, n - 1, 1});
  }
  for (const NamedDevice& device : devices()) {
    if (like.has_narrow_cache() && !device.device->takes_narrow_cache()) continue;
    Session together(*device.device);
    const auto results = attend_together(together, {before, last}, problems);
    for (size_t i = 0; i<count; i += count> 9 ? 16 : 1) {
      Session alone(*device.device);
      expect_same_bits(formatted("{} tokens[{}, sequence {}]", count, device.name, i),
                       problems[i].run(alone, {problems[i].n}), results[i]);
    }
  }
}

TEST(SequenceInvariance, AttentionOfATokenOfEachOfMany) {
  AttentionProblem like{
      .heads = 4, .kv_heads = 2, .head_dim = 32, .v_head_dim = 32, .page_tokens = 32};
  check_tokens_of_many(2, like);
  check_tokens_of_many(9, like);
  check_tokens_of_many(256, {.heads = 2, .head_dim = 16, .v_head_dim = 16, .page_tokens = 32});
  like.window = 90;
  check_tokens_of_many(2, like);
  check_tokens_of_many(9, like);
  like.window = 0;
  like.k_type = DType::kF16;
  check_tokens_of_many(3, like);
  like.k_type = DType::kI8;
  check_tokens_of_many(9, like);
  // Rows of more than one group, and the kernel of wide rows.
  check_tokens_of_many(
      3, {.heads = 20, .kv_heads = 1, .head_dim = 16, .v_head_dim = 16, .page_tokens = 32});
  check_tokens_of_many(
      3, {.heads = 18, .kv_heads = 1, .head_dim = 288, .v_head_dim = 32, .page_tokens = 32});
}

TEST(SequenceInvariance, CausalConv) {
  Random random(64);
  for (const int64_t channels : {601, 604}) {
    std::vector<ConvProblem> problems;
    for (const int64_t n : {30, 1, 12, 19}) {
      problems.push_back(ConvProblem::make(random, channels, 4, n));
      problems.back().weight = problems.front().weight;
    }
    check("causal_conv", problems, [&](Session& s, const std::vector<Pieces>& steps) {
      std::vector<Tensor> states;
      for (const ConvProblem& p : problems) states.push_back(s.floats({3, channels}, p.state));
      const Tensor weight = s.floats({channels, 4}, problems.front().weight);
      std::vector<std::vector<float>> results(problems.size());
      for (const Pieces& step : steps) {
        const int64_t n = rows_of(step);
        const Tensor x =
            s.floats({n, channels},
                     gather(
                         step, channels, [&](size_t i) -> const auto& { return problems[i].x; }));
        std::vector<StateRows> rows;
        for (const Piece& piece : step) rows.push_back({piece.rows, states[piece.sequence]});
        const Tensor out = s.zeros({n, channels});
        s.encoder().run(ops::CausalConv{out, x, weight, {}, rows});
        scatter(step, channels, s.read(out), results);
      }
      for (size_t i = 0; i < states.size(); ++i) append(results[i], s.read(states[i]));
      return results;
    });
  }
}

TEST(SequenceInvariance, TokenConv) {
  Random random(67);
  constexpr int64_t kChannels = 201;
  for (const int64_t taps : {2, 4, 9, 12}) {
    std::vector<TokenConvProblem> problems;
    for (const int64_t n : {30, 1, 12, 4, 19}) {
      problems.push_back(TokenConvProblem::make(random, kChannels, taps, n));
      problems.back().weight = problems.front().weight;
    }
    check("token_conv", problems, [&](Session& s, const std::vector<Pieces>& steps) {
      std::vector<Tensor> states;
      for (const auto& p : problems) states.push_back(s.floats({taps - 1, kChannels}, p.state));
      const Tensor weight = s.floats({taps, kChannels}, problems.front().weight);
      std::vector<std::vector<float>> results(problems.size());
      for (const Pieces& step : steps) {
        const auto placed = [&](int64_t width, std::vector<float> TokenConvProblem::*of) {
          const auto own = [&](size_t i) -> const auto& { return problems[i].*of; };
          return s.floats({rows_of(step), width}, gather(step, width, own));
        };
        std::vector<StateRows> rows;
        for (const Piece& piece : step) rows.push_back({piece.rows, states[piece.sequence]});
        const Tensor out = s.zeros({rows_of(step), kChannels});
        const Tensor shares =
            placed(TokenConvProblem::kGroups * taps, &TokenConvProblem::shares).split_last(taps);
        s.encoder().run(
            ops::TokenConv{out, placed(kChannels, &TokenConvProblem::x), weight, shares, rows});
        scatter(step, kChannels, s.read(out), results);
      }
      for (size_t i = 0; i < states.size(); ++i) append(results[i], s.read(states[i]));
      return results;
    });
  }
}

/// With a norm of the heads and a gate behind it, which a device may compute in the same launch.
void check_gated_delta(const GatedDeltaOptions& o, bool has_norm = false) {
  Random random(65);
  const int64_t inner = o.value_heads * o.value_dim;
  const std::vector<float> scales = random.floats(o.value_dim);
  std::vector<std::vector<float>> gates;
  std::vector<DeltaProblem> problems;
  for (const int64_t n : {30, 1, 12, 4, 19}) {
    problems.push_back(DeltaProblem::make(random, o, n));
    problems.back().a_log = problems.front().a_log;
    problems.back().dt_bias = problems.front().dt_bias;
    gates.push_back(random.floats(n * inner));
  }
  const auto run_together = [&](Session& s, const std::vector<Pieces>& steps) {
    const int64_t width = 2 * o.key_heads * o.key_dim + inner;
    std::vector<Tensor> states;
    for (const DeltaProblem& p : problems) {
      states.push_back(s.floats({o.value_heads, o.key_dim, o.value_dim}, p.state));
    }
    const Tensor rates = s.floats({o.value_heads}, problems.front().a_log);
    const Tensor biases = s.floats({o.decays()}, problems.front().dt_bias);
    const Tensor norm = s.floats({o.value_dim}, scales);
    std::vector<std::vector<float>> results(problems.size());
    for (const Pieces& step : steps) {
      const int64_t n = rows_of(step);
      const auto placed = [&](int64_t cols, std::vector<float> DeltaProblem::*of) {
        return s.floats({n, cols},
                        gather(
                            step, cols, [&](size_t i) -> const auto& { return problems[i].*of; }));
      };
      std::vector<StateRows> rows;
      for (const Piece& piece : step) rows.push_back({piece.rows, states[piece.sequence]});
      const Tensor out = s.zeros({n, o.value_heads, o.value_dim});
      const Tensor qkv = placed(width, &DeltaProblem::qkv);
      const Tensor decays = placed(o.decays(), &DeltaProblem::a);
      const Tensor betas = placed(o.value_heads, &DeltaProblem::b);
      const Tensor gate =
          s.floats(out.shape, gather(
                                  step, inner, [&](size_t i) -> const auto& { return gates[i]; }));
      s.encoder().run(ops::GatedDelta{out, qkv, decays, betas, rates, biases, rows, o});
      if (has_norm) {
        s.encoder().run(ops::RmsNorm{out, out, norm, 1e-6f});
        s.encoder().run(ops::MulActivated{out, out, gate, Activation::kSilu});
      }
      scatter(step, inner, s.read(out), results);
    }
    for (size_t i = 0; i < states.size(); ++i) append(results[i], s.read(states[i]));
    return results;
  };
  if (has_norm) return check_alike("gated_delta and norm", {30, 1, 12, 4, 19}, run_together);
  check("gated_delta", problems, run_together);
}

TEST(SequenceInvariance, GatedDelta) { check_gated_delta({2, 4, 32, 72}); }
TEST(SequenceInvariance, GatedDeltaOfOneKernelATokenOnGpus) { check_gated_delta({1, 2, 128, 128}); }
TEST(SequenceInvariance, GatedDeltaWithNormAndGate) {
  check_gated_delta({1, 2, 128, 128}, true);
  check_gated_delta({2, 2, 128, 128, false, true, -5.0f}, true);
}
TEST(SequenceInvariance, GatedDeltaOfManyHeadsInTurn) {
  check_gated_delta({2, 6, 128, 128}, true);
  check_gated_delta({3, 3, 128, 128, false, true, -5.0f}, true);
  const std::span<const NamedDevice> all = devices();
  if (std::any_of(all.begin(), all.end(), [](const NamedDevice& d) { return d.is_slow; })) return;
  check_gated_delta({24, 72, 128, 128}, true);
}
TEST(SequenceInvariance, GatedDeltaWithDecaysOfRows) {
  check_gated_delta({2, 2, 32, 72, false, true});
  check_gated_delta({2, 2, 128, 128, false, true, -5.0f});
}

TEST(SequenceInvariance, SelectiveScan) {
  Random random(66);
  const ScanOptions o{4, 40, 2, 24};
  std::vector<ScanProblem> problems;
  for (const int64_t n : {30, 1, 12, 4, 19}) {
    problems.push_back(ScanProblem::make(random, o, n));
    problems.back().a_log = problems.front().a_log;
    problems.back().dt_bias = problems.front().dt_bias;
    problems.back().skip = problems.front().skip;
  }
  check("selective_scan", problems, [&](Session& s, const std::vector<Pieces>& steps) {
    std::vector<Tensor> states;
    for (const ScanProblem& p : problems) {
      states.push_back(s.floats({o.heads, o.state_dim, o.head_dim}, p.state));
    }
    const ScanWeights weights = problems.front().weights(s);
    std::vector<std::vector<float>> results(problems.size());
    for (const Pieces& step : steps) {
      const int64_t n = rows_of(step);
      const auto placed = [&](int64_t cols, std::vector<float> ScanProblem::*of) {
        return s.floats({n, cols},
                        gather(
                            step, cols, [&](size_t i) -> const auto& { return problems[i].*of; }));
      };
      std::vector<StateRows> rows;
      for (const Piece& piece : step) rows.push_back({piece.rows, states[piece.sequence]});
      const Tensor out = s.zeros({n, o.heads, o.head_dim});
      s.encoder().run(ops::SelectiveScan{out, placed(o.row_width(), &ScanProblem::xbc),
                                         placed(o.heads, &ScanProblem::dt), weights, rows, o});
      scatter(step, o.heads * o.head_dim, s.read(out), results);
    }
    for (size_t i = 0; i < states.size(); ++i) append(results[i], s.read(states[i]));
    return results;
  });
}

}  // namespace
}  // namespace moeflux::conformance
