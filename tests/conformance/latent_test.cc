// Latent attention in launches of its own against the operations that it is made of: the same bits,
// in what it gives, in the latents and in their pages.
#include <gtest/gtest.h>

#include "base/format.h"
#include "tests/conformance/models.h"
#include "tests/conformance/support.h"
#include "tests/support/one_sequence.h"

namespace moeflux::conformance {
namespace {

struct LatentProblem {
  int64_t n = 1;
  int64_t before = 3;  // tokens in the cache
  int64_t heads = 3;
  int64_t rank = 64;
  int64_t nope = 16;
  int64_t rope = 8;
  int64_t v_dim = 16;
  QuantFormat format = QuantFormat::affine(4, 32, DType::kBf16);
  bool interleaved = true;
  bool stacked = false;  // keys' matrices transposed, in a format of their own
  QuantFormat k_format = QuantFormat::affine(4, 32, DType::kBf16);
  int64_t page_tokens = 256;
  DType page_type = DType::kF32;
  int64_t window = 0;
  bool sinks = false;
  bool are_made = false;  // latents as another layer has left them
};

std::vector<std::vector<float>> run(Device& device, const LatentProblem& p, bool made_of_others) {
  Random random(static_cast<uint64_t>(p.n + p.before * 10 + p.rank));
  Session s(device, size_t{4} << 20);
  const auto floats = [&](const Shape& shape) {
    return s.floats(shape, random.floats(shape.num_elements()));
  };
  const Tensor q = floats({p.n, p.heads, p.nope + p.rope});
  const Tensor latent = floats({p.n, p.rank + p.rope});
  const Tensor norm = floats({p.rank});
  const Tensor frequencies = p.rope > 0 ? floats({p.rope / 2}) : Tensor{};
  std::vector<int32_t> numbers;
  for (int64_t i = 0; i < p.n; ++i) numbers.push_back(static_cast<int32_t>(p.before + i));
  const Tensor positions = s.ints({p.n}, numbers);
  std::vector<Tensor> keys;
  std::vector<Tensor> values;
  for (int64_t i = 0; i < (p.before + p.n + p.page_tokens - 1) / p.page_tokens; ++i) {
    const Shape shape{p.page_tokens, 1, p.rank + p.rope};
    keys.push_back(s.floats(shape, random.floats(shape.num_elements()), p.page_type));
    values.push_back(keys.back().slice(2, 0, p.rank));
  }
  const int64_t per_head = p.nope + p.v_dim;
  const EncodedWeight both = random_weight(random, p.format, p.heads * per_head, p.rank);
  const EncodedWeight k_only =
      p.stacked ? random_weight(random, p.k_format, p.heads * p.rank, p.nope) : both;
  LatentHeads heads{
      .norm = norm,
      .norm_eps = 1e-6f,
      .inverse_frequencies = frequencies,
      .rope = {.rotary_dim = p.rope, .interleaved = p.interleaved, .attention_factor = 1.25f},
      .k_up = s.weight(k_only),
      .k_rows = {per_head, 0, p.nope},
      .k_up_is_transposed = p.stacked,
      .v_up = s.weight(both),
      .v_rows = {per_head, p.nope, p.v_dim},
      .scale = 0.2f,
      .window = p.window,
      .sinks = p.sinks ? floats({p.heads}) : Tensor{},
      .are_made = p.are_made};
  if (p.are_made) heads.norm = {};
  if (p.stacked) heads.k_rows = {p.rank, 0, p.rank};
  const Tensor out = s.zeros({p.n, p.heads, p.v_dim});
  const KvView kv{
      .k_pages = keys, .v_pages = values, .page_tokens = p.page_tokens, .length = p.before};
  const KvRows all{q.dim(0), kv};
  const ops::LatentAttention op{out, q, latent, positions, std::span(&all, 1), heads};
  if (made_of_others) {
    op.compose(s.encoder());
  } else {
    s.encoder().run(op);
  }
  std::vector<std::vector<float>> written = {s.read(out), s.read(latent)};
  for (const Tensor& page : keys) written.push_back(s.read(page));
  return written;
}

void expect_same(const LatentProblem& p, bool fast_only = false) {
  const std::string what =
      formatted("{} tokens behind {}, {} heads of {} + {} and {}, rank {}, {}", p.n, p.before,
                p.heads, p.nope, p.rope, p.v_dim, p.rank, p.format.to_string());
  std::vector<const NamedDevice*> gpus = devices_with_units(fast_only);
  for (const NamedDevice* device : one_device_per_family()) {
    if (device->family == "emulator" && !fast_only) gpus.push_back(device);
  }
  for (const NamedDevice* named : gpus) {
    expect_same_results(formatted("{}, {}", named->name, what), run(*named->device, p, true),
                        run(*named->device, p, false));
  }
}

TEST(LatentAttention, HasTheBitsOfItsParts) {
  for (const int bits : {4, 8}) {
    const QuantFormat format = QuantFormat::affine(bits, 64, DType::kBf16);
    expect_same({.format = format});
    expect_same({.n = 2, .rope = 0, .format = format});
    expect_same({.n = 3, .before = 0, .format = format});
    expect_same(
        {.n = 2, .heads = 2, .rank = 512, .nope = 128, .rope = 64, .v_dim = 128, .format = format});
  }
}

TEST(LatentAttention, HasTheBitsOfItsPartsOverPagesOfF16) {
  expect_same({.page_type = DType::kF16});
  expect_same({.n = 2, .rank = 160, .nope = 131, .rope = 6, .v_dim = 1, .page_type = DType::kF16});
  for (const int64_t before : {0, 62, 300}) {
    expect_same({.n = 3,
                 .before = before,
                 .heads = 2,
                 .rank = 512,
                 .nope = 128,
                 .rope = 64,
                 .v_dim = 128,
                 .format = QuantFormat::affine(4, 64, DType::kBf16),
                 .page_type = DType::kF16});
  }
}

TEST(LatentAttention, HasTheBitsOfItsPartsInOddShapes) {
  expect_same({.rank = 96, .nope = 13, .v_dim = 67, .interleaved = false});
  expect_same({.n = 2, .rank = 160, .nope = 131, .rope = 6, .v_dim = 1, .page_tokens = 3});
  expect_same({.rank = 128, .format = QuantFormat::affine(8, 128, DType::kF16)});
}

TEST(LatentAttention, HasTheBitsOfItsPartsWhereKeysAreStackedByLatents) {
  for (const int bits : {4, 8}) {
    const QuantFormat format = QuantFormat::affine(bits, 64, DType::kBf16);
    expect_same({.n = 2,
                 .heads = 2,
                 .rank = 512,
                 .nope = 128,
                 .rope = 64,
                 .v_dim = 128,
                 .format = format,
                 .stacked = true,
                 .k_format = format});
    expect_same({.rank = 96,
                 .nope = 320,
                 .stacked = true,
                 .k_format = QuantFormat::affine(bits, 32, DType::kF16)});
  }
}

TEST(LatentAttention, HasTheBitsOfItsPartsWithWindowsSinksAndLatentsOfAnotherLayer) {
  expect_same({.n = 2, .window = 9});
  expect_same({.n = 3, .sinks = true});
  expect_same({.n = 2, .before = 70, .window = 16, .sinks = true});
  expect_same({.n = 2, .are_made = true});
}

TEST(LatentAttention, MergesTheSplitsOfADeepSequence) {
  expect_same({.before = 300, .heads = 2, .page_tokens = 512});
  expect_same({.n = 2, .before = 511, .heads = 2, .page_tokens = 512});
}

// A few heads have a group for each tile of keys; the parts that latent attention is made of have
// one for a split of them.
TEST(LatentAttention, MergesTilesOfWideRowsAsSplitsAre) {
  const LatentProblem wide{.heads = 2, .rank = 256, .nope = 8, .rope = 16, .v_dim = 4};
  for (const auto& [n, before] :
       {std::pair{1, 31}, {1, 32}, {3, 62}, {2, 190}, {1, 300}, {1, 1060}}) {
    LatentProblem p = wide;
    p.n = n;
    p.before = before;
    p.page_tokens = before < 64 ? 32 : 512;
    expect_same(p);
  }
  LatentProblem many_heads = wide;
  many_heads.heads = 20;
  many_heads.before = 70;
  expect_same(many_heads);
}

/// A token of each of several sequences, which have so many tokens before: in one operation, or in
/// one for each.
std::vector<std::vector<float>> run_each(Device& device, const LatentProblem& p,
                                         const std::vector<int64_t>& before, bool together) {
  Random random(static_cast<uint64_t>(p.rank));
  Session s(device, size_t{16} << 20);
  const auto floats = [&](const Shape& shape) {
    return s.floats(shape, random.floats(shape.num_elements()));
  };
  const auto n = static_cast<int64_t>(before.size());
  const Tensor q = floats({n, p.heads, p.nope + p.rope});
  const Tensor latent = floats({n, p.rank + p.rope});
  const Tensor positions = s.ints({n}, std::vector<int32_t>(before.begin(), before.end()));
  std::vector<std::vector<Tensor>> keys(before.size());
  std::vector<std::vector<Tensor>> values(before.size());
  std::vector<KvRows> sequences;
  for (size_t i = 0; i < before.size(); ++i) {
    for (int64_t t = 0; t <= before[i]; t += p.page_tokens) {
      const Shape shape{p.page_tokens, 1, p.rank + p.rope};
      keys[i].push_back(s.floats(shape, random.floats(shape.num_elements()), p.page_type));
      values[i].push_back(keys[i].back().slice(2, 0, p.rank));
    }
    sequences.push_back({1, {keys[i], values[i], p.page_tokens, before[i]}});
  }
  const int64_t per_head = p.nope + p.v_dim;
  const EncodedWeight both = random_weight(random, p.format, p.heads * per_head, p.rank);
  const LatentHeads heads{.norm = floats({p.rank}),
                          .norm_eps = 1e-6f,
                          .inverse_frequencies = floats({p.rope / 2}),
                          .rope = {.rotary_dim = p.rope},
                          .k_up = s.weight(both),
                          .k_rows = {per_head, 0, p.nope},
                          .v_up = s.weight(both),
                          .v_rows = {per_head, p.nope, p.v_dim},
                          .scale = 0.2f};
  const Tensor out = s.zeros({n, p.heads, p.v_dim});
  const ops::LatentAttention all{out, q, latent, positions, sequences, heads};
  if (together) {
    s.encoder().run(all);
  } else {
    for_each_part(all, [&](const ops::LatentAttention& one) { s.encoder().run(one); });
  }
  std::vector<std::vector<float>> written = {s.read(out), s.read(latent)};
  for (const std::vector<Tensor>& pages : keys) {
    for (const Tensor& page : pages) written.push_back(s.read(page));
  }
  return written;
}

void expect_same_of_each(const LatentProblem& p, const std::vector<int64_t>& before) {
  for (const NamedDevice& named : devices()) {
    expect_same_results(formatted("{}, {} sequences, rank {}", named.name, before.size(), p.rank),
                        run_each(*named.device, p, before, false),
                        run_each(*named.device, p, before, true));
  }
}

TEST(LatentAttention, TokensOfSeveralSequencesHaveTheBitsOfEachAlone) {
  const LatentProblem narrow{.heads = 2, .page_tokens = 32};
  expect_same_of_each(narrow, {0, 1});
  expect_same_of_each(narrow, {3, 200, 0, 64, 31, 63, 130});
  std::vector<int64_t> many;
  for (int64_t i = 0; i < 40; ++i) many.push_back(i * 7 % 50);
  expect_same_of_each(narrow, many);
  LatentProblem wide{.heads = 2, .rank = 256, .nope = 8, .rope = 16, .v_dim = 4, .page_tokens = 32};
  expect_same_of_each(wide, {70, 3, 0, 31, 32});
  expect_same_of_each(wide, {700, 3});
  wide.heads = 20;
  expect_same_of_each(wide, {300, 20});
}

TEST(LatentAttention, HasTheBitsOfItsPartsAtTheSizesOfRealModels) {
  if (devices_with_units(/*fast_only=*/true).empty()) {
    GTEST_SKIP() << "hardware: no device is fast enough";
  }
  for (const auto& [n, before] : {std::pair{1, 0},
                                  {1, 63},
                                  {2, 63},
                                  {4, 600},
                                  {3, 1023},
                                  {1, 1023},
                                  {1, 1024},
                                  {1, 2100},
                                  {2, 8191}}) {
    LatentProblem p{.n = n,
                    .before = before,
                    .heads = 128,
                    .rank = 512,
                    .nope = 128,
                    .rope = 64,
                    .v_dim = 128,
                    .format = QuantFormat::affine(4, 64, DType::kBf16)};
    expect_same(p, /*fast_only=*/true);
    p.page_type = DType::kF16;
    expect_same(p, /*fast_only=*/true);
    p.stacked = true;
    p.k_format = p.format;
    expect_same(p, /*fast_only=*/true);
    p.page_type = DType::kF32;
    expect_same(p, /*fast_only=*/true);
  }
}

TEST(LatentAttention, ValuesReadAsPartsOfKeysHaveTheBitsOfPagesOfTheirOwn) {
  constexpr int64_t kHeads = 18;
  constexpr int64_t kDim = 288;
  constexpr int64_t kValueDim = 270;
  constexpr int64_t kBefore = 40;
  constexpr int64_t kPage = 64;
  Random random(9);
  const std::vector<float> q = random.floats(2 * kHeads * kDim);
  const std::vector<float> k = random.floats(2 * kDim);
  const std::vector<float> page = random.floats(kPage * kDim);
  std::vector<float> values;
  for (int64_t i = 0; i < kPage; ++i) {
    const auto row = page.begin() + i * kDim;
    values.insert(values.end(), row, row + kValueDim);
  }
  const auto attend = [&](Device& device, bool shared) {
    Session s(device);
    const Tensor new_key = s.floats({2, 1, kDim}, k);
    const Tensor keys = s.floats({kPage, 1, kDim}, page);
    const Tensor own = s.floats({kPage, 1, kValueDim}, values);
    const Tensor out = s.zeros({2, kHeads, kValueDim});
    const Tensor v_page = shared ? keys.slice(2, 0, kValueDim) : own;
    s.encoder().run(ops::Attention{
        out,
        s.floats({2, kHeads, kDim}, q),
        new_key,
        shared ? Tensor{} : new_key.slice(2, 0, kValueDim),
        testing::one_sequence(s.floats({2, kHeads, kDim}, q).dim(0), {.k_pages = {&keys, 1},
                                                                      .v_pages = {&v_page, 1},
                                                                      .page_tokens = kPage,
                                                                      .length = kBefore}),
        {.scale = 0.1f}});
    return s.read(out);
  };
  for (const NamedDevice* named : devices_with_units()) {
    expect_same_bits(named->name, attend(*named->device, false), attend(*named->device, true));
  }
}

TEST(LatentAttention, WhatItsKernelsDoNotReadIsMadeOfItsParts) {
  expect_same({.format = QuantFormat::plain(DType::kBf16)});
  expect_same({.format = QuantFormat::affine(5, 32, DType::kBf16)});
  expect_same({.rank = 544});
  expect_same({.n = 5});
  expect_same({.stacked = true, .k_format = QuantFormat::plain(DType::kBf16)});
}

TEST(LatentAttention, MatchesTheReference) {
  for (const LatentProblem& p :
       {LatentProblem{.n = 1, .before = 40}, LatentProblem{.n = 4, .before = 5, .heads = 2}}) {
    const auto expected = run(reference(), p, false);
    for (const NamedDevice& device : devices()) {
      const auto got = run(*device.device, p, false);
      ASSERT_EQ(got.size(), expected.size());
      for (size_t i = 0; i < got.size(); ++i) {
        ASSERT_EQ(got[i].size(), expected[i].size());
        for (size_t k = 0; k < got[i].size(); ++k) {
          ASSERT_NEAR(got[i][k], expected[i][k], 2e-4f) << device.name << ", result " << i;
        }
      }
    }
  }
}

}  // namespace
}  // namespace moeflux::conformance
