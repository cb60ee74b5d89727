// Counts of a step of decode of several texts on a GPU: launches, copies and bytes over the bus.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "backend/gpu/gpu_device.h"
#include "engine/engine.h"
#include "tests/support/golden_file.h"
#include "tests/support/plan_trace.h"
#include "tests/support/quantized_copy.h"
#include "tests/support/temp_folder.h"

namespace moeflux::testing {
namespace {

struct StepCounts {
  std::map<std::string, uint64_t> launches;  // by kernel
  gpu::CopyCount written;
  gpu::CopyCount read;
  uint64_t graphs = 0;           // recorded in it
  uint64_t single_launches = 0;  // that were part of none

  uint64_t all() const {
    uint64_t sum = 0;
    for (const auto& [kernel, count] : launches) sum += count;
    return sum;
  }
  /// Launches of kernels whose names begin so.
  uint64_t all_of(std::string_view prefix) const {
    uint64_t sum = 0;
    for (const auto& [kernel, count] : launches) sum += kernel.starts_with(prefix) ? count : 0;
    return sum;
  }
};

/// Texts of different lengths on one engine.
class SeveralTexts {
 public:
  explicit SeveralTexts(const std::string& model)
      : device_(make_gpu_device(gpu::make_plan_trace_platform(log_, /*matrix_units=*/true,
                                                              /*free_bytes=*/uint64_t{1} << 31))) {
    auto engine = Engine::open(model, *device_,
                               {.context_length = 512,
                                .expert_cache_bytes = uint64_t{1} << 30,
                                .lookahead = LookaheadMode::kOff});
    EXPECT_TRUE(engine.ok()) << (engine.ok() ? "" : engine.error().to_string());
    if (engine.ok()) engine_ = std::move(*engine);
  }
  bool ok() const { return engine_ != nullptr; }

  /// A text of `length` tokens.
  void add(size_t length) {
    auto sequence = engine_->create_sequence();
    ASSERT_TRUE(sequence.ok());
    sequences_.push_back(std::move(*sequence));
    step({&sequences_.back(), 1}, {length});
  }
  void add_up_to(size_t texts) {
    while (sequences_.size() < texts) add(5 + 3 * sequences_.size());
  }
  size_t size() const { return sequences_.size(); }
  /// How many of the best logits text i wants; one otherwise.
  void want(std::function<int32_t(size_t)> wanted) { wanted_ = std::move(wanted); }
  void end(size_t which) { sequences_.erase(sequences_.begin() + static_cast<ptrdiff_t>(which)); }

  /// A token of each, of whose logits the best is wanted.
  StepCounts decode() { return step_of(1); }
  StepCounts step_of(size_t tokens) {
    return step_with(std::vector<size_t>(sequences_.size(), tokens));
  }
  /// So many tokens of each.
  StepCounts step_with(const std::vector<size_t>& tokens) {
    log_.lines.clear();
    log_.plans.clear();
    log_.written = log_.read = {};
    log_.graphs = log_.single_launches = 0;
    step(sequences_, tokens);
    StepCounts counts{{}, log_.written, log_.read, log_.graphs, log_.single_launches};
    for (const gpu::Plan& plan : log_.plans) {
      ++counts.launches[std::string(gpu::kernel_info(plan.kernel).name)];
    }
    return counts;
  }

 private:
  void step(std::span<std::unique_ptr<Sequence>> sequences, const std::vector<size_t>& tokens) {
    const std::vector<TokenId> ids(*std::ranges::max_element(tokens), 1);
    std::vector<StepItem> items;
    for (std::unique_ptr<Sequence>& sequence : sequences) {
      const size_t count = tokens[items.size()];
      StepItem& item = items.emplace_back();
      item.sequence = sequence.get();
      item.tokens = std::span(ids).first(count);
      item.options = {.logits = LogitsMode::kLast,
                      .best = {.count = wanted_(items.size()),
                               .of = static_cast<int32_t>(engine_->spec().vocab_size)},
                      .phase = count == 1 ? StepPhase::kDecode : StepPhase::kPrompt};
    }
    engine_->eval_step(items);
    for (const StepItem& item : items) {
      EXPECT_TRUE(item.outcome.ok()) << (item.outcome.ok() ? "" : item.outcome.error().to_string());
    }
  }

