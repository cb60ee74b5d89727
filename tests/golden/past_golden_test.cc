// A sequence that was saved, rewound, forked or reused has the logits of a fresh evaluation of its
// tokens, byte for byte: for every family, and for the embedded model.
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "tests/support/eval_last.h"
#include "tests/support/golden_families.h"
#include "tests/support/golden_file.h"
#include "tests/support/run_model.h"
#include "tests/support/temp_folder.h"

namespace moeflux::testing {
namespace {

using Tokens = std::vector<TokenId>;
using Logits = std::vector<float>;
using SequencePtr = std::unique_ptr<Sequence>;

/// Names of models may end so: keys and values are kept in 8 bits then.
constexpr std::string_view kIn8Bits = "_in_q8_0";

std::string directory_of(std::string model) {
  if (model.ends_with(kIn8Bits)) model.resize(model.size() - kIn8Bits.size());
  return model == "fable_20m" ? std::string(MOEFLUX_SOURCE_DIR) + "/models/fable-20m"
                              : golden_folder(model);
}

/// One engine on one model.
class PastSubject {
 public:
  explicit PastSubject(const std::string& directory, EngineOptions options = {},
                       const std::string& device = "cpu")
      : device_(make_test_device({.device = device, .threads = 1})) {
    options.expert_cache_bytes = uint64_t{1} << 30;
    options.reader_threads = 1;
    auto engine = Engine::open(directory, *device_, options);
    EXPECT_TRUE(engine.ok()) << (engine.ok() ? "" : engine.error().to_string());
    if (engine.ok()) engine_ = std::move(engine).value();
  }

  Engine& engine() { return *engine_; }
  SequencePtr start() {
    auto sequence = engine_->create_sequence();
    EXPECT_TRUE(sequence.ok());
    return std::move(sequence).value();
  }
  /// The logits of the last token.
  Logits eval(Sequence& sequence, std::span<const TokenId> tokens) {
    const auto last = eval_last(*engine_, sequence, tokens);
    EXPECT_TRUE(last.ok()) << (last.ok() ? "" : last.error().to_string());
    return last.ok() ? Logits(last->begin(), last->end()) : Logits();
  }
  Logits fresh(std::span<const TokenId> tokens) { return eval(*start(), tokens); }
  /// The logits of every token of a fresh sequence.
  std::vector<Logits> all(const Tokens& tokens) {
    std::vector<Logits> rows;
    const auto width = static_cast<size_t>(engine_->spec().vocab_size);
    const Status done = engine_->eval(*start(), tokens, {.logits = LogitsMode::kAll},
                                      [&](int64_t, std::span<const float> logits) {
                                        for (; !logits.empty(); logits = logits.subspan(width)) {
                                          rows.emplace_back(logits.begin(), logits.begin() + width);
                                        }
                                        return Status();
                                      });
    EXPECT_TRUE(done.ok());
    return rows;
  }
  Tokens text(size_t length, unsigned seed = 1) {
    std::mt19937 random(seed);
    Tokens tokens(length);
    for (TokenId& token : tokens) {
      token = static_cast<TokenId>(random() % static_cast<unsigned>(engine_->spec().vocab_size));
    }
    return tokens;
  }

 private:
  std::unique_ptr<Device> device_;
  std::unique_ptr<Engine> engine_;
};

template <typename T>
T expect_value(Result<T> result) {
  EXPECT_TRUE(result.ok()) << (result.ok() ? "" : result.error().to_string());
  return result.ok() ? std::move(result).value() : T();
}

void expect_ok(const Status& status) {
  EXPECT_TRUE(status.ok()) << (status.ok() ? "" : status.error().to_string());
}

class PastGolden : public ::testing::TestWithParam<std::string> {
 protected:
  static constexpr size_t kText = 40;

  /// The options of an engine on this model.
  static EngineOptions with(EngineOptions options) {
    if (GetParam().ends_with(kIn8Bits)) options.cache_type_k = options.cache_type_v = DType::kI8;
    return options;
  }

