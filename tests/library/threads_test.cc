// One model and several threads: turns, cancellation, counters that are read meanwhile, and handles
// that are freed under running calls. Nothing here depends on who is faster: threads are held in
// callbacks until what they are to meet has happened.
#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <random>
#include <thread>
#include <utility>

#include "tests/library/library_model.h"
#include "tests/support/soak.h"

namespace moeflux::testing {
namespace {

using Tokens = std::vector<int32_t>;

/// Holds the thread that enters until it is opened.
class Gate {
 public:
  bool enter() {
    std::unique_lock lock(mutex_);
    entered_ = true;
    changed_.notify_all();
    changed_.wait(lock, [&] { return open_; });
    return true;
  }
  void wait_until_entered() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return entered_; });
  }
  void open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool entered_ = false;
  bool open_ = false;
};

class Threads : public LibraryTest {
 protected:
  static Model waiting_model() { return open({.tuning = "prefill-chunk=2"}); }
  /// Until so many calls wait for their turn.
  void wait_for_waiting(uint64_t calls) {
    while (take(model_.metrics()).waiting_calls != calls) std::this_thread::yield();
  }
  /// A call that computes and stays in its first callback while the gate is closed.
  std::jthread hold_turn(Gate& gate) {
    std::jthread thread([this, &gate] {
      Sequence sequence = take(model_.create_sequence());
      expect_ok(sequence.eval(story(), {}, [&](uint64_t, uint64_t) { return gate.enter(); }));
    });
    gate.wait_until_entered();
    return thread;
  }

  Model model_ = waiting_model();
};

TEST_F(Threads, WaitingCallsGetTheirTurnsInTheOrderTheyCame) {
  constexpr uint64_t kCalls = 6;
  std::deque<Sequence> sequences;
  for (uint64_t i = 0; i < kCalls; ++i) sequences.push_back(take(model_.create_sequence()));
  Gate gate;
  std::vector<uint64_t> order;  // written by the call whose turn it is
  std::deque<std::jthread> threads;
  threads.push_back(hold_turn(gate));
  for (uint64_t i = 0; i < kCalls; ++i) {
    threads.emplace_back([&, i] {
      expect_ok(sequences[i].eval(story(), {}, [&](uint64_t done, uint64_t total) {
        if (done == total) order.push_back(i);
        return true;
      }));
    });
    wait_for_waiting(i + 1);
  }
  gate.open();
  threads.clear();
  EXPECT_EQ(order, (std::vector<uint64_t>{0, 1, 2, 3, 4, 5}));
  for (Sequence& sequence : sequences) EXPECT_EQ(logits(sequence), fresh_logits(story()));
}

// A sequence that is cancelled while the call waits ends as such when its turn comes; the others
// run.
TEST_F(Threads, ABatchGoesOnWithoutTheSequenceThatIsCancelled) {
  Sequence first = take(model_.create_sequence());
  Sequence second = take(model_.create_sequence());
  const Tokens tokens = story();
  for (const bool cancels_both : {false, true}) {
    Gate gate;
    std::jthread holder = hold_turn(gate);
    std::vector<Status> statuses;
    std::jthread batch([&] {
      statuses = model_.eval_batch(std::vector<BatchItem>{{&first, tokens}, {&second, tokens}});
    });
    wait_for_waiting(1);
    first.cancel();
    if (cancels_both) {
      second.cancel();
      batch.join();  // without its turn
    }
    gate.open();
    holder.join();
    if (batch.joinable()) batch.join();
    ASSERT_EQ(statuses.size(), 2u);
    expect_error(statuses[0], Code::kCancelled, {});
    EXPECT_EQ(take(first.position()), 0);
    if (cancels_both) {
      expect_error(statuses[1], Code::kCancelled, {"waited"});
    } else {
      expect_ok(statuses[1]);
    }
    EXPECT_EQ(logits(second), fresh_logits(tokens));
  }
}

