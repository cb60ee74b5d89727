// Attention on matrix units: against the reference, and the same bits for a query alone as among
// others.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <tuple>

#include "backend/gpu/gpu_device.h"
#include "base/format.h"
#include "quant/q8_rows.h"
#include "tests/conformance/models.h"
#include "tests/conformance/support.h"

namespace moeflux::conformance {
namespace {

/// The tolerance of f32 (attention_test.cc): halves of f16 keep 22 bits.
float tolerance_of(const AttentionProblem& p) {
  const auto d = static_cast<float>(p.head_dim);
  const float score = 0.2f * d / 3.0f;
  return kRounding * 2.0f *
         (8.0f + (4.0f + std::sqrt(d)) * score + std::sqrt(static_cast<float>(p.n)));
}

/// Whole against the reference, and every cut against the whole.
void check_units(const AttentionProblem& p, const std::vector<Chunks>& cuts,
                 bool fast_only = false) {
  const std::string label = formatted("{} heads of {}/{} on {}, {} tokens, window {}", p.heads,
                                      p.head_dim, p.v_head_dim, p.kv_heads, p.n, p.window);
  Session oracle(reference());
  const std::vector<float> expected = p.run(oracle, {p.n});
  const float tolerance = tolerance_of(p);
  for (const NamedDevice* named : devices_with_units(fast_only)) {
    SCOPED_TRACE(named->name);
    Session whole(*named->device);
    const std::vector<float> got = p.run(whole, {p.n});
    float worst = 0.0f;
    for (size_t i = 0; i < got.size(); ++i) {
      const float error = std::abs(got[i] - expected[i]);
      worst = error <= worst ? worst : error;  // keeps what is no number
    }
    EXPECT_LE(worst, tolerance) << label << ": " << worst / tolerance << " of the tolerance";
    for (const Chunks& chunks : cuts) {
      Session s(*named->device);
      expect_same_bits(formatted("{}, {} calls", label, chunks.size()), got, p.run(s, chunks));
    }
  }
}

TEST(AttentionOnMatrixUnits, MatchesTheReferenceAtEveryHeadSize) {
  Random random(70);
  for (const auto& [head_dim, v_head_dim] :
       {std::pair{16, 16}, {20, 36}, {48, 4}, {64, 64}, {80, 80}, {192, 128}, {256, 256}}) {
    check_units(AttentionProblem::make(random, 4, 2, head_dim, v_head_dim, 32, 9), {{4, 1, 4}});
  }
}

TEST(AttentionOnMatrixUnits, ServesEveryGroupingOfHeadsWithGroupsOfEverySize) {
  Random random(71);
  for (const auto& [heads, kv_heads, n] :
       {std::tuple{1, 1, 70}, {8, 1, 50}, {14, 2, 37}, {5, 5, 40}, {70, 1, 3}}) {
    check_units(AttentionProblem::make(random, heads, kv_heads, 32, 24, 32, n), {{n - 2, 1, 1}});
  }
}

// No kernel of units knows them.
TEST(AttentionOnMatrixUnits, LeavesBiasesByDistanceToOthers) {
  Random random(80);
  AttentionProblem p = AttentionProblem::make(random, 6, 2, 32, 24, 32, 70);
  p.add_biases(random, 50);
  check_units(p, {{66, 1, 3}});
}

TEST(AttentionOnMatrixUnits, GivesTheSameBitsWhateverItsKeysAreDividedInto) {
  Random random(72);
  for (const int64_t window : {0, 300}) {
    AttentionProblem p = AttentionProblem::make(random, 4, 1, 16, 20, 64, 560);
    p.window = window;
    if (window == 0) p.sinks = random.floats(4, -5.0f, 30.0f);
    check_units(p, {{530, 1, 29}, {100, 412, 1, 47}});
  }
}

TEST(AttentionOnMatrixUnits, MergesTheTilesOfTheLargestHeads) {
  Random random(78);
  check_units(AttentionProblem::make(random, 3, 1, 256, 256, 32, 70), {{66, 1, 3}});
}

// The emulator has room for a part of these keys in halves.
TEST(AttentionOnMatrixUnits, GoesOnWithRowsPieceByPiece) {
  Random random(77);
  AttentionProblem p = AttentionProblem::make(random, 4, 2, 64, 60, 64, 290);
  check_units(p, {{80, 210}, {289, 1}});
  p.window = 150;
  p.sinks = random.floats(4, -5.0f, 5.0f);
  check_units(p, {{80, 210}, {289, 1}});
}

// Rooms of one part: each is merged with what launches before left.
TEST(AttentionOnMatrixUnits, MergesPartsPieceByPiece) {
  Random random(81);
  const std::unique_ptr<Device> wide = make_emulator_device({.matrix_units = true});
  const std::unique_ptr<Device> narrow =
      make_emulator_device({.matrix_units = true, .workspace_bytes = 1});
  for (const auto& [heads, kv_heads, k_dim, v_dim, window] : {std::tuple{4, 2, 64, 64, 0},
                                                              {8, 1, 128, 128, 0},
                                                              {3, 1, 256, 256, 150},
                                                              {5, 1, 48, 40, 0},
                                                              {3, 1, 288, 256, 0}}) {
    AttentionProblem p = AttentionProblem::make(random, heads, kv_heads, k_dim, v_dim, 64, 300);
    p.window = window;
    p.sinks = random.floats(heads, -5.0f, 5.0f);
    Session whole(*wide);
    Session pieces(*narrow);
    expect_same_bits(formatted("heads of {}/{}", k_dim, v_dim), p.run(whole, {p.n}),
                     p.run(pieces, {p.n - 4, 1, 3}));
  }
}

TEST(AttentionOnMatrixUnits, WalksWindowsInRingsThatWrap) {
  Random random(73);
  for (const int64_t window : {1, 31, 33, 100}) {
    AttentionProblem p = AttentionProblem::make(random, 6, 2, 32, 20, window == 33 ? 32 : 64, 110);
    p.window = window;
    p.sinks = random.floats(6, -5.0f, 5.0f);
    check_units(p, {{60, 1, 1, 48}});
  }
}

TEST(AttentionOnMatrixUnits, BeginsChunksAtTheirMultiples) {
  Random random(79);
  for (const int64_t chunk : {1, 32, 50}) {
    AttentionProblem p = AttentionProblem::make(random, 6, 2, 32, 20, 64, 110);
    p.window = chunk;
    p.chunked = true;
    check_units(p, {{60, 1, 1, 48}});
  }
}

TEST(AttentionOnMatrixUnits, TakesValuesFromTheFirstPartOfWideKeys) {
  Random random(74);
  for (const auto& [k_dim, v_dim] : {std::pair{576, 512}, {40, 32}}) {
    AttentionProblem p = AttentionProblem::make(random, 20, 1, k_dim, v_dim, 32, 5);
    p.values_are_keys = true;
    check_units(p, {{3, 1, 1}});
  }
}

TEST(AttentionOnMatrixUnits, MatchesTheReferenceAtTheSizesOfRealModels) {
  if (devices_with_units(/*fast_only=*/true).empty()) {
    GTEST_SKIP() << "hardware: no device is fast enough";
  }
  Random random(79);
  const AttentionProblem qwen = AttentionProblem::make(random, 16, 2, 256, 256, 256, 600);
  check_units(qwen, {{512, 84, 1, 2, 1}, {597, 1, 1, 1}}, /*fast_only=*/true);
  AttentionProblem latent = AttentionProblem::make(random, 128, 1, 576, 512, 256, 150);
  latent.values_are_keys = true;
  check_units(latent, {{100, 44, 4, 1, 1}, {62, 1, 1, 2, 4, 80}}, /*fast_only=*/true);
}

/// Heads of `dim` numbers as pages of a type hold them.
void round_heads(std::vector<float>& numbers, int64_t dim, DType type) {
  if (type == DType::kF16) {
    for (float& x : numbers) x = to_float(to_f16(x));
    return;
  }
  std::vector<std::byte> row(static_cast<size_t>(q8_rows::row_bytes(dim)));
  for (size_t at = 0; at < numbers.size(); at += static_cast<size_t>(dim)) {
    const std::span<float> head = std::span(numbers).subspan(at, static_cast<size_t>(dim));
    q8_rows::encode(row, head);
    q8_rows::decode(head, row.data(), dim);
  }
}

// Every kernel that reads a page turns its numbers into the same f32. Rows are multiples of eight
// columns, which matrix units take of every type.
void check_halves(AttentionProblem p, const Chunks& chunks, bool fast_only = false,
                  DType type = DType::kF16) {
  AttentionProblem halves = p;
  halves.k_type = halves.v_type = type;
  round_heads(p.k, p.head_dim, type);
  round_heads(p.v, p.v_head_dim, type);
  const std::string label = formatted("{} heads of {}/{} on {}, {} tokens", p.heads, p.head_dim,
                                      p.v_head_dim, p.kv_heads, p.n);
  for (const NamedDevice* named : devices_with_units(fast_only)) {
    SCOPED_TRACE(named->name);
    Session s(*named->device);
    const std::vector<float> expected = p.run(s, {p.n});
    for (const Chunks& cut : {Chunks{p.n}, chunks}) {
      Session own(*named->device);
      expect_same_bits(label, expected, halves.run(own, cut));
    }
  }
}

TEST(AttentionOnMatrixUnits, PagesOfF16HaveTheBitsOfTheirNumbersInF32) {
  Random random(80);
  check_halves(AttentionProblem::make(random, 4, 2, 16, 40, 32, 9), {4, 1, 4});
  check_halves(AttentionProblem::make(random, 3, 1, 256, 256, 32, 70), {66, 1, 3});
  check_halves(AttentionProblem::make(random, 5, 1, 288, 264, 32, 40), {30, 1, 9});
  AttentionProblem ring = AttentionProblem::make(random, 4, 2, 64, 56, 64, 290);
  ring.window = 150;
  ring.sinks = random.floats(4, -5.0f, 5.0f);
  check_halves(ring, {80, 209, 1});
  AttentionProblem latent = AttentionProblem::make(random, 20, 1, 576, 512, 32, 37);
  latent.values_are_keys = true;
  check_halves(latent, {35, 1, 1});
}

// Many queries of f16 have a kernel of their own, which f32 has not.
TEST(AttentionOnMatrixUnits, LatentPromptsHaveTheBitsOfOtherRows) {
  Random random(84);
  // Behind the fourth split sums go on from tile to tile.
  AttentionProblem latent = AttentionProblem::make(random, 1, 1, 288, 64, 64, 1060);
  latent.values_are_keys = true;
  check_halves(latent, {1030, 30});
  AttentionProblem heads = AttentionProblem::make(random, 6, 2, 320, 288, 32, 70);
  heads.values_are_keys = true;
  heads.sinks = random.floats(6, -5.0f, 5.0f);
  check_halves(heads, {40, 30});
  AttentionProblem ring = AttentionProblem::make(random, 2, 1, 328, 256, 64, 330);
  ring.values_are_keys = true;
  ring.window = 150;
  check_halves(ring, {80, 249, 1});
}

// Rows enough for teams on the emulator, with more tiles than it has room for at once.
TEST(AttentionOnMatrixUnits, TeamsOfWideHeadsHaveTheBitsOfOtherRows) {
  Random random(85);
  AttentionProblem turns = AttentionProblem::make(random, 4, 2, 128, 104, 64, 200);
  turns.sinks = random.floats(4, -5.0f, 5.0f);
  check_halves(turns, {188, 11, 1});
  AttentionProblem together = AttentionProblem::make(random, 3, 1, 256, 200, 64, 150);
  together.window = 90;
  check_halves(together, {147, 1, 2});
}

TEST(AttentionOnMatrixUnits, PagesOf8BitsHaveTheBitsOfTheirNumbersInF32) {
  Random random(82);
  const auto check = [](const AttentionProblem& p, const Chunks& chunks) {
    check_halves(p, chunks, false, DType::kI8);
  };
  check(AttentionProblem::make(random, 4, 2, 32, 64, 32, 9), {4, 1, 4});
  check(AttentionProblem::make(random, 3, 1, 192, 128, 32, 40), {38, 1, 1});
  check(AttentionProblem::make(random, 3, 1, 256, 256, 32, 70), {66, 1, 3});
  check(AttentionProblem::make(random, 5, 1, 288, 320, 32, 40), {30, 1, 9});
  AttentionProblem ring = AttentionProblem::make(random, 4, 2, 64, 96, 64, 290);
  ring.window = 150;
  ring.sinks = random.floats(4, -5.0f, 5.0f);
  check(ring, {80, 209, 1});
  for (const auto& [k_dim, v_dim] : {std::pair{576, 512}, {96, 64}}) {
    AttentionProblem latent = AttentionProblem::make(random, 20, 1, k_dim, v_dim, 32, 37);
    latent.values_are_keys = true;
    check(latent, {35, 1, 1});
  }
}

TEST(AttentionOnMatrixUnits, TakesPagesOfF16AtTheSizesOfRealModels) {
  if (devices_with_units(/*fast_only=*/true).empty()) {
    GTEST_SKIP() << "hardware: no device is fast enough";
  }
  Random random(81);
  check_halves(AttentionProblem::make(random, 16, 2, 256, 256, 256, 600), {512, 84, 1, 2, 1},
               /*fast_only=*/true);
  AttentionProblem latent = AttentionProblem::make(random, 128, 1, 576, 512, 256, 150);
  latent.values_are_keys = true;
  check_halves(latent, {100, 44, 4, 1, 1}, /*fast_only=*/true);
}

TEST(AttentionOnMatrixUnits, TakesPagesOf8BitsAtTheSizesOfRealModels) {
  if (devices_with_units(/*fast_only=*/true).empty()) {
    GTEST_SKIP() << "hardware: no device is fast enough";
  }
  Random random(83);
  check_halves(AttentionProblem::make(random, 16, 2, 256, 256, 256, 600), {512, 84, 1, 2, 1},
               /*fast_only=*/true, DType::kI8);
  AttentionProblem latent = AttentionProblem::make(random, 128, 1, 576, 512, 256, 150);
  latent.values_are_keys = true;
  check_halves(latent, {100, 44, 4, 1, 1}, /*fast_only=*/true, DType::kI8);
}

TEST(AttentionOnMatrixUnits, KeepsItsDigitsAtEveryScale) {
  Random random(75);
  AttentionProblem p = AttentionProblem::make(random, 4, 2, 32, 32, 32, 20);
  // A key's size is that of its token, up to 2^20; queries make up for it. So do values, which the
  // result is compared by.
  for (int64_t t = 0; t < p.n; ++t) {
    const float size = std::ldexp(1.0f, static_cast<int>(t % 5 * 10 - 20));
    for (int64_t i = 0; i < 2 * 32; ++i) {
      p.k[static_cast<size_t>(t * 64 + i)] *= 0x1p20f;
      p.v[static_cast<size_t>(t * 64 + i)] *= size;
    }
    for (int64_t i = 0; i < 4 * 32; ++i) p.q[static_cast<size_t>(t * 128 + i)] *= 0x1p-20f;
  }
  Session oracle(reference());
  const std::vector<float> expected = p.run(oracle, {p.n});
  for (const NamedDevice* named : devices_with_units()) {
    SCOPED_TRACE(named->name);
    Session s(*named->device);
    const std::vector<float> got = p.run(s, {p.n});
    for (int64_t t = 0; t < p.n; ++t) {
      const std::span<const float> row = row_of(expected, t, 4 * 32);
      for (int64_t i = 0; i < 4 * 32; ++i) {
        EXPECT_NEAR(row_of(got, t, 4 * 32)[static_cast<size_t>(i)], row[static_cast<size_t>(i)],
                    tolerance_of(p) * largest(row))
            << "token " << t << ", element " << i;
      }
    }
  }
}

TEST(AttentionOnMatrixUnits, WhatIsNotFiniteStaysWithThoseWhoSeeIt) {
  Random random(76);
  AttentionProblem whole = AttentionProblem::make(random, 2, 1, 16, 16, 32, 12);
  AttentionProblem broken = whole;
  broken.k[7 * 16 + 3] = HUGE_VALF;
  broken.v[9 * 16 + 4] = std::nanf("");
  for (const NamedDevice* named : devices_with_units()) {
    SCOPED_TRACE(named->name);
    Session clean(*named->device);
    const std::vector<float> expected = whole.run(clean, {12});
    Session s(*named->device);
    const std::vector<float> got = broken.run(s, {12});
    const auto before = static_cast<size_t>(7 * 2 * 16);
    expect_same_bits("tokens before", std::span(expected).first(before),
                     std::span(got).first(before));
    for (size_t i = 9 * 2 * 16; i < got.size(); ++i) EXPECT_TRUE(std::isnan(got[i])) << i;
  }
}

}  // namespace
}  // namespace moeflux::conformance