  gpu::PlanLog log_;
  std::function<int32_t(size_t)> wanted_ = [](size_t) { return 1; };
  std::unique_ptr<Device> device_;
  std::unique_ptr<Engine> engine_;
  std::vector<std::unique_ptr<Sequence>> sequences_;
};

constexpr std::array<size_t, 4> kTexts{1, 2, 8, 32};

/// A line for each kernel: launches of a step of so many texts. Copies and their bytes come first.
std::string table_of(const std::string& name) {
  const TempFolder quantized;
  const TempFolder twin;
  write_quantized_copy(tests_directory() + "/golden/models/" + name, quantized.path(), twin.path(),
                       {});
  SeveralTexts texts(quantized.path());
  if (!texts.ok()) return "";
  std::map<std::string, std::array<uint64_t, kTexts.size()>> rows;
  for (size_t column = 0; column < kTexts.size(); ++column) {
    texts.add_up_to(kTexts[column]);
    texts.decode();  // places the tables
    const StepCounts counts = texts.decode();
    rows[" launches"][column] = counts.all();
    rows[" writes"][column] = counts.written.copies;
    rows[" bytes written"][column] = counts.written.bytes;
    rows[" reads"][column] = counts.read.copies;
    rows[" bytes read"][column] = counts.read.bytes;
    for (const auto& [kernel, launches] : counts.launches) rows[kernel][column] = launches;
  }
  std::string table = name + "\n";
  for (const auto& [row, counts] : rows) {
    table += row;
    for (const uint64_t count : counts) table += " " + std::to_string(count);
    table += "\n";
  }
  return table;
}

TEST(SeveralTexts, CountsOfAStepOfDecode) {
  const std::string golden = tests_directory() + "/golden/plans/several-texts.txt";
  std::string tables;
  for (const std::string name :
       {"qwen3_5_moe_text", "qwen3_moe", "deepseek_v3", "deepseek_v4", "nemotron_h"}) {
    tables += table_of(name);
  }
  std::stringstream expected;
  expected << std::ifstream(golden).rdbuf();
  if (tables == expected.str()) return;
  const std::string got = ::testing::TempDir() + "several-texts.txt";
  std::ofstream(got) << tables;
  ADD_FAILURE() << "counts differ from " << golden << "; if that is meant, copy " << got;
}

/// The quantised copy of a golden model, on a device that counts.
class CountedModel {
 public:
  explicit CountedModel(const std::string& name) {
    write_quantized_copy(tests_directory() + "/golden/models/" + name, quantized_.path(),
                         twin_.path(), {});
    texts_.emplace(quantized_.path());
  }
  SeveralTexts& texts() { return *texts_; }

