#include "chat/drafts/draft_model.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "base/json.h"
#include "chat/model_text.h"
#include "chat/open_model.h"
#include "tests/support/expect_error.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tiny_model.h"

namespace moeflux {
namespace {

using testing::expect_error;

constexpr int kWords = 6;

struct Change {
  TokenId id = 0;
  std::string text = {};
};

/// A tokenizer.json of six words and special tokens behind them, with changes.
std::string vocabulary(const std::vector<std::string>& special, const Change& change = {}) {
  Json words = Json::object();
  for (int id = 0; id < kWords; ++id) {
    const bool is_changed = change.id == id && !change.text.empty();
    words[is_changed ? change.text : std::string(1, static_cast<char>('a' + id))] = id;
  }
  Json added = Json::array();
  for (size_t i = 0; i < special.size(); ++i) {
    added.push_back({{"id", kWords + i},
                     {"content", special[i]},
                     {"special", true},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false}});
  }
  const Json file = {{"model", {{"type", "BPE"}, {"vocab", words}, {"merges", Json::array()}}},
                     {"added_tokens", added},
                     {"normalizer", nullptr},
                     {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}}},
                     {"decoder", {{"type", "ByteLevel"}}}};
  return file.dump();
}

Tokenizer tokenizer(const std::string& file) {
  auto parsed = Tokenizer::parse(file, "tokenizer.json");
  EXPECT_TRUE(parsed.ok()) << (parsed.ok() ? "" : parsed.error().to_string());
  return std::move(parsed).value();
}

Status check(const std::string& model, const std::string& drafting) {
  const Tokenizer ours = tokenizer(model);
  const Tokenizer theirs = tokenizer(drafting);
  return check_same_vocabulary({"big", ours}, {"small", theirs});
}

TEST(DraftVocabulary, SpecialTokensMayDifferAndOthersMayNot) {
  EXPECT_TRUE(check(vocabulary({}), vocabulary({})).ok());
  EXPECT_TRUE(check(vocabulary({"<s>", "</s>"}), vocabulary({"<s>", "<end>", "<pad>"})).ok());
  expect_error(check(vocabulary({}), vocabulary({}, {.id = 3, .text = "x"})),
               ErrorCode::kInvalidArgument,
               {"small", "big", "token 3 is 'x'", "'d'", "--draft-model"});
}

TEST(DraftVocabulary, SizesMayDifferByPaddingAlone) {
  std::vector<std::string> many;
  for (int i = 0; i < 1100; ++i) many.push_back(std::string("<") + std::to_string(i) + ">");
  expect_error(check(vocabulary({}), vocabulary(many)), ErrorCode::kInvalidArgument,
               {"1106 tokens", "instead of", "6"});
}

/// Two folders with the tiny model and vocabularies of their own.
class OpenDraftModel : public ::testing::Test {
 protected:
  OpenDraftModel() {
    for (const testing::TempFolder* folder : {&big_, &small_}) {
      testing::make_tiny_model({}).write(folder->path());
      testing::write_bytes(*folder / "tokenizer.json", vocabulary({}));
    }
  }
  Result<std::shared_ptr<OpenModel>> open(std::function<HostMemory()> memory = {}) {
    OpenModelOptions options{.device = {.threads = 1, .precision = "f32"}};
    options.engine.reader_threads = 1;
    options.engine.context_length = 64;
    if (memory) options.engine.read_memory = std::move(memory);
    options.drafts = {.mode = mode_, .model = small_.path()};
    auto text = load_model_text(big_.path());
    EXPECT_TRUE(text.ok());
    return open_model(big_.path(), options, std::move(text).value());
  }

  testing::TempFolder big_;
  testing::TempFolder small_;
  DraftMode mode_ = DraftMode::kAuto;
};

TEST_F(OpenDraftModel, IsOpenedBesideTheOtherUnlessDraftsAreOff) {
  auto model = open();
  ASSERT_TRUE(model.ok()) << model.error().to_string();
  ASSERT_TRUE((*model)->drafts.make_source);
  EXPECT_NE((*model)->drafts.make_source(), nullptr);
  mode_ = DraftMode::kOff;
  model = open();
  ASSERT_TRUE(model.ok());
  EXPECT_FALSE((*model)->drafts.make_source);
}

TEST_F(OpenDraftModel, OfAnotherVocabularyIsRefusedByBothNames) {
  testing::write_bytes(small_ / "tokenizer.json", vocabulary({}, {.id = 0, .text = "x"}));
  expect_error(open(), ErrorCode::kInvalidArgument,
               {big_.path(), small_.path(), "token 0 is 'x'", "'a'"});
}

TEST_F(OpenDraftModel, TakesOfTheMemoryThatTheOtherIsPlannedWith) {
  const auto memory = [&] {
    return HostMemory{.total_bytes = 64 * kMiB, .available_bytes = 64 * kMiB};
  };
  const auto with = open(memory);
  ASSERT_TRUE(with.ok()) << with.error().to_string();
  mode_ = DraftMode::kOff;
  const auto without = open(memory);
  ASSERT_TRUE(without.ok());
  const MemoryPlan& alone = (*without)->engine->memory_plan();
  // States of a context, and all experts.
  EXPECT_LE(
      (*with)->engine->memory_plan().available_bytes + alone.state_bytes + alone.expert_cache_bytes,
      alone.available_bytes);
}

}  // namespace
}  // namespace moeflux
