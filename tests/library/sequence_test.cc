// Evaluation, generation and states through the C++ facade, byte for byte.
#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "tests/library/library_model.h"
#include "tests/support/temp_folder.h"

namespace moeflux::testing {
namespace {

using Tokens = std::vector<int32_t>;

TEST_F(LibraryTest, TokensAreTextAndBack) {
  const std::string text = "Once upon a time, in a café";
  const Tokens tokens = take(model_.tokenize(text));
  EXPECT_EQ(take(model_.detokenize(tokens)), text);
  EXPECT_EQ(take(model_.detokenize({})), "");
  EXPECT_TRUE(take(model_.tokenize("")).empty());
  EXPECT_FALSE(take(model_.stop_tokens()).empty());
}

TEST_F(LibraryTest, LogitsOfAllPositionsAreThoseOfEachPrefix) {
  const Tokens tokens = story();
  Sequence sequence = take(model_.create_sequence());
  std::vector<float> all(tokens.size() * sequence.vocab_size());
  expect_ok(sequence.eval_all(tokens, std::span<float>(all)));
  std::vector<float> pieces;
  Sequence other = take(model_.create_sequence());
  expect_ok(other.eval_all(tokens, [&](int64_t first, std::span<const float> rows) {
    EXPECT_EQ(first * static_cast<int64_t>(other.vocab_size()),
              static_cast<int64_t>(pieces.size()));
    pieces.insert(pieces.end(), rows.begin(), rows.end());
    return true;
  }));
  EXPECT_EQ(all, pieces);
  for (size_t n = 1; n <= tokens.size(); ++n) {
    const auto row = std::span(all).subspan((n - 1) * sequence.vocab_size(), sequence.vocab_size());
    EXPECT_TRUE(std::ranges::equal(row, fresh_logits(std::span(tokens).first(n)))) << n;
  }
  EXPECT_EQ(take(sequence.position()), static_cast<int64_t>(tokens.size()));
  EXPECT_EQ(take(sequence.tokens()), tokens);
}

TEST_F(LibraryTest, ProgressCountsThePromptAndCanStopIt) {
  Model chunked = open({.tuning = "prefill-chunk=2"});
  const Tokens tokens = story();
  std::vector<uint64_t> seen;
  Sequence sequence = take(chunked.create_sequence());
  expect_ok(sequence.eval(tokens, {}, [&](uint64_t done, uint64_t total) {
    EXPECT_EQ(total, tokens.size());
    seen.push_back(done);
    return true;
  }));
  EXPECT_EQ(seen.back(), tokens.size());
  EXPECT_EQ(seen.size(), (tokens.size() + 1) / 2);
  Sequence stopped = take(chunked.create_sequence());
  expect_error(stopped.eval(tokens, {}, [](uint64_t done, uint64_t) { return done < 4; }),
               Code::kCancelled, {});
  EXPECT_EQ(take(stopped.position()), 4);
  // Evaluated tokens count: the rest leads to the same logits.
  std::vector<float> rest(stopped.vocab_size());
  expect_ok(stopped.eval(std::span(tokens).subspan(4), rest));
  EXPECT_EQ(rest, fresh_logits(tokens));
}

TEST_F(LibraryTest, OpeningTellsItsProgressAndCanBeStopped) {
  uint64_t last = 0;
  uint64_t of = 0;
  take(Model::open(fable(), {.context_length = 64}, [&](uint64_t done, uint64_t total) {
    EXPECT_GE(done, last);
    last = done;
    of = total;
    return true;
  }));
  EXPECT_EQ(last, of);
  EXPECT_GT(of, 1000000u);
  expect_error(Model::open(fable(), {}, [](uint64_t, uint64_t) { return false; }), Code::kCancelled,
               {"stopped"});
}

TEST_F(LibraryTest, OpeningNamesKeysThatNobodyKnows) {
  const TempFolder folder;
  copy_files(fable(), folder.path());
  std::string config = read_bytes(folder / "config.json");
  const std::string_view text = "\"text_config\": {";
  config.insert(config.find(text) + text.size(),
                R"("frobnication_rate": 0.5, "split\nover_lines": 1,)");
  write_bytes(folder / "config.json", config);
  std::vector<std::string> lines;
  const LogSink log = [&](int32_t level, std::string_view line) {
    EXPECT_EQ(level, MF_LOG_WARNING);
    lines.emplace_back(line);
  };
  take(Model::open(folder.path(), {.context_length = 64}, {}, log));
  ASSERT_EQ(lines.size(), 1u);
  for (const char* piece : {"config.json", "frobnication_rate", "split?over_lines"}) {
    EXPECT_NE(lines[0].find(piece), std::string::npos) << lines[0];
  }
  EXPECT_EQ(lines[0].find('\n'), std::string::npos);
  take(Model::open(fable(), {.context_length = 64}, {}, log));
  EXPECT_EQ(lines.size(), 1u) << lines.back();
}

TEST_F(LibraryTest, TwoTextsOfNTokensAreOneOfTwice) {
  Sequence once = take(model_.create_sequence());
  Sequence twice = take(model_.create_sequence());
  for (Sequence* sequence : {&once, &twice}) {
    expect_ok(sequence->set_sampler({.repeat_penalty = 1.2f, .seed = 5}));
  }
  const std::string whole = text(once, story(), {.tokens_max = 24});
  std::string halves = text(twice, story(), {.tokens_max = 12});
  halves += text(twice, {}, {.tokens_max = 12});
  EXPECT_EQ(whole, halves);
  EXPECT_EQ(take(once.tokens()), take(twice.tokens()));
  EXPECT_EQ(take(once.position()), static_cast<int64_t>(story().size() + 24));
  // Every token that was drawn has been evaluated.
  EXPECT_EQ(logits(once), fresh_logits(take(once.tokens())));
}

TEST_F(LibraryTest, SampleDrawsWhatGenerateDraws) {
  Sequence generated = take(model_.create_sequence());
  Sequence sampled = take(model_.create_sequence());
  expect_ok(generated.set_sampler({.repeat_penalty = 1.3f, .seed = 3}));
  expect_ok(sampled.set_sampler({.repeat_penalty = 1.3f, .seed = 3}));
  text(generated, story(), {.tokens_max = 10, .ignore_stop_tokens = true});
  expect_ok(sampled.eval(story()));
  for (int i = 0; i < 10; ++i) {
    const int32_t token = take(sampled.sample());
    expect_ok(sampled.eval({&token, 1}));
  }
  EXPECT_EQ(take(sampled.tokens()), take(generated.tokens()));
}

TEST_F(LibraryTest, CallbackCancelsTheText) {
  Sequence sequence = take(model_.create_sequence());
  int pieces = 0;
  const mf_generate_result result = take(sequence.generate(
      story(), {.tokens_max = 50}, [&](std::string_view) { return ++pieces < 5; }));
  EXPECT_EQ(result.finish_reason, MF_FINISH_CANCELLED);
  EXPECT_EQ(result.generated_tokens, 5);
  EXPECT_EQ(take(sequence.position()), static_cast<int64_t>(story().size()) + 5);
}

TEST_F(LibraryTest, StopStringsAndTokensEndTheTextAndAreNotPartOfIt) {
  Sequence free = take(model_.create_sequence());
  expect_ok(free.set_sampler({.temperature = 0.0f}));
  const std::string whole = text(free, story(), {.tokens_max = 40});
  const std::string stop = whole.substr(whole.size() / 2, 6);
  Sequence stopped = take(model_.create_sequence());
  expect_ok(stopped.set_sampler({.temperature = 0.0f}));
  std::string out;
  const mf_generate_result result = take(stopped.generate(
      story(), {.tokens_max = 40, .stop_strings = {"never there", stop}}, [&](std::string_view p) {
        out += p;
        return true;
      }));
  EXPECT_EQ(result.finish_reason, MF_FINISH_STOP_STRING);
  EXPECT_EQ(out, whole.substr(0, whole.find(stop)));
  const int32_t last = take(free.tokens())[story().size() + 9];
  Sequence by_token = take(model_.create_sequence());
  expect_ok(by_token.set_sampler({.temperature = 0.0f}));
  const mf_generate_result ended =
      take(by_token.generate(story(), {.tokens_max = 40, .stop_tokens = {last}}));
  EXPECT_EQ(ended.finish_reason, MF_FINISH_STOP_TOKEN);
  EXPECT_LE(ended.generated_tokens, 9);
}

TEST_F(LibraryTest, AnExceptionComesOutOfTheCall) {
  Sequence sequence = take(model_.create_sequence());
  const auto generate = [&] {
    return sequence.generate(story(), {}, [](std::string_view) -> bool { throw 7; });
  };
  EXPECT_THROW((void)generate(), int);
  // The model is free again.
  expect_ok(sequence.eval(story()));
}

TEST_F(LibraryTest, LogitsAfterAnExceptionAreThoseOfTheLastToken) {
  Model chunked = open({.tuning = "prefill-chunk=2"});
  Sequence sequence = take(chunked.create_sequence());
  const Tokens tokens = story();
  expect_ok(sequence.eval(std::span(tokens).first(1)));
  const auto eval = [&] {
    return sequence.eval(std::span(tokens).subspan(1), {},
                         [](uint64_t, uint64_t) -> bool { throw 7; });
  };
  EXPECT_THROW((void)eval(), int);
  EXPECT_EQ(take(sequence.position()), 3);
  EXPECT_EQ(logits(sequence), fresh_logits(std::span(tokens).first(3)));
}

TEST_F(LibraryTest, AnExceptionOfACCallbackIsAnErrorThatSaysWhatItSaid) {
  Sequence sequence = take(model_.create_sequence());
  mf_eval_options options = MF_OPTIONS(options);
  options.on_progress = [](void*, uint64_t, uint64_t) -> int {
    throw std::runtime_error("my own");
  };
  const Tokens tokens = story();
  mf_error error;
  EXPECT_EQ(mf_sequence_eval(sequence.get(), tokens.data(), tokens.size(), &options, &error),
            MF_ERROR_CANCELLED);
  EXPECT_NE(std::string_view(error.message).find("my own"), std::string_view::npos)
      << error.message;
  expect_ok(sequence.truncate(0));
  expect_ok(sequence.eval(tokens));
}

TEST_F(LibraryTest, CallsOfOneModelTakeTurns) {
  Sequence sequence = take(model_.create_sequence());
  take(sequence.generate(story(), {.tokens_max = 2}, [&](std::string_view) {
    expect_error(sequence.eval(story()), Code::kBusy, {"one at a time"});
    expect_error(model_.create_sequence(), Code::kBusy, {});
    expect_error(sequence.tokens(), Code::kBusy, {});
    EXPECT_GE(take(sequence.position()), static_cast<int64_t>(story().size()));
    EXPECT_GE(take(model_.metrics()).evaluated_tokens, story().size());
    EXPECT_FALSE(take(model_.tokenize("still works")).empty());
    return true;
  }));
}

TEST_F(LibraryTest, SequencesOutliveTheirModelAndMayEndWhileItComputes) {
  auto model = std::make_unique<Model>(open());
  Sequence kept = take(model->create_sequence());
  auto other = std::make_unique<Sequence>(take(model->create_sequence()));
  model.reset();
  expect_ok(kept.eval(story(), {}, [&](uint64_t, uint64_t) {
    other.reset();
    return true;
  }));
  EXPECT_EQ(logits(kept), fresh_logits(story()));
}

TEST_F(LibraryTest, TwoModelsInterleaveAsIfAlone) {
  Model other = open({.device = "reference", .expert_cache_bytes = MF_EXPERT_CACHE_MINIMUM});
  Sequence a = take(model_.create_sequence());
  Sequence b = take(other.create_sequence());
  Sequence alone = take(open({.device = "reference"}).create_sequence());
  for (const int32_t token : story()) {
    expect_ok(a.eval({&token, 1}));
    expect_ok(b.eval({&token, 1}));
    expect_ok(alone.eval({&token, 1}));
  }
  EXPECT_EQ(logits(a), fresh_logits(story()));
  EXPECT_EQ(logits(b), logits(alone));
}

TEST_F(LibraryTest, CheckpointBringsBackTextAndSampler) {
  Sequence sequence = take(model_.create_sequence());
  expect_ok(sequence.set_sampler({.seed = 9}));
  expect_ok(sequence.eval(story()));
  const uint64_t id = take(sequence.checkpoint());
  const std::string first = text(sequence, {}, {.tokens_max = 20});
  expect_ok(sequence.restore(id));
  EXPECT_EQ(take(sequence.tokens()), story());
  EXPECT_EQ(logits(sequence), fresh_logits(story()));
  EXPECT_EQ(text(sequence, {}, {.tokens_max = 20}), first);
  expect_ok(sequence.drop(id));
  expect_error(sequence.restore(id), Code::kNotFound, {});
  expect_error(sequence.drop(id), Code::kNotFound, {});
}

TEST_F(LibraryTest, TruncationIsAFreshStartAtEveryPosition) {
  const Tokens tokens = story();
  Sequence sequence = take(model_.create_sequence());
  for (size_t n = tokens.size(); n > 0; --n) {
    expect_ok(sequence.truncate(0));
    expect_ok(sequence.eval(tokens));
    expect_ok(sequence.truncate(static_cast<int64_t>(n)));
    EXPECT_EQ(logits(sequence), fresh_logits(std::span(tokens).first(n))) << n;
  }
  expect_error(sequence.truncate(2), Code::kInvalidArgument, {});
  expect_error(sequence.truncate(-1), Code::kInvalidArgument, {});
}

TEST_F(LibraryTest, AForkDivergesAndLeavesTheOtherAsItWas) {
  Sequence trunk = take(model_.create_sequence());
  expect_ok(trunk.eval(story()));
  Sequence fork = take(trunk.fork());
  const Tokens left = take(model_.tokenize(" king"));
  const Tokens right = take(model_.tokenize(" little mouse"));
  expect_ok(fork.eval(left));
  expect_ok(trunk.eval(right));
  const auto joined = [&](const Tokens& end) {
    Tokens all = story();
    all.insert(all.end(), end.begin(), end.end());
    return all;
  };
  EXPECT_EQ(logits(fork), fresh_logits(joined(left)));
  EXPECT_EQ(logits(trunk), fresh_logits(joined(right)));
}

TEST_F(LibraryTest, AKeptPrefixIsAColdStartWithLessWork) {
  Model caching = open({.prefix_cache_bytes = 64 << 20});
  const Tokens tokens = story();
  Sequence first = take(caching.create_sequence());
  expect_ok(first.eval(std::span(tokens).first(tokens.size() - 1)));
  expect_ok(first.keep_prefix());
  Sequence second = take(caching.create_sequence());
  const auto reused = static_cast<size_t>(take(second.reuse_prefix(tokens)));
  EXPECT_EQ(reused, tokens.size() - 1);
  std::vector<float> out(second.vocab_size());
  expect_ok(second.eval(std::span(tokens).subspan(reused), out));
  EXPECT_EQ(out, fresh_logits(tokens));
  expect_error(second.reuse_prefix(tokens), Code::kFailedPrecondition, {});
}

TEST_F(LibraryTest, MetricsCountWhatWasDone) {
  Sequence sequence = take(model_.create_sequence());
  expect_ok(sequence.eval(story()));
  const mf_metrics metrics = take(model_.metrics());
  EXPECT_EQ(metrics.evaluated_tokens, story().size());
  EXPECT_GT(metrics.evaluate_us, 0u);
  EXPECT_GT(metrics.expert_hits + metrics.expert_misses, 0u);
  EXPECT_GT(metrics.dense_bytes, 0u);
  EXPECT_GT(metrics.sequence_bytes, 0u);
}

TEST_F(LibraryTest, FullContextIsAnErrorOfEvalAndTheEndOfGenerate) {
  Model small = open({.context_length = 16});
  Sequence sequence = take(small.create_sequence());
  expect_error(sequence.eval(Tokens(17, 1)), Code::kResourceExhausted, {"17", "16"});
  const mf_generate_result result = take(sequence.generate(story(), {.tokens_max = -1}));
  EXPECT_EQ(result.finish_reason, MF_FINISH_CONTEXT_FULL);
  EXPECT_EQ(take(sequence.position()), 16);
}

}  // namespace
}  // namespace moeflux::testing