  std::string directory_ = directory_of(GetParam());
  PastSubject subject_{directory_, with({})};
};

TEST_P(PastGolden, SnapshotGoesOnInAnotherEngine) {
  const Tokens text = subject_.text(kText);
  const std::vector<Logits> expected = subject_.all(text);
  PastSubject other(directory_, with({.context_length = 64, .prefill_chunk = 3}));
  ASSERT_EQ(other.engine().fingerprint(), subject_.engine().fingerprint());
  const std::vector<std::byte> extra = {std::byte{1}, std::byte{2}, std::byte{3}};
  for (const size_t cut : {size_t{0}, size_t{1}, size_t{20}, kText - 1}) {
    const SequencePtr from = subject_.start();
    if (cut > 0) subject_.eval(*from, std::span(text).first(cut));
    const auto snapshot = expect_value(subject_.engine().save(*from, extra));
    const SequencePtr to = other.start();
    other.eval(*to, other.text(7, 2));  // which the snapshot replaces
    EXPECT_EQ(expect_value(other.engine().load(*to, snapshot)), extra);
    EXPECT_EQ(Tokens(to->tokens().begin(), to->tokens().end()),
              Tokens(text.begin(), text.begin() + static_cast<ptrdiff_t>(cut)));
    EXPECT_EQ(expect_value(other.engine().save(*to, extra)), snapshot);
    for (size_t i = cut; i < kText; ++i) {
      ASSERT_EQ(other.eval(*to, std::span(text).subspan(i, 1)), expected[i]) << cut << ", " << i;
    }
  }
}

TEST_P(PastGolden, CheckpointSurvivesWhatComesAfterIt) {
  Engine& engine = subject_.engine();
  const Tokens text = subject_.text(kText);
  const std::vector<Logits> expected = subject_.all(text);
  const SequencePtr sequence = subject_.start();
  std::map<size_t, CheckpointId> checkpoints;
  for (const size_t cut : {size_t{0}, size_t{1}, size_t{13}, size_t{30}}) {
    if (cut > 0) {
      const auto done = static_cast<size_t>(sequence->length());
      subject_.eval(*sequence, std::span(text).subspan(done, cut - done));
    }
    checkpoints[cut] = expect_value(engine.checkpoint(*sequence));
  }
  for (const size_t cut : {size_t{13}, size_t{30}, size_t{0}, size_t{13}, size_t{1}}) {
    subject_.eval(*sequence, subject_.text(9, 3));  // diverge
    expect_ok(engine.restore(*sequence, checkpoints[cut]));
    ASSERT_EQ(sequence->length(), static_cast<int64_t>(cut));
    EXPECT_EQ(subject_.eval(*sequence, std::span(text).subspan(cut, 1)), expected[cut]) << cut;
    EXPECT_EQ(subject_.eval(*sequence, std::span(text).subspan(cut + 1)), expected.back()) << cut;
  }
}

TEST_P(PastGolden, TruncatesAtEveryPosition) {
  Engine& engine = subject_.engine();
  const Tokens text = subject_.text(kText + 1);
  const std::vector<Logits> expected = subject_.all(text);
  const Tokens other = subject_.text(3, 5);
  for (const bool with_checkpoint : {false, true}) {
    const SequencePtr sequence = subject_.start();
    subject_.eval(*sequence, std::span(text).first(17));
    if (with_checkpoint) expect_value(engine.checkpoint(*sequence));
    subject_.eval(*sequence, std::span(text).subspan(17, kText - 17));
    for (size_t position = kText + 1; position-- > 0;) {
      const SequencePtr fork = with_checkpoint ? nullptr : expect_value(engine.fork(*sequence));
      Sequence& subject = with_checkpoint ? *sequence : *fork;
      expect_ok(engine.truncate(subject, static_cast<int64_t>(position)));
      ASSERT_EQ(subject.length(), static_cast<int64_t>(position));
      ASSERT_EQ(subject_.eval(subject, std::span(text).subspan(position, 1)), expected[position])
          << position;
      // Tokens that are forgotten and replaced leave no trace either.
      subject_.eval(subject, other);
      expect_ok(engine.truncate(subject, static_cast<int64_t>(position)));
    }
  }
}

TEST_P(PastGolden, ForksGoTheirOwnWays) {
  Engine& engine = subject_.engine();
  const Tokens text = subject_.text(kText);
  const Tokens other = subject_.text(kText, 7);
  for (const size_t cut : {size_t{0}, size_t{1}, size_t{25}}) {
    const SequencePtr first = subject_.start();
    if (cut > 0) subject_.eval(*first, std::span(text).first(cut));
    const SequencePtr second = expect_value(engine.fork(*first));
    Tokens first_tokens(text.begin(), text.begin() + static_cast<ptrdiff_t>(cut));
    Tokens second_tokens = first_tokens;
    for (size_t i = cut; i < cut + 8; ++i) {
      first_tokens.push_back(text[i]);
      second_tokens.push_back(other[i]);
      const Logits a = subject_.eval(*first, {&text[i], 1});
      const Logits b = subject_.eval(*second, {&other[i], 1});
      ASSERT_EQ(a, subject_.fresh(first_tokens)) << cut << ", " << i;
      ASSERT_EQ(b, subject_.fresh(second_tokens)) << cut << ", " << i;
    }
  }
}

TEST_P(PastGolden, PrefixHitIsAColdStart) {
  const TempFolder folder;
  for (const std::string& kept_in : {std::string(), folder / "kept"}) {
    const EngineOptions options =
        with({.prefix_cache_bytes = uint64_t{1} << 28, .prefix_cache_directory = kept_in});
    auto subject = std::make_unique<PastSubject>(directory_, options);
    const Tokens text = subject->text(kText);
    const std::vector<Logits> expected = subject->all(text);
    SequencePtr kept = subject->start();
    subject->eval(*kept, std::span(text).first(kText / 2));
    expect_ok(subject->engine().prefixes().keep(*kept));
    if (!kept_in.empty()) {
      kept.reset();  // before its engine
      subject = std::make_unique<PastSubject>(directory_, options);
    }
    const SequencePtr hit = subject->start();
    EXPECT_EQ(expect_value(subject->engine().prefixes().reuse(*hit, text)),
              static_cast<int64_t>(kText / 2));
    EXPECT_EQ(subject->eval(*hit, std::span(text).subspan(kText / 2)), expected.back());
    const Tokens other = subject->text(kText, 9);
    const SequencePtr miss = subject->start();
    EXPECT_EQ(expect_value(subject->engine().prefixes().reuse(*miss, other)), 0);
    // The same text gives all but the last token at most: as many as layers can keep.
    const SequencePtr again = subject->start();
    const int64_t reused =
        expect_value(subject->engine().prefixes().reuse(*again, std::span(text).first(kText / 2)));
    EXPECT_TRUE(reused == 0 || reused == static_cast<int64_t>(kText / 2 - 1)) << reused;
    EXPECT_EQ(
        subject->eval(*again, std::span(text).subspan(static_cast<size_t>(reused),
                                                      kText / 2 - static_cast<size_t>(reused))),
        expected[kText / 2 - 1]);
  }
}

/// A sequence that everything happens to, beside the tokens it should have.
class Wanderer {
 public:
  Wanderer(PastSubject& subject, PastSubject& judge, unsigned seed)
      : subject_(subject), engine_(subject.engine()), judge_(judge), random_(seed) {}