TEST_F(Threads, ABatchThatGetsNoTurnChangesNothing) {
  Model busy = open();
  Sequence first = take(busy.create_sequence());
  Sequence second = take(busy.create_sequence());
  const Tokens tokens = story();
  expect_ok(first.eval(tokens, {}, [&](uint64_t, uint64_t) {
    const std::vector<Status> statuses =
        busy.eval_batch(std::vector<BatchItem>{{&second, tokens}, {&first, tokens}});
    EXPECT_EQ(statuses.size(), 2u);
    for (const Status& status : statuses) expect_error(status, Code::kBusy, {"one at a time"});
    return true;
  }));
  EXPECT_EQ(take(second.position()), 0);
  EXPECT_EQ(logits(first), fresh_logits(tokens));
}

TEST_F(Threads, ACallThatDoesNotWaitLongEnoughIsBusy) {
  Sequence sequence = take(model_.create_sequence());
  Gate gate;
  const std::jthread holder = hold_turn(gate);
  expect_ok(sequence.set_turn_timeout(MF_WAIT_NONE));
  expect_error(sequence.eval(story()), Code::kBusy, {"one at a time"});
  expect_ok(sequence.set_turn_timeout(1));
  expect_error(sequence.eval(story()), Code::kBusy, {"1 ms"});
  EXPECT_EQ(take(sequence.position()), 0);
  EXPECT_EQ(take(model_.metrics()).waiting_calls, 0u);
  expect_error(sequence.set_turn_timeout(-3), Code::kInvalidArgument, {"turn_timeout_ms is -3"});
  expect_error(Model::open(fable(), {.turn_timeout_ms = -5}), Code::kInvalidArgument, {"-5"});
  gate.open();
}

// Until it is told to end calls.
struct Abort {
  std::atomic<int> asked = 0;
  std::atomic<int> asks_left = 1 << 30;
  static int should_abort(void* self) {
    auto& abort = *static_cast<Abort*>(self);
    ++abort.asked;
    return abort.asks_left-- <= 0 ? 1 : 0;
  }
};

TEST_F(Threads, AModelThatShouldAbortEndsCallsThatWait) {
  Abort abort;
  model_ = open({.should_abort = Abort::should_abort, .abort_data = &abort});
  Sequence sequence = take(model_.create_sequence());
  Gate gate;
  const std::jthread holder = hold_turn(gate);
  const std::vector<std::string> texts = {"A fox"};
  for (const bool is_sequence : {true, false}) {
    abort.asks_left = 2;  // the first are patient
    if (is_sequence) {
      expect_error(sequence.eval(story()), Code::kCancelled, {"waited"});
    } else {
      expect_error(model_.embed(texts), Code::kCancelled, {"waited"});
    }
  }
  expect_error(model_.create_sequence(), Code::kCancelled, {"waited"});
  EXPECT_EQ(take(model_.metrics()).waiting_calls, 0u);
  EXPECT_EQ(take(sequence.position()), 0);
  abort.asks_left = 1 << 30;
  gate.open();
}

TEST_F(Threads, AModelThatShouldAbortEndsCallsThatCompute) {
  Abort abort;
  model_ = open(
      {.tuning = "prefill-chunk=2", .should_abort = Abort::should_abort, .abort_data = &abort});
  Sequence sequence = take(model_.create_sequence());
  const Tokens tokens = story();
  ASSERT_GT(tokens.size(), 4u);
  abort.asks_left = 1;
  expect_error(sequence.eval(tokens), Code::kCancelled, {"stopped"});
  EXPECT_EQ(take(sequence.position()), 4);
  abort.asks_left = 0;
  expect_error(model_.eval_batch(std::vector<BatchItem>{{&sequence, tokens}}).front(),
               Code::kCancelled, {"stopped"});
  const std::vector<std::string> texts = {"A fox", "A"};
  expect_error(model_.embed(texts), Code::kCancelled, {"stopped"});
  const mf_generate_result cut = take(sequence.generate({}, {.tokens_max = 50}, {}));
  EXPECT_EQ(cut.finish_reason, MF_FINISH_CANCELLED);
  EXPECT_LE(cut.generated_tokens, 1);
  abort.asks_left = 1 << 30;
  const int asked = abort.asked;
  expect_ok(sequence.eval(tokens));
  EXPECT_GT(abort.asked, asked);
}