 private:
  TempFolder quantized_;
  TempFolder twin_;
  std::optional<SeveralTexts> texts_;
};

// Layers' states are in registers from the first token of a launch to the last.
TEST(SeveralTexts, SeveralTokensOfATextReadItsStatesOnce) {
  CountedModel model("qwen3_5_moe_text");
  SeveralTexts& texts = model.texts();
  ASSERT_TRUE(texts.ok());
  texts.add_up_to(1);
  for (const size_t tokens : {size_t{1}, size_t{4}, size_t{33}}) {
    const StepCounts counts = texts.step_of(tokens);
    EXPECT_EQ(counts.launches.at("gated_delta_heads"), 3) << tokens << " tokens";
  }
}

// Twelve texts, of which some bring a piece of their prompt beside single tokens of the others.
TEST(SeveralTexts, PiecesOfMorePromptsAreNoMoreLaunches) {
  const std::vector<std::vector<size_t>> pieces{{119}, {70, 50}, {33, 5, 62, 2, 21}};
  for (const std::string name : {"qwen3_5_moe_text", "nemotron_h", "inkling2_text"}) {
    std::optional<StepCounts> first;
    for (const std::vector<size_t>& own : pieces) {
      CountedModel model(name);
      SeveralTexts& texts = model.texts();
      ASSERT_TRUE(texts.ok());
      texts.add_up_to(12);
      std::vector<size_t> tokens(texts.size() - own.size(), 1);
      tokens.insert(tokens.end(), own.begin(), own.end());
      const StepCounts counts = texts.step_with(tokens);
      if (!first) first = counts;
      for (const std::string_view kernels :
           {"causal_conv", "gated_delta", "selective_scan", "token_conv"}) {
        EXPECT_EQ(counts.all_of(kernels), first->all_of(kernels))
            << name << ", " << kernels << ", " << own.size() << " pieces";
      }
    }
  }
}

// A launch of each kernel for all, where a text could have its own.
TEST(SeveralTexts, MoreTextsAreNoMoreLaunchesThatChooseKeysOrConvolveTokens) {
  constexpr std::array<std::string_view, 5> kKernels{"choose_best", "index_scores",
                                                     "mask_candidates", "token_conv", "pool_rows"};
  for (const std::string name :
       {"deepseek_v32", "deepseek_v4", "minimax_m3_vl_text", "inkling2_text"}) {
    CountedModel model(name);
    SeveralTexts& texts = model.texts();
    ASSERT_TRUE(texts.ok());
    texts.add_up_to(8);
    const StepCounts eight = texts.decode();
    texts.add_up_to(24);
    const StepCounts more = texts.decode();
    EXPECT_GT(eight.all_of("choose_best") + eight.all_of("token_conv"), 0) << name;
    for (const std::string_view kernels : kKernels) {
      EXPECT_EQ(more.all_of(kernels), eight.all_of(kernels)) << name << ", " << kernels;
    }
  }
}

// Values and ids of the 40 best cross the bus for all, for texts that want fewer as well.
TEST(SeveralTexts, WhateverTheyWantOfTheirLogitsIsOneRead) {
  CountedModel model("qwen3_5_moe_text");
  SeveralTexts& texts = model.texts();
  ASSERT_TRUE(texts.ok());
  texts.add_up_to(32);
  texts.want([](size_t i) { return i % 3 == 0 ? 40 : i % 3 == 1 ? 1 : 20; });
  texts.decode();
  const StepCounts counts = texts.decode();
  EXPECT_EQ(counts.read.copies, 1);
  EXPECT_EQ(counts.read.bytes, 32 * 40 * 8);
  EXPECT_EQ(counts.launches.at("top_values"), 1);
}

TEST(SeveralTexts, OtherTextsRecordNoOtherGraphs) {
  CountedModel model("qwen3_5_moe_text");
  SeveralTexts& texts = model.texts();
  ASSERT_TRUE(texts.ok());
  texts.add_up_to(8);
  for (int i = 0; i < 3; ++i) texts.decode();
  EXPECT_EQ(texts.decode().single_launches, 0);
  for (size_t i = 0; i < 20; ++i) {
    texts.end(i % 8);
    texts.add(7 + i % 8);
    const StepCounts counts = texts.decode();
    EXPECT_EQ(counts.graphs, 0) << "with text " << i << " in the place of another";
    EXPECT_EQ(counts.single_launches, 0) << "with text " << i << " in the place of another";
  }
}

// Steps of numbers of texts from 1 to 32, each of which comes and goes.
TEST(SeveralTexts, TextsThatComeAndGoRecordFewGraphs) {
  CountedModel model("qwen3_5_moe_text");
  SeveralTexts& texts = model.texts();
  ASSERT_TRUE(texts.ok());
  uint64_t graphs = 0;
  uint64_t late = 0;
  for (size_t i = 0; i < 200; ++i) {
    const size_t wanted = 1 + (i * 7) % 32;
    while (texts.size() > wanted) texts.end(i % texts.size());
    texts.add_up_to(wanted);
    const uint64_t recorded = texts.decode().graphs;
    graphs += recorded;
    if (i >= 100) late += recorded;
  }
  EXPECT_LE(graphs, 32 * 5);  // the runs of a step of so many texts
  EXPECT_EQ(late, 0);
}

}  // namespace
}  // namespace moeflux::testing
