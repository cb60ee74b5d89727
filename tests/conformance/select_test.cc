// The choice of keys, attention over them, and layer_norm, against the reference: long, as one
// problem describes all choices.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/format.h"
#include "tests/conformance/support.h"
#include "tests/support/one_sequence.h"

namespace moeflux::conformance {
namespace {

/// A sequence of which the tokens behind the first `before` choose, in calls of `chunks`.
struct SelectProblem {
  int64_t before = 0;
  int64_t length = 40;
  std::vector<int64_t> chunks = {40};
  int64_t heads = 4;
  int64_t groups = 1;
  int64_t dim = 16;
  int64_t most = 5;
  SelectOptions options = {};
  int64_t page_tokens = 16;
  DType page_type = DType::kF32;
  bool has_weights = true;
  // Small multiples of a power of two: all sums are exact, and many scores are equal.
  bool are_exact = true;
  uint64_t seed = 1;
  std::vector<float> keys = {};  // instead of random ones
  /// Not 0: so many larger candidates are chosen first, and then among what lies in them.
  int64_t outer = 0;
  int64_t outer_unit = 8;
};

std::vector<float> numbers(Random& random, int64_t count, bool are_exact) {
  std::vector<float> values = random.floats(count, -2.0f, 2.0f);
  for (float& value : values) value = are_exact ? std::round(value) / 2.0f : value;
  return values;
}

std::vector<Tensor> pages_for(Session& s, const SelectProblem& p) {
  std::vector<Tensor> pages;
  for (int64_t i = 0; i < (p.length + p.page_tokens - 1) / p.page_tokens; ++i) {
    const int64_t width = p.dim / p.options.key_tokens();
    pages.push_back(s.zeros({p.page_tokens, 1, width}, p.page_type));
  }
  return pages;
}

/// Rows of all tokens that choose, one after the other.
std::vector<int32_t> choices(Device& device, const SelectProblem& p) {
  Random random(p.seed);
  Session s(device);
  const std::vector<float> q = numbers(random, p.length * p.heads * p.dim, p.are_exact);
  const std::vector<float> k =
      p.keys.empty() ? numbers(random, p.length * p.dim, p.are_exact) : p.keys;
  const std::vector<float> w = numbers(random, p.length * p.heads, p.are_exact);
  const Tensor queries = s.floats({p.length, p.heads, p.dim}, q);
  const Tensor keys = s.floats({p.length, 1, p.dim}, k);
  const Tensor weights = s.floats({p.length, p.heads}, w);
  const Tensor ids = s.zeros({p.length, p.groups, p.most}, DType::kI32);
  const std::vector<Tensor> pages = pages_for(s, p);
  const auto select = [&](const Tensor& to, int64_t begin, int64_t n) {
    const KvRows rows{
        n, {.k_pages = pages, .v_pages = pages, .page_tokens = p.page_tokens, .length = begin}};
    KeySelection within;
    if (p.outer > 0 && to.dim(2) == p.most) {
      const SelectOptions outer{.unit = p.outer_unit, .recent = 1};
      within = outer.selection(s.zeros({n, 1, p.outer}, DType::kI32));
      s.encoder().run(ops::SelectKeys{within.ids,
                                      queries.slice(0, begin, n),
                                      keys.slice(0, begin, n),
                                      weights.slice(0, begin, n),
                                      {&rows, 1},
                                      outer});
    }
    s.encoder().run(ops::SelectKeys{to,
                                    queries.slice(0, begin, n),
                                    keys.slice(0, begin, n),
                                    p.has_weights ? weights.slice(0, begin, n) : Tensor{},
                                    {&rows, 1},
                                    p.options,
                                    within});
  };
  // A token that may choose as many as there are has no choice, but leaves keys.
  if (p.before > 0) select(s.zeros({p.before, p.groups, p.length}, DType::kI32), 0, p.before);
  int64_t done = p.before;
  for (const int64_t n : p.chunks) {
    select(ids.slice(0, done, n), done, n);
    done += n;
  }
  const int64_t dense_end = p.options.selection(ids).dense_end();
  const int64_t first = std::max(p.before, std::min(p.length, dense_end));
  return s.read_ints(ids.slice(0, first, p.length - first));
}

void expect_choices(const std::string& what, const SelectProblem& p) {
  const std::vector<int32_t> expected = choices(reference(), p);
  ASSERT_FALSE(expected.empty());
  for (const NamedDevice& device : devices()) {
    if (device.is_slow && (p.length - p.before) * p.heads * p.dim > 33000) continue;
    EXPECT_EQ(choices(*device.device, p), expected) << what << ", " << device.name;
  }
}

TEST(SelectKeys, ChoosesWhatTheReferenceDoesAndTheLowerOfEquals) {
  expect_choices("weighted heads", {});
  expect_choices("a chunk of each size",
                 {.length = 41, .chunks = {7, 1, 30, 3}, .heads = 9, .dim = 20, .seed = 2});
  expect_choices("more pages than one, f16", {.length = 70,
                                              .chunks = {70},
                                              .heads = 3,
                                              .dim = 33,
                                              .most = 31,
                                              .page_tokens = 3,
                                              .page_type = DType::kF16,
                                              .seed = 3});
  expect_choices("no weights", {.has_weights = false, .seed = 4});
  expect_choices("no weights and nothing negative", {.length = 60,
                                                     .chunks = {7, 53},
                                                     .heads = 7,
                                                     .options = {.relu = true},
                                                     .has_weights = false,
                                                     .seed = 14});
  expect_choices("one key each", {.most = 1, .seed = 5});
  expect_choices("many heads",
                 {.length = 24, .chunks = {23, 1}, .heads = 64, .dim = 32, .most = 8, .seed = 6});
  expect_choices("heads of DeepSeek-V3.2", {.before = 76,
                                            .length = 80,
                                            .chunks = {3, 1},
                                            .heads = 64,
                                            .dim = 128,
                                            .most = 32,
                                            .page_tokens = 64,
                                            .page_type = DType::kF16,
                                            .seed = 15});
}

TEST(SelectKeys, ChoosesBlocksForEachGroupAndTheNearestAlways) {
  for (const int64_t unit : {2, 4, 7, 16}) {
    for (const int64_t recent : {1, 2}) {
      expect_choices(formatted("blocks of {}, {} recent", unit, recent),
                     {.length = 90,
                      .chunks = {50, 1, 39},
                      .heads = 4,
                      .groups = 4,
                      .most = 3,
                      .options = {.unit = unit, .recent = recent},
                      .has_weights = false,
                      .seed = static_cast<uint64_t>(unit)});
    }
  }
  expect_choices("groups of two heads, only the nearest", {.length = 30,
                                                           .chunks = {30},
                                                           .heads = 6,
                                                           .groups = 3,
                                                           .most = 2,
                                                           .options = {.unit = 4, .recent = 2}});
}

TEST(SelectKeys, ChoosesWholeCandidatesByAKeyEachAndTheRestAlways) {
  for (const int64_t unit : {2, 4, 8}) {
    expect_choices(formatted("pools of {}", unit),
                   {.length = 90,
                    .chunks = {50, 1, 2, 1, 36},
                    .heads = 5,
                    .dim = 24,
                    .most = 4,
                    .options = {.unit = unit, .recent = 1, .whole = true},
                    .seed = static_cast<uint64_t>(unit)});
  }
  expect_choices("token by token, f16", {.length = 45,
                                         .chunks = std::vector<int64_t>(45, 1),
                                         .most = 3,
                                         .options = {.unit = 4, .recent = 1, .whole = true},
                                         .page_tokens = 8,
                                         .page_type = DType::kF16});
  expect_choices("only the rest", {.length = 20,
                                   .chunks = {20},
                                   .most = 1,
                                   .options = {.unit = 4, .recent = 1, .whole = true}});
}

TEST(SelectKeys, ChoosesWholeCandidatesAlone) {
  SelectProblem p{.length = 90,
                  .chunks = {1, 40, 3, 46},
                  .dim = 16,
                  .most = 5,
                  .options = {.unit = 4, .recent = 0, .whole = true}};
  for (const DType type : {DType::kF32, DType::kF16}) {
    p.page_type = type;
    for (const int64_t most : {1, 3, 8}) {
      p.most = most;
      expect_choices(formatted("{} whole candidates", most), p);
    }
  }
}

TEST(SelectKeys, ChoosesWithinAnEarlierChoice) {
  SelectProblem p{.length = 90, .chunks = {50, 1, 2, 37}, .heads = 3, .dim = 24, .most = 5};
  p.options.whole = true;
  p.outer = 3;
  for (const int64_t unit : {2, 4, 8}) {
    p.outer_unit = unit;
    p.seed = static_cast<uint64_t>(unit);
    expect_choices(formatted("among candidates of {}", unit), p);
  }
  p.page_type = DType::kF16;
  p.before = 20;
  p.chunks = {30, 20, 20};
  p.outer = 9;
  expect_choices("tokens that chose and tokens that did not", p);
  // Scores outside are of no account.
  p.are_exact = false;
  p.outer = 1;
  p.outer_unit = 5;
  p.most = 1;
  const std::vector<int32_t> ids = choices(reference(), p);
  for (size_t i = 0; i < ids.size(); ++i) {
    const auto position = static_cast<int32_t>(p.before + static_cast<int64_t>(i));
    EXPECT_EQ(ids[i] / 5, position / 5) << position;
  }
  // No candidates but those of few tokens.
  p = {.before = 1000, .length = 1052, .chunks = {1, 51}, .dim = 32, .most = 7};
  p.outer = 8;
  expect_choices("among many keys", p);
}

TEST(SelectKeys, ChoosesAmongManyKeys) {
  SelectProblem p{.before = 2990, .length = 2993, .chunks = {1, 2}, .heads = 2, .dim = 8};
  p.most = 700;
  p.page_tokens = 256;
  expect_choices("few different scores", p);
  p.heads = 1;
  p.dim = 4;
  p.most = 1;
  expect_choices("the first of the best", p);
  p.are_exact = false;
  p.most = 900;
  p.length = 2991;
  p.chunks = {1};
  const std::vector<int32_t> expected = choices(reference(), p);
  for (const NamedDevice& device : devices()) {
    const std::vector<int32_t> got = choices(*device.device, p);
    ASSERT_EQ(got.size(), expected.size());
    // Scores that are off by roundings change places with their neighbours at most.
    std::vector<int32_t> others;
    std::ranges::set_difference(got, expected, std::back_inserter(others));
    EXPECT_LE(others.size(), 3U) << device.name;
  }
}

TEST(SelectKeys, WhatIsNoNumberIsAsHighAsInfinity) {
  SelectProblem p{.length = 20, .chunks = {20}, .heads = 1, .dim = 4, .most = 3};
  p.has_weights = false;
  p.keys.assign(static_cast<size_t>(p.length * p.dim), 0.25f);
  p.keys[static_cast<size_t>(6 * p.dim)] = std::nanf("");
  p.keys[static_cast<size_t>(2 * p.dim)] = std::nanf("");
  expect_choices("keys that are no numbers", p);
  const std::vector<int32_t> ids = choices(reference(), p);
  const std::vector<int32_t> last(ids.end() - 3, ids.end());
  EXPECT_EQ(last[0] == 2 || last[1] == 2, true);
  EXPECT_NE(std::ranges::find(last, 6), last.end());
}

// Scores of a token do not depend on who comes with it, so neither do its choices.
TEST(SelectKeys, ATokensChoiceIsItsOwn) {
  for (const SelectOptions& options :
       {SelectOptions{}, SelectOptions{.unit = 4, .recent = 1, .whole = true}}) {
    for (const NamedDevice* device : one_device_per_family()) {
      SelectProblem p{.length = 60, .heads = 5, .dim = 24, .most = 9, .are_exact = false};
      p.options = options;
      p.chunks = {60};
      const std::vector<int32_t> at_once = choices(*device->device, p);
      p.chunks.assign(60, 1);
      EXPECT_EQ(choices(*device->device, p), at_once) << device->name;
      p.chunks = {30, 17, 13};
      EXPECT_EQ(choices(*device->device, p), at_once) << device->name;
    }
  }
}

// Kernels may score a single token with few heads in another way than a chunk.
TEST(SelectKeys, FewHeadsChooseAloneWhatTheyChooseInAChunk) {
  for (const int64_t groups : {1, 4}) {
    for (const SelectOptions& options :
         {SelectOptions{}, SelectOptions{.unit = 4, .recent = 1},
          SelectOptions{.unit = 2, .recent = 1, .whole = true, .relu = true}}) {
      // All of these have a token at which the keys fill the CPU's segments of 512.
      SelectProblem p{.before = 1000, .length = 1052, .groups = groups, .dim = 32, .most = 7};
      p.options = options;
      p.page_tokens = 24;
      p.page_type = DType::kF16;
      p.has_weights = groups == 1 && options.unit == 1;
      p.are_exact = false;
      for (const NamedDevice* device : one_device_per_family()) {
        if (device->is_slow) continue;
        p.chunks = {52};
        const std::vector<int32_t> at_once = choices(*device->device, p);
        p.chunks.assign(52, 1);
        EXPECT_EQ(choices(*device->device, p), at_once) << device->name;
      }
      p.are_exact = true;
      expect_choices(formatted("{} groups, candidates of {}", groups, options.unit), p);
    }
  }
}

// --- Attention over selected keys ---

struct SelectedProblem {
  int64_t before = 50;  // tokens in the cache
  int64_t n = 3;
  int64_t heads = 4;
  int64_t kv_heads = 2;
  int64_t groups = 1;
  int64_t dim = 32;
  int64_t v_dim = 32;
  int64_t most = 6;
  int64_t unit = 1;
  bool whole = false;
  int64_t page_tokens = 16;
  DType k_type = DType::kF32;
  DType v_type = DType::kF32;
  bool values_are_keys = false;
  bool has_sinks = false;
  std::vector<int64_t> chunks = {3};