  void step() {
    switch (below(8)) {
      case 0:
        checkpoints_.emplace_back(expect_value(engine_.checkpoint(*sequence_)), tokens_);
        break;
      case 1:
        if (!checkpoints_.empty()) restore(checkpoints_[below(checkpoints_.size())]);
        break;
      case 2:
        if (!checkpoints_.empty()) drop(below(checkpoints_.size()));
        break;
      case 3:
      case 4:
        tokens_.resize(below(tokens_.size() + 1));
        expect_ok(engine_.truncate(*sequence_, static_cast<int64_t>(tokens_.size())));
        break;
      case 5:
        fork();
        break;
      case 6:
        reload();
        break;
      case 7:
        reuse();
        break;
    }
    ASSERT_EQ(Tokens(sequence_->tokens().begin(), sequence_->tokens().end()), tokens_);
    append();
  }

 private:
  using Checkpoint = std::pair<CheckpointId, Tokens>;

  size_t below(size_t bound) { return random_() % bound; }
  void append() {
    const Tokens more = subject_.text(1 + below(6), static_cast<unsigned>(below(3)));
    tokens_.insert(tokens_.end(), more.begin(), more.end());
    ASSERT_EQ(subject_.eval(*sequence_, more), judge_.fresh(tokens_));
  }
  void restore(const Checkpoint& checkpoint) {
    expect_ok(engine_.restore(*sequence_, checkpoint.first));
    tokens_ = checkpoint.second;
  }
  void drop(size_t i) {
    expect_ok(engine_.drop(*sequence_, checkpoints_[i].first));
    EXPECT_FALSE(engine_.restore(*sequence_, checkpoints_[i].first).ok());
    checkpoints_.erase(checkpoints_.begin() + static_cast<ptrdiff_t>(i));
  }
  void fork() {
    SequencePtr other = expect_value(engine_.fork(*sequence_));
    subject_.eval(*sequence_, subject_.text(2, 11));
    sequence_.swap(other);
    checkpoints_.clear();  // they are the other's
  }
  void reload() {
    const auto snapshot = expect_value(engine_.save(*sequence_));
    subject_.eval(*sequence_, subject_.text(2, 12));
    expect_value(engine_.load(*sequence_, snapshot));
  }
  void reuse() {
    expect_ok(engine_.prefixes().keep(*sequence_));
    Tokens wanted = tokens_;
    wanted.push_back(1);
    sequence_ = subject_.start();
    checkpoints_.clear();
    EXPECT_EQ(expect_value(engine_.prefixes().reuse(*sequence_, wanted)),
              static_cast<int64_t>(tokens_.size()));
  }