TEST_F(Threads, ACallFromACallbackNeverWaitsForItself) {
  Sequence outer = take(model_.create_sequence());
  Sequence inner = take(model_.create_sequence());
  int calls = 0;
  expect_ok(outer.eval(story(), {}, [&](uint64_t, uint64_t) {
    ++calls;
    expect_error(inner.eval(story()), Code::kBusy, {});
    expect_error(outer.truncate(0), Code::kBusy, {});
    expect_error(model_.create_sequence(), Code::kBusy, {});
    return true;
  }));
  EXPECT_GT(calls, 1);
}

TEST_F(Threads, CancelEndsAPromptAtAWholeChunk) {
  Sequence sequence = take(model_.create_sequence());
  Gate gate;
  std::jthread prompt([&] {
    expect_error(sequence.eval(story(), {},
                               [&](uint64_t done, uint64_t) { return done < 4 || gate.enter(); }),
                 Code::kCancelled, {});
  });
  gate.wait_until_entered();
  sequence.cancel();
  gate.open();
  prompt.join();
  EXPECT_EQ(take(sequence.position()), 4);
  const Tokens tokens = story();
  std::vector<float> rest(sequence.vocab_size());
  expect_ok(sequence.eval(std::span(tokens).subspan(4), rest));
  EXPECT_EQ(rest, fresh_logits(tokens));
}

TEST_F(Threads, CancelEndsTheCallsThatWait) {
  Sequence sequence = take(model_.create_sequence());
  Sequence other = take(model_.create_sequence());
  expect_ok(sequence.eval(story()));
  const std::vector<float> before = logits(sequence);
  Gate gate;
  std::deque<std::jthread> threads;
  threads.push_back(hold_turn(gate));
  threads.emplace_back([&] { expect_error(sequence.eval(story()), Code::kCancelled, {"waited"}); });
  threads.emplace_back([&] { expect_error(sequence.truncate(2), Code::kCancelled, {"waited"}); });
  threads.emplace_back([&] {
    const mf_generate_result result = take(sequence.generate({}, {.tokens_max = 4}));
    EXPECT_EQ(result.finish_reason, MF_FINISH_CANCELLED);
    EXPECT_EQ(result.generated_tokens, 0);
  });
  threads.emplace_back([&] { expect_ok(other.eval(story())); });
  wait_for_waiting(4);
  sequence.cancel();
  wait_for_waiting(1);  // of the other sequence
  gate.open();
  threads.clear();
  EXPECT_EQ(logits(sequence), before);
  EXPECT_EQ(take(sequence.tokens()), story());
  EXPECT_EQ(logits(other), before);
}

TEST_F(Threads, CancelWithoutACallDoesNothing) {
  Sequence sequence = take(model_.create_sequence());
  sequence.cancel();
  expect_ok(sequence.eval(story()));
  EXPECT_EQ(logits(sequence), fresh_logits(story()));
  mf_sequence_cancel(nullptr);
}

