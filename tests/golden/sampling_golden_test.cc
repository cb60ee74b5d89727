// Every sampler, alone and in chains, against NumPy's definition of it over 1,000 rows of awkward
// logits: the same tokens left, probabilities to 1e-6 (tools/oracles/sampling_golden.py, which has
// the same rows and options).
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "base/portable_math.h"
#include "sampling/dry.h"
#include "sampling/sampler.h"
#include "tests/support/golden_file.h"

namespace moeflux::testing {
namespace {

constexpr size_t kRows = 1000;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// SplitMix64.
class Numbers {
 public:
  explicit Numbers(uint64_t seed) : state_(seed) {}
  uint64_t next(uint64_t count) {
    state_ += 0x9E3779B97F4A7C15;
    uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
    return ((z ^ (z >> 31)) >> 33) % count;
  }

 private:
  uint64_t state_;
};

/// Sizes 1 to 1000; ties, all equal, one-hot over zeros and over minus infinity, half of them minus
/// infinity, far apart, next to each other.
std::vector<float> row_of(size_t r) {
  Numbers numbers(r);
  const size_t kind = r % 10;
  const auto size = static_cast<size_t>(1 + numbers.next(kind == 9 ? 1000 : kind == 8 ? 3 : 80));
  std::vector<float> row;
  for (size_t i = 0; i < size; ++i) {
    auto wide = static_cast<int64_t>(numbers.next(16384));
    const bool is_odd = wide % 2 == 1;
    if (kind == 1) wide = wide / 2048 * 2048;
    if (kind == 2) wide = 5120;
    if (kind == 3) wide = 0;
    if (kind == 6) wide = wide * 400 - 3276800;
    if (kind == 7) wide %= 32;
    const bool is_out = kind == 4 || (kind == 5 && is_odd);
    row.push_back(is_out ? -kInfinity : static_cast<float>(wide) / 1024.0f);
  }
  if (kind == 5 && *std::max_element(row.begin(), row.end()) == -kInfinity) row[0] = 1.0f;
  if (kind == 3 || kind == 4) row[numbers.next(size)] = 30.0f;
  return row;
}

std::vector<TokenId> text_of(size_t r) {
  Numbers numbers(r + 5000);
  std::vector<TokenId> text(numbers.next(90));
  const uint64_t kinds = 1 + numbers.next(6);
  for (TokenId& token : text) token = static_cast<TokenId>(numbers.next(kinds));
  return text;
}

template <typename T, size_t kCount>
T pick(const std::array<T, kCount>& values, size_t r) {
  return values[r % kCount];
}

std::shared_ptr<const DryBreakers> breakers_of(size_t r) {
  DryBreakers breakers;
  if (r % 4 == 1) breakers.add(0, {});
  if (r % 4 == 2) breakers.add(1, {2});
  if (r % 4 == 3) {
    breakers.add(2, {});
    breakers.add(2, {0});
    breakers.add(0, {1, 1});
  }
  return std::make_shared<const DryBreakers>(std::move(breakers));
}

SamplerOptions options_of(size_t r) {
  using Floats = std::array<float, 7>;
  return {.temperature = pick(Floats{0.8f, 1.5f, 0.6f, 1.0f, 0.3f, 2.5f, 0.7f}, r),
          .top_k = pick(std::array{40, 5, 17}, r),
          .top_p = pick(std::array{0.95f, 0.6f, 0.85f}, r),
          .min_p = pick(std::array{0.05f, 0.01f, 0.3f}, r),
          .repeat_penalty = 1.25f,
          .repeat_last_n = pick(std::array{64, 5, 9}, r),
          .presence_penalty = 0.125f,
          .frequency_penalty = 0.5f,
          .seed = r,
          .typical_p = pick(Floats{0.9f, 0.95f, 0.3f, 0.5f, 0.2f, 0.0f, 0.75f}, r),
          .top_n_sigma = pick(std::array{1.3f, 0.7f, 2.1f}, r),
          .xtc_probability = 1.0f,
          .xtc_threshold = pick(Floats{0.1f, 0.05f, 0.2f, 0.3f, 0.5f, 0.01f, 0.15f}, r),
          .dynatemp_range = pick(std::array{0.0f, 0.5f, 0.7f, 2.0f}, r),
          .dynatemp_exponent = pick(std::array{1.0f, 0.6f, 2.0f}, r),
          .dry_multiplier = pick(std::array{0.8f, 0.3f, 2.5f}, r),
          .dry_allowed_length = pick(std::array{2, 1, 0, 4, 3}, r),
          .dry_penalty_last_n = pick(std::array{64, 7, 20}, r),
          .dry_breakers = breakers_of(r),
          .samplers = {}};
}

SamplerOptions options_of(const std::string& name, size_t r) {
  constexpr std::array<std::string_view, 11> kOrders = {
      "edskypmxt", "txmpyksde", "tkpm", "ktyds", "mtxk", "ptske", "dext", "yxkst", "", "kt", "xpe"};
  SamplerOptions options = options_of(r);
  if (name == "mirostat" || name == "mirostat_2") {
    options.mirostat = name == "mirostat" ? 1 : 2;
    options.dynatemp_range = 0.0f;
  } else {
    options.samplers =
        name == "chain" ? *parse_sampler_letters(pick(kOrders, r)) : *parse_sampler_order(name);
  }
  return options;
}

struct Digest {
  size_t count = 0;
  uint32_t hash = 2166136261;
  double highest = 0.0;
  double mixed = 0.0;  // sum of probabilities, each times a number of its id
};

Digest digest_of(const Candidates& candidates) {
  const CandidateSums sums = sums_of(candidates);
  std::vector<TokenLogit> list = candidates.list;
  std::sort(list.begin(), list.end(),
            [](const TokenLogit& a, const TokenLogit& b) { return a.id < b.id; });
  Digest digest{.count = list.size()};
  for (const TokenLogit& c : list) {
    const auto id = static_cast<uint32_t>(c.id);
    for (int shift = 0; shift < 32; shift += 8) {
      digest.hash = (digest.hash ^ ((id >> shift) & 255)) * 16777619;
    }
    const double share = portable_exp(candidates.distance(c, sums.highest)) / sums.total;
    digest.highest = std::max(digest.highest, share);
    digest.mixed += share * (static_cast<double>(id * 2654435761u) / 4294967296.0);
  }
  return digest;
}

class SamplingGolden : public ::testing::TestWithParam<const char*> {};

TEST_P(SamplingGolden, LeavesWhatNumPyLeaves) {
  const std::string name = GetParam();
  auto golden = read_golden(tests_directory() + "/golden/sampling/sampling.safetensors");
  const GoldenTensor& sets = golden[name + ".sets"];
  const GoldenTensor& shares = golden[name + ".shares"];
  ASSERT_EQ(sets.ints.size(), 2 * kRows);
  ASSERT_EQ(shares.floats.size(), 2 * kRows);
  for (size_t r = 0; r < kRows; ++r) {
    auto sampler = Sampler::create(options_of(name, r));
    ASSERT_TRUE(sampler.ok()) << sampler.error().to_string();
    for (const TokenId token : text_of(r)) sampler->accept(token);
    constexpr std::array kMu = {10.1, 3.3, 0.7, 5.9, 2.2, -1.5, 7.7, 1.4, 4.6};
    sampler->set_progress({.draws_count = 0, .mirostat_mu = pick(kMu, r)});
    const auto token = sampler->sample(row_of(r));
    ASSERT_TRUE(token.ok()) << "row " << r << ": " << token.error().to_string();
    const Digest left = digest_of(sampler->candidates());
    EXPECT_EQ(left.count, static_cast<size_t>(sets.ints[2 * r])) << "row " << r;
    EXPECT_EQ(left.hash, static_cast<uint32_t>(sets.ints[2 * r + 1])) << "row " << r;
    EXPECT_NEAR(left.highest, shares.floats[2 * r], 1e-6) << "row " << r;
    EXPECT_NEAR(left.mixed, shares.floats[2 * r + 1], 1e-6) << "row " << r;
    const auto& list = sampler->candidates().list;
    EXPECT_EQ(1, std::count_if(list.begin(), list.end(),
                               [&](const TokenLogit& c) { return c.id == *token; }));
  }
}

INSTANTIATE_TEST_SUITE_P(All, SamplingGolden,
                         ::testing::Values("penalties", "dry", "top_n_sigma", "top_k", "typ_p",
                                           "top_p", "min_p", "xtc", "temperature", "mirostat",
                                           "mirostat_2", "chain"));

}  // namespace
}  // namespace moeflux::testing