  PastSubject& subject_;
  Engine& engine_;
  PastSubject& judge_;
  std::mt19937 random_;
  SequencePtr sequence_ = subject_.start();
  Tokens tokens_;
  std::vector<Checkpoint> checkpoints_;
};

TEST_P(PastGolden, RandomOperationsLeaveNoTrace) {
  PastSubject subject(directory_,
                      with({.prefill_chunk = 5, .prefix_cache_bytes = uint64_t{1} << 28}));
  for (unsigned seed = 0; seed < 50; ++seed) {
    Wanderer wanderer(subject, subject_, seed);
    for (int i = 0; i < 8; ++i) {
      wanderer.step();
      if (HasFatalFailure()) FAIL() << "seed " << seed << ", step " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, PastGolden, ::testing::ValuesIn(asked(golden_families())),
                         [](const auto& test) { return test.param; });
INSTANTIATE_TEST_SUITE_P(Embedded, PastGolden, ::testing::Values("fable_20m"),
                         [](const auto& test) { return test.param; });
// With windows in rings, and with recurrent layers.
INSTANTIATE_TEST_SUITE_P(In8Bits, PastGolden,
                         ::testing::Values("gpt_oss_in_q8_0", "qwen3_next_in_q8_0"),
                         [](const auto& test) { return test.param; });

// Neither takes what the other has kept or saved.
TEST(PastsIn8Bits, AreOthersThanThoseInF16) {
  const TempFolder folder;
  const std::string fable = directory_of("fable_20m");
  const auto options = [&](DType type) {
    return EngineOptions{.cache_type_k = type,
                         .cache_type_v = type,
                         .prefix_cache_bytes = uint64_t{1} << 28,
                         .prefix_cache_directory = folder / "kept"};
  };
  std::map<DType, std::vector<std::byte>> snapshots;
  for (const DType type : {DType::kF16, DType::kI8}) {
    PastSubject subject(fable, options(type));
    const Tokens text = subject.text(20);
    const SequencePtr sequence = subject.start();
    EXPECT_EQ(expect_value(subject.engine().prefixes().reuse(*sequence, text)), 0);
    subject.eval(*sequence, std::span(text).first(12));
    expect_ok(subject.engine().prefixes().keep(*sequence));
    snapshots[type] = expect_value(subject.engine().save(*sequence));
    EXPECT_EQ(expect_value(subject.engine().prefixes().reuse(*subject.start(), text)), 12);
  }
  EXPECT_LT(snapshots[DType::kI8].size(), snapshots[DType::kF16].size());
  PastSubject subject(fable, options(DType::kI8));
  const SequencePtr sequence = subject.start();
  EXPECT_FALSE(subject.engine().load(*sequence, snapshots[DType::kF16]).ok());
  expect_value(subject.engine().load(*sequence, snapshots[DType::kI8]));
  EXPECT_EQ(sequence->length(), 12);
}

// Two models, one recurrent and one with windows, step by step in one process.
TEST(PastsOfTwoModels, DoNotMix) {
  PastSubject first(directory_of("qwen3_next"));
  PastSubject second(directory_of("gpt_oss"));
  const Tokens text = first.text(24);
  const std::vector<Logits> expected_first = first.all(text);
  const std::vector<Logits> expected_second = second.all(text);
  const SequencePtr a = first.start();
  const SequencePtr b = second.start();
  for (size_t i = 0; i < text.size(); ++i) {
    const std::span<const TokenId> token(&text[i], 1);
    const CheckpointId before_a = expect_value(first.engine().checkpoint(*a));
    const CheckpointId before_b = expect_value(second.engine().checkpoint(*b));
    first.eval(*a, first.text(2, 3));
    second.eval(*b, second.text(2, 3));
    expect_ok(first.engine().restore(*a, before_a));
    expect_ok(second.engine().truncate(*b, static_cast<int64_t>(i)));
    expect_ok(second.engine().drop(*b, before_b));
    ASSERT_EQ(first.eval(*a, token), expected_first[i]) << i;
    ASSERT_EQ(second.eval(*b, token), expected_second[i]) << i;
  }
  const auto snapshot = expect_value(first.engine().save(*a));
  const auto refused = second.engine().load(*b, snapshot);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code(), ErrorCode::kInvalidArgument);
}

// A ring of pages that has been overwritten several times.
TEST(PastOfWindows, IsExactWhereTheRingHasWrapped) {
  const TempFolder folder;
  copy_files(directory_of("mimo_v2_flash"), folder.path());
  std::string config = read_bytes(folder / "config.json");
  const std::string before = "\"max_position_embeddings\": 512";
  ASSERT_NE(config.find(before), std::string::npos);
  write_bytes(folder / "config.json", config.replace(config.find(before), before.size(),
                                                     "\"max_position_embeddings\": 2048"));
  PastSubject subject(folder.path(), {.context_length = 1200, .prefill_chunk = 8});
  Engine& engine = subject.engine();
  const Tokens text = subject.text(1100);
  const std::vector<Logits> expected = subject.all(text);
  const SequencePtr sequence = subject.start();
  subject.eval(*sequence, std::span(text).first(700));
  const CheckpointId checkpoint = expect_value(engine.checkpoint(*sequence));
  subject.eval(*sequence, std::span(text).subspan(700, 399));
  const auto snapshot = expect_value(engine.save(*sequence));
  const auto expect_at = [&](Sequence& from, size_t position) {
    ASSERT_EQ(from.length(), static_cast<int64_t>(position));
    EXPECT_EQ(subject.eval(from, std::span(text).subspan(position, 1)), expected[position])
        << position;
  };
  for (const size_t position : {1050, 800, 701, 700, 699, 530, 20}) {
    const SequencePtr fork = expect_value(engine.fork(*sequence));
    expect_ok(engine.truncate(*fork, static_cast<int64_t>(position)));
    expect_at(*fork, position);
    expect_value(engine.load(*fork, snapshot));
    expect_at(*fork, 1099);
  }
  expect_ok(engine.truncate(*sequence, 750));  // the ring has moved on: from the checkpoint
  expect_at(*sequence, 750);
  expect_ok(engine.restore(*sequence, checkpoint));
  expect_at(*sequence, 700);
}

// Memory that the host may not address: everything goes through the device's queue.
class PastOnGpuKernels : public ::testing::TestWithParam<std::string> {};

TEST_P(PastOnGpuKernels, IsExact) {
  if (const std::string missing = missing_gpu(GetParam()); !missing.empty()) {
    GTEST_SKIP() << "hardware: " << missing;
  }
  PastSubject subject(directory_of("qwen3_next"), {}, GetParam());
  Engine& engine = subject.engine();
  const Tokens text = subject.text(10);
  const std::vector<Logits> expected = subject.all(text);
  const SequencePtr sequence = subject.start();
  subject.eval(*sequence, std::span(text).first(6));
  const CheckpointId checkpoint = expect_value(engine.checkpoint(*sequence));
  subject.eval(*sequence, std::span(text).subspan(6, 3));
  const auto snapshot = expect_value(engine.save(*sequence));
  expect_ok(engine.truncate(*sequence, 7));
  EXPECT_EQ(subject.eval(*sequence, {&text[7], 1}), expected[7]);
  expect_value(engine.load(*sequence, snapshot));
  EXPECT_EQ(subject.eval(*sequence, {&text[9], 1}), expected[9]);
  expect_ok(engine.restore(*sequence, checkpoint));
  EXPECT_EQ(subject.eval(*sequence, std::span(text).subspan(6)), expected[9]);
}

INSTANTIATE_TEST_SUITE_P(All, PastOnGpuKernels,
                         ::testing::ValuesIn(and_built_gpus({"emulator", "emulator behind metal"})),
                         [](const auto& test) { return test_name_of(test.param); });

}  // namespace
}  // namespace moeflux::testing