TEST_F(Threads, CancelEndsATextThatGoesOnWhereItWas) {
  Sequence whole = take(model_.create_sequence());
  Sequence cut = take(model_.create_sequence());
  const GenerateOptions half{.tokens_max = 20, .ignore_stop_tokens = true};
  for (Sequence* sequence : {&whole, &cut}) expect_ok(sequence->set_sampler({.seed = 21}));
  std::string begin;
  Gate gate;
  std::jthread writer([&] {
    int pieces = 0;
    const mf_generate_result result = take(cut.generate(story(), half, [&](std::string_view piece) {
      begin += piece;
      return ++pieces < 6 || gate.enter();
    }));
    EXPECT_EQ(result.finish_reason, MF_FINISH_CANCELLED);
    EXPECT_EQ(result.generated_tokens, 6);
    EXPECT_EQ(take(cut.position()), result.prompt_tokens + 6);
  });
  gate.wait_until_entered();
  cut.cancel();
  gate.open();
  writer.join();
  const std::string rest = text(cut, {}, half);
  EXPECT_EQ(begin + rest, text(whole, story(), {.tokens_max = 26, .ignore_stop_tokens = true}));
}

TEST_F(Threads, CancelledTruncationLeavesTheSequenceAsItWas) {
  Model slow = open({.tuning = "prefill-chunk=1"});
  Sequence sequence = take(slow.create_sequence());
  Tokens tokens;
  while (tokens.size() < 200) {
    for (const int32_t token : story()) tokens.push_back(token);
  }
  tokens.resize(200);
  expect_ok(sequence.eval(tokens));
  const uint64_t end = take(sequence.checkpoint());
  bool cancelled = false;
  while (!cancelled) {  // a truncation that began and ended between two cancellations is repeated
    std::atomic<bool> done = false;
    std::jthread canceller([&] {
      while (!done) sequence.cancel();
    });
    const Status truncated = sequence.truncate(199);
    done = true;
    canceller.join();
    cancelled = !truncated.ok();
    if (!cancelled) expect_ok(sequence.restore(end));
    if (cancelled) expect_error(truncated, Code::kCancelled, {});
  }
  EXPECT_EQ(take(sequence.position()), 200);
  EXPECT_EQ(take(sequence.tokens()), tokens);
  EXPECT_EQ(logits(sequence), fresh_logits(tokens));
}

TEST_F(Threads, CountersAnswerWhileAnotherThreadComputes) {
  Sequence sequence = take(model_.create_sequence());
  const uint64_t before = take(model_.metrics()).evaluated_tokens;
  Gate gate;
  std::jthread prompt([&] {
    expect_ok(sequence.eval(story(), {},
                            [&](uint64_t done, uint64_t) { return done < 6 || gate.enter(); }));
    take(sequence.generate({}, {.tokens_max = 40, .ignore_stop_tokens = true}));
  });
  gate.wait_until_entered();
  EXPECT_EQ(take(sequence.position()), 6);
  const mf_metrics held = take(model_.metrics());
  EXPECT_EQ(held.evaluated_tokens, before + 6);
  EXPECT_GT(held.expert_hits + held.expert_misses, 0u);
  gate.open();
  const auto end = static_cast<int64_t>(story().size()) + 40;
  int64_t position = 6;
  uint64_t evaluated = held.evaluated_tokens;
  while (position < end) {
    const int64_t next = take(sequence.position());
    const mf_metrics metrics = take(model_.metrics());
    EXPECT_GE(next, position);
    EXPECT_GE(metrics.evaluated_tokens, evaluated);
    position = next;
    evaluated = metrics.evaluated_tokens;
  }
  prompt.join();
  EXPECT_EQ(take(model_.metrics()).evaluated_tokens, before + static_cast<uint64_t>(end));
}

