// Sequences that share steps have the logits they have alone, byte for byte: of every family, on
// every kind of device, in random company.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "tests/support/golden_families.h"
#include "tests/support/quantized_copy.h"
#include "tests/support/run_model.h"
#include "tests/support/temp_folder.h"

namespace moeflux::testing {
namespace {

using Tokens = std::vector<TokenId>;

/// Texts that one engine takes further in random steps.
class Company {
 public:
  Company(Engine& engine, const std::vector<Tokens>& texts, unsigned seed)
      : engine_(engine), random_(seed), order_(texts.size()) {
    for (size_t i = 0; i < texts.size(); ++i) order_[i] = i;
    for (const Tokens& text : texts) {
      auto sequence = engine.create_sequence();
      EXPECT_TRUE(sequence.ok());
      members_.push_back({.text = text, .sequence = std::move(sequence).value()});
    }
  }

  /// True while some text is not at its end. `expected` has the logits of each, of all its tokens.
  bool step(const std::vector<std::vector<float>>& expected) {
    std::shuffle(order_.begin(), order_.end(), random_);
    std::vector<StepItem> items;
    std::vector<size_t> whose;
    const bool decodes = random_() % 2 == 0;
    for (const size_t i : order_) {
      const Member& member = members_[i];
      const size_t done = static_cast<size_t>(member.sequence->length());
      const size_t left = member.text.size() - done;
      if (left == 0 || random_() % 4 == 0) continue;
      const size_t count = decodes ? 1 : std::min<size_t>(left, 1 + random_() % 9);
      items.push_back({.sequence = member.sequence.get(),
                       .tokens = std::span(member.text).subspan(done, count),
                       .options = {.logits = random_mode(), .phase = random_phase()}});
      items.back().sink = [&, i](int64_t first, std::span<const float> rows) {
        expect_rows(expected[i], first, rows);
        rows_seen_ += rows.size();
        return Status();
      };
      whose.push_back(i);
    }
    engine_.eval_step(items);
    for (size_t k = 0; k < items.size(); ++k) {
      EXPECT_TRUE(items[k].outcome.ok())
          << whose[k] << ": "
          << (items[k].outcome.ok() ? "" : items[k].outcome.error().to_string());
    }
    return std::ranges::any_of(members_, [](const Member& member) {
      return member.sequence->length() < static_cast<int64_t>(member.text.size());
    });
  }
  size_t rows_seen() const { return rows_seen_; }

 private:
  struct Member {
    Tokens text;
    std::unique_ptr<Sequence> sequence;
  };

  LogitsMode random_mode() {
    constexpr LogitsMode kModes[] = {LogitsMode::kLast, LogitsMode::kAll, LogitsMode::kNone};
    return kModes[random_() % 3];
  }
  StepPhase random_phase() { return random_() % 2 == 0 ? StepPhase::kPrompt : StepPhase::kDecode; }
  void expect_rows(const std::vector<float>& all, int64_t first,
                   std::span<const float> rows) const {
    const auto begin = all.begin() + first * engine_.spec().vocab_size;
    ASSERT_TRUE(std::equal(rows.begin(), rows.end(), begin)) << "position " << first;
  }

  Engine& engine_;
  std::mt19937 random_;
  std::vector<size_t> order_;
  std::vector<Member> members_;
  size_t rows_seen_ = 0;
};

/// Logits of all tokens of `text` in one step that it has to itself.
std::vector<float> logits_of(Engine& engine, const Tokens& text) {
  auto sequence = engine.create_sequence();
  EXPECT_TRUE(sequence.ok());
  std::vector<float> logits;
  const Status done =
      engine.eval(**sequence, text, {.logits = LogitsMode::kAll, .phase = StepPhase::kPrompt},
                  [&](int64_t, std::span<const float> rows) {
                    logits.insert(logits.end(), rows.begin(), rows.end());
                    return Status();
                  });
  EXPECT_TRUE(done.ok()) << (done.ok() ? "" : done.error().to_string());
  return logits;
}

// Family and device.
class BatchGolden : public ::testing::TestWithParam<std::tuple<std::string, std::string>> {
 protected:
  void SetUp() override {
    if (const std::string missing = missing_gpu(device()); !missing.empty()) {
      GTEST_SKIP() << "hardware: " << missing;
    }
  }
  std::string folder() const { return golden_folder(std::get<0>(GetParam())); }
  const std::string& device() const { return std::get<1>(GetParam()); }
  bool is_emulated() const { return device().starts_with("emulator"); }

  /// As many tokens as the emulator takes in a second or two.
  std::vector<Tokens> texts(int64_t vocab_size) const {
    std::mt19937 random(5);
    std::vector<Tokens> texts;
    const std::vector<size_t> lengths =
        is_emulated() ? std::vector<size_t>{6, 1, 4} : std::vector<size_t>{40, 7, 1, 23, 12};
    for (const size_t length : lengths) {
      Tokens& text = texts.emplace_back(length);
      for (TokenId& token : text) {
        token = static_cast<TokenId>(random() % static_cast<unsigned>(vocab_size));
      }
    }
    return texts;
  }

  /// `rounds` engines of different caches, threads and chunks.
  void check(const std::string& directory, Precision precision, int rounds) {
    const RunOptions run{.device = device(), .precision = precision};
    const auto open = [&](Device& device, const EngineOptions& options) {
      auto engine = Engine::open(directory, device, options);
      EXPECT_TRUE(engine.ok()) << (engine.ok() ? "" : engine.error().to_string());
      return std::move(engine).value();
    };
    const auto first_device = make_test_device(run);
    const auto alone =
        open(*first_device, {.context_length = 64, .expert_cache_bytes = uint64_t{1} << 30});
    const std::vector<Tokens> all_texts = texts(alone->spec().vocab_size);
    std::vector<std::vector<float>> expected;
    for (const Tokens& text : all_texts) expected.push_back(logits_of(*alone, text));
    for (int round = 0; round < rounds; ++round) {
      SCOPED_TRACE(round);
      RunOptions other = run;
      other.threads = 1 + round % 3;
      const auto device = make_test_device(other);
      const auto engine =
          open(*device, {.context_length = 64,
                         .expert_cache_bytes = round % 2 == 0 ? 0 : uint64_t{1} << 30,
                         .reader_threads = 1,
                         .prefill_chunk = round % 3 == 1 ? 5 : 0,
                         .lookahead = LookaheadMode::kOn});
      Company company(*engine, all_texts, static_cast<unsigned>(round + 1));
      while (company.step(expected)) {
        if (HasFailure()) return;
      }
      EXPECT_GT(company.rows_seen(), 0u);
    }
  }
};

TEST_P(BatchGolden, CompanyDoesNotChangeABit) {
  check(folder(), Precision::kF32, is_emulated() ? 1 : 4);
}

TEST_P(BatchGolden, CompanyDoesNotChangeABitOfTheFourBitTwin) {
  const TempFolder quantized;
  const TempFolder twin;
  write_quantized_copy(folder(), quantized.path(), twin.path(), {});
  check(quantized.path(), Precision::kF32, is_emulated() ? 1 : 3);
  if (device() == "cpu") check(quantized.path(), Precision::kInt8, 3);
}

INSTANTIATE_TEST_SUITE_P(
    All, BatchGolden,
    ::testing::Combine(::testing::ValuesIn(asked(golden_families())),
                       ::testing::ValuesIn(and_built_gpus({"cpu", "reference", "emulator",
                                                           "emulator with matrix units"}))),
    family_and_device);

}  // namespace
}  // namespace moeflux::testing