  int64_t length() const { return before + n; }
};

struct SelectedData {
  std::vector<float> q;
  std::vector<float> k;
  std::vector<float> v;
  std::vector<float> sinks;
  std::vector<int32_t> ids;
};

SelectedData make_data(const SelectedProblem& p) {
  Random random(static_cast<uint64_t>(p.dim + p.before));
  SelectedData data;
  data.q = random.floats(p.n * p.heads * p.dim, -2.0f, 2.0f);
  data.k = random.floats(p.length() * p.kv_heads * p.dim, -2.0f, 2.0f);
  data.v = random.floats(p.length() * p.kv_heads * p.v_dim, -2.0f, 2.0f);
  data.sinks = random.floats(p.heads, -2.0f, 2.0f);
  for (int64_t t = 0; t < p.n; ++t) {
    const int64_t candidates = (p.before + t + (p.whole ? 1 : 0)) / p.unit + 1;
    for (int64_t g = 0; g < p.groups; ++g) {
      const int64_t recent = p.unit > 1 ? 1 : 0;
      const std::vector<int32_t> row = random.ids(p.most - recent, candidates - recent);
      data.ids.insert(data.ids.end(), row.begin(), row.end());
      if (recent > 0) data.ids.push_back(static_cast<int32_t>(candidates - 1));
    }
  }
  return data;
}

std::span<const float> part(const std::vector<float>& x, int64_t row, int64_t rows, int64_t size) {
  return std::span(x).subspan(static_cast<size_t>(row * size), static_cast<size_t>(rows * size));
}

struct Cache {
  std::vector<Tensor> keys;
  std::vector<Tensor> values;
};
Cache make_cache(Session& s, const SelectedProblem& p, int64_t tokens) {
  Cache cache;
  for (int64_t i = 0; i < (tokens + p.page_tokens - 1) / p.page_tokens; ++i) {
    cache.keys.push_back(s.zeros({p.page_tokens, p.kv_heads, p.dim}, p.k_type));
    cache.values.push_back(p.values_are_keys
                               ? cache.keys.back().slice(2, 0, p.v_dim)
                               : s.zeros({p.page_tokens, p.kv_heads, p.v_dim}, p.v_type));
  }
  return cache;
}

std::vector<float> attend_selected(Session& s, const SelectedProblem& p, const SelectedData& data) {
  const Cache cache = make_cache(s, p, p.length());
  const Tensor k = s.floats({p.length(), p.kv_heads, p.dim}, data.k);
  const Tensor v = s.floats({p.length(), p.kv_heads, p.v_dim}, data.v);
  const Tensor q = s.floats({p.n, p.heads, p.dim}, data.q);
  const Tensor ids = s.ints({p.n, p.groups, p.most}, data.ids);
  const Tensor out = s.zeros({p.n, p.heads, p.v_dim});
  const auto attend = [&](const Tensor& to, const Tensor& queries, int64_t begin, int64_t rows,
                          const KeySelection& selected) {
    s.encoder().run(
        ops::Attention{to,
                       queries,
                       k.slice(0, begin, rows),
                       p.values_are_keys ? Tensor{} : v.slice(0, begin, rows),
                       testing::one_sequence(queries.dim(0), KvView{.k_pages = cache.keys,
                                                                    .v_pages = cache.values,
                                                                    .page_tokens = p.page_tokens,
                                                                    .length = begin}),
                       {.scale = 0.2f,
                        .sinks = p.has_sinks ? s.floats({p.heads}, data.sinks) : Tensor{},
                        .selected = selected}});
  };
  if (p.before > 0) {
    attend(s.zeros({p.before, p.heads, p.v_dim}), s.zeros({p.before, p.heads, p.dim}), 0, p.before,
           {});
  }
  int64_t done = 0;
  for (const int64_t rows : p.chunks) {
    attend(out.slice(0, done, rows), q.slice(0, done, rows), p.before + done, rows,
           {ids.slice(0, done, rows), p.unit, p.whole});
    done += rows;
  }
  return s.read(out);
}

constexpr size_t kScratch = size_t{4} << 20;

void expect_selected(const std::string& what, const SelectedProblem& p) {
  const SelectedData data = make_data(p);
  Session expected_session(reference(), kScratch);
  const std::vector<float> expected = attend_selected(expected_session, p, data);
  for (const NamedDevice& device : devices()) {
    const bool is_narrow = p.k_type != DType::kF32 || p.v_type != DType::kF32;
    if (is_narrow && !device.device->takes_narrow_cache()) continue;
    Session s(*device.device, kScratch);
    const std::vector<float> got = attend_selected(s, p, data);
    ASSERT_EQ(got.size(), expected.size());
    for (size_t i = 0; i < got.size(); ++i) {
      ASSERT_NEAR(got[i], expected[i], 3e-4f) << what << ", " << device.name << ", element " << i;
    }
  }
}

TEST(SelectedAttention, MatchesTheReference) {
  expect_selected("grouped heads", {});
  expect_selected("a list for each kv head", {.groups = 2, .most = 3, .unit = 8});
  expect_selected("blocks over pages", {.groups = 2, .most = 4, .unit = 8, .page_tokens = 3});
  expect_selected("whole candidates and what is behind them", {.before = 45,
                                                               .n = 9,
                                                               .most = 4,
                                                               .unit = 4,
                                                               .whole = true,
                                                               .page_tokens = 8,
                                                               .chunks = {4, 1, 1, 3}});
  expect_selected("sinks", {.has_sinks = true});
  expect_selected("from the first token on", {.before = 0, .n = 20, .chunks = {20}});
  expect_selected("parts of keys",
                  {.heads = 6, .kv_heads = 1, .dim = 72, .v_dim = 64, .values_are_keys = true});
  expect_selected("f16", {.k_type = DType::kF16, .v_type = DType::kF16});
  expect_selected("8 bits", {.before = 40, .heads = 3, .kv_heads = 1, .dim = 64, .v_dim = 64});
  expect_selected("odd sizes", {.heads = 5, .kv_heads = 5, .dim = 20, .v_dim = 33});
  expect_selected("hundreds of keys", {.before = 540,
                                       .n = 2,
                                       .heads = 1,
                                       .kv_heads = 1,
                                       .most = 520,
                                       .page_tokens = 256,
                                       .chunks = {1, 1}});
}

// Only the keys that a token attends to count: the bits are those of a cache that holds them alone.
TEST(SelectedAttention, HasTheBitsOfACacheOfTheKeysAlone) {
  for (const auto& [dim, v_dim, shared] : {std::tuple{32, 32, false}, {288, 256, true}}) {
    SelectedProblem p{.before = 100,
                      .n = 1,
                      .heads = 6,
                      .kv_heads = shared ? 1 : 2,
                      .dim = dim,
                      .v_dim = v_dim,
                      .most = 70,
                      .page_tokens = 64,
                      .values_are_keys = shared,
                      .chunks = {1}};
    SelectedData data = make_data(p);
    // With its own token, which the cache of the keys alone gets last.
    data.ids.back() = 100;
    SelectedProblem alone = p;
    alone.before = p.most - 1;
    SelectedData few = data;
    few.k.clear();
    few.v.clear();
    for (const int32_t id : data.ids) {
      const auto k = part(data.k, id, 1, p.kv_heads * p.dim);
      const auto v = part(data.v, id, 1, p.kv_heads * p.v_dim);
      few.k.insert(few.k.end(), k.begin(), k.end());
      few.v.insert(few.v.end(), v.begin(), v.end());
    }
    for (const NamedDevice& device : devices()) {
      Session chosen(*device.device, kScratch);
      Session dense(*device.device, kScratch);
      expect_same_bits(formatted("{}, heads of {}", device.name, dim),
                       attend_selected(dense, alone, few), attend_selected(chosen, p, data));
    }
  }
}

TEST(SelectedAttention, ATokensResultIsItsOwn) {
  for (const NamedDevice* device : one_device_per_family()) {
    SelectedProblem p{.before = 0,
                      .n = 60,
                      .heads = 4,
                      .kv_heads = 2,
                      .groups = 2,
                      .most = 3,
                      .unit = 4,
                      .chunks = {60}};
    const SelectedData data = make_data(p);
    const auto run = [&](std::vector<int64_t> chunks) {
      p.chunks = std::move(chunks);
      Session s(*device->device, kScratch);
      return attend_selected(s, p, data);
    };
    const std::vector<float> at_once = run({60});
    expect_same_bits(device->name, at_once, run(std::vector<int64_t>(60, 1)));
    expect_same_bits(device->name, at_once, run({5, 20, 35}));
  }
}

// --- layer_norm ---

TEST(LayerNorm, MatchesTheReference) {
  Random random(12);
  for (const int64_t cols : {1, 2, 7, 31, 33, 64, 100, 128, 257}) {
    for (const int64_t rows : {1, 3, 17}) {
      const std::vector<float> x = random.floats(rows * cols, -3.0f, 5.0f);
      const std::vector<float> w = random.floats(cols, 0.5f, 1.5f);
      // The mean loses roundings of numbers up to 5, of which a row's spread may be any.
      std::vector<float> tolerance(x.size(), cols < 3 ? 1e-2f : 2e-5f);
      compare_with_reference(
          {"layer_norm", formatted("{}x{}", rows, cols), cols, tolerance}, [&](Session& s) {
            const Tensor out = s.zeros({rows, cols});
            s.encoder().run(
                ops::LayerNorm{out, s.floats({rows, cols}, x), s.floats({cols}, w), 1e-6f});
            return s.read(out);
          });
    }
  }
}

}  // namespace
}  // namespace moeflux::conformance