TEST_F(Threads, ASequenceMayBeFreedUnderItsCalls) {
  mf_sequence* sequence = nullptr;
  ASSERT_EQ(mf_sequence_create(model_.get(), &sequence, nullptr), MF_OK);
  Gate gate;
  mf_eval_options options = MF_OPTIONS(options);
  options.user_data = &gate;
  options.on_progress = [](void* at, uint64_t, uint64_t) -> int {
    return static_cast<Gate*>(at)->enter() ? 1 : 0;
  };
  const Tokens tokens = story();
  std::deque<std::jthread> threads;
  threads.emplace_back([&] {
    EXPECT_EQ(mf_sequence_eval(sequence, tokens.data(), tokens.size(), &options, nullptr),
              MF_ERROR_CANCELLED);
  });
  gate.wait_until_entered();
  for (uint64_t i = 0; i < 3; ++i) {
    threads.emplace_back([&] {
      uint64_t id = 0;
      EXPECT_EQ(mf_sequence_checkpoint(sequence, &id, nullptr), MF_ERROR_CANCELLED);
    });
    wait_for_waiting(i + 1);
  }
  mf_sequence_free(sequence);
  gate.open();
  threads.clear();
  EXPECT_EQ(take(model_.metrics()).waiting_calls, 0u);
}

TEST_F(Threads, ACallbackMayFreeItsOwnSequenceAndItsModel) {
  auto model = std::make_unique<Model>(waiting_model());
  mf_sequence* sequence = nullptr;
  ASSERT_EQ(mf_sequence_create(model->get(), &sequence, nullptr), MF_OK);
  struct Both {
    std::unique_ptr<Model>& model;
    mf_sequence* sequence;
  } both{model, sequence};
  mf_generate_options options = MF_OPTIONS(options);
  options.user_data = &both;
  options.on_text = [](void* at, const char*, size_t) -> int {
    auto* owned = static_cast<Both*>(at);
    mf_sequence_free(std::exchange(owned->sequence, nullptr));
    owned->model.reset();
    return 1;
  };
  const Tokens tokens = story();
  mf_generate_result result = MF_OPTIONS(result);
  EXPECT_EQ(
      mf_sequence_generate(sequence, tokens.data(), tokens.size(), &options, &result, nullptr),
      MF_OK);
  EXPECT_EQ(result.finish_reason, MF_FINISH_CANCELLED);
  EXPECT_EQ(result.generated_tokens, 1);
}

// Texts of several threads, some of them cancelled, while others read counters: each is what it is
// alone, or its beginning.
TEST_F(Threads, TextsOfManyThreadsAreThoseOfOne) {
  constexpr size_t kThreads = 4;
  const GenerateOptions options{.tokens_max = 12, .ignore_stop_tokens = true};
  std::vector<std::string> alone;
  for (uint64_t seed = 0; seed < kThreads; ++seed) {
    Sequence sequence = take(model_.create_sequence());
    expect_ok(sequence.set_sampler({.seed = seed}));
    alone.push_back(text(sequence, story(), options));
  }
  Soak soak(3);
  while (soak.next()) {
    std::deque<Sequence> sequences;
    for (size_t i = 0; i < kThreads; ++i) {
      sequences.push_back(take(model_.create_sequence()));
      expect_ok(sequences.back().set_sampler({.seed = i}));
    }
    std::atomic<size_t> left = kThreads;
    std::deque<std::jthread> threads;
    for (size_t i = 0; i < kThreads; ++i) {
      threads.emplace_back([&, i] {
        std::string written;
        const mf_generate_result result =
            take(sequences[i].generate(story(), options, [&](std::string_view piece) {
              written += piece;
              return true;
            }));
        if (result.finish_reason == MF_FINISH_CANCELLED) {
          EXPECT_TRUE(alone[i].starts_with(written)) << written << " of " << alone[i];
        } else {
          EXPECT_EQ(written, alone[i]);
        }
        --left;
      });
    }
    threads.emplace_back([&, round = soak.round()] {
      std::minstd_rand random(static_cast<uint32_t>(round));
      while (left > 0) {
        const Sequence& any = sequences[random() % kThreads];
        EXPECT_GE(take(any.position()), 0);
        EXPECT_LE(take(model_.metrics()).waiting_calls, kThreads);
        EXPECT_FALSE(take(model_.tokenize("any thread")).empty());
        if (random() % 64 == 0) any.cancel();
      }
    });
    threads.clear();
  }
}

}  // namespace
}  // namespace moeflux::testing
