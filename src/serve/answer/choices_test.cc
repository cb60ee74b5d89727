// A client that reads slowly, leaves at any moment or calls back at once: whoever steps the texts
// is never made to wait for itself.
#include "serve/answer/choices.h"

#include <gtest/gtest.h>

#include <future>
#include <thread>

#include "serve/kept/resumable_stream.h"
#include "serve/service_test_util.h"

namespace moeflux::serve {
namespace {

using std::chrono::seconds;

/// A connection whose thread finds, while somebody asks for unread bytes, that the client has gone.
class LeavingReader : public MemoryResponse {
 public:
  enum class Leaves { kNever, kWhenAsked };
  explicit LeavingReader(Leaves leaves) : leaves_(leaves) {}
  size_t unsent_bytes() const override {
    if (leaves_ == Leaves::kWhenAsked) std::thread([&] { closed_(); }).join();
    return size_t{2} << 20;
  }
  void when_drained(size_t, std::function<void()> drained) override {
    drained_ = std::move(drained);
  }
  void when_closed(std::function<void()> closed) override { closed_ = std::move(closed); }
  bool is_waited_for() const { return drained_ != nullptr; }
  void call_drained() const { drained_(); }

 private:
  const Leaves leaves_;
  std::function<void()> closed_;
  std::function<void()> drained_;
};

/// A transport that calls back at once, whoever asks.
class HastyResponse : public MemoryResponse {
 public:
  size_t unsent_bytes() const override { return size_t{2} << 20; }
  void when_drained(size_t, std::function<void()> drained) override {
    ++calls;
    drained();
  }
  void when_closed(std::function<void()> closed) override { closed(); }
  int calls = 0;
};

class Receiver : public TextReceiver {
 public:
  Verdict on_token(const DrawnToken&) override { return {}; }
  void on_done(const TextStatistics&) override { ended.set_value(); }
  void on_failed(const Error&) override { ended.set_value(); }
  std::promise<void> ended;
};

class Encoder : public AnswerEncoder {
 public:
  std::string begin() override { return {}; }
  std::string delta(const AnswerDelta& delta) override { return "data: " + delta.text + "\n\n"; }
  std::string end(const AnswerPart&) override { return "data: [DONE]\n\n"; }
  std::string fail(const ApiError&) override { return {}; }
  Json whole() override { return {}; }
};

class ChoicesTest : public ServiceTest {
 protected:
  void SetUp() override {
    const std::string fable = std::string(MOEFLUX_SOURCE_DIR) + "/models/fable-20m";
    auto model = open_model(
        fable, {.device = {.threads = 1}, .engine = {.context_length = 256, .reader_threads = 1}},
        std::move(load_model_text(fable)).value());
    ASSERT_TRUE(model.ok());
    scheduler_ = std::move(Scheduler::start(std::move(*model), {})).value();
  }
  std::shared_ptr<Choices> start(std::shared_ptr<Response> response, JobThread* tells = nullptr) {
    auto texts = std::make_shared<Choices>(
        *scheduler_,
        AnswerTarget::of({.method = "POST", .path = "/completions"}, std::move(response)),
        std::make_unique<Encoder>(), ChoicesOptions{.stream = true, .tells_on = tells});
    std::vector<ChoiceJob> jobs;
    TextRequest request;
    request.prompt = {1};
    request.tokens_max = 1;
    jobs.emplace_back(std::move(request), receiver_);
    texts->start(std::move(jobs));
    return texts;
  }
  /// The result of tell(), on a thread that may hang.
  static bool write(const std::shared_ptr<Choices>& texts) {
    auto parked = std::make_shared<std::promise<bool>>();
    auto told = parked->get_future();
    std::thread([texts, parked] {
      parked->set_value(texts->tell({.text = std::string(2 << 20, 'x')}));
    }).detach();
    const bool is_over = told.wait_for(seconds(20)) == std::future_status::ready;
    EXPECT_TRUE(is_over) << "tell() waits for itself";
    if (!is_over) _exit(1);  // the thread would use what ends here
    return told.get();
  }

  std::shared_ptr<Receiver> receiver_ = std::make_shared<Receiver>();
  std::unique_ptr<Scheduler> scheduler_;
};

std::shared_ptr<ResumableStream> stream_to(std::shared_ptr<Response> reader) {
  return std::make_shared<ResumableStream>(
      4 << 20, [] { return std::chrono::steady_clock::now(); }, std::move(reader));
}

TEST_F(ChoicesTest, AReaderThatStaysSlowIsWaitedForOnItsThread) {
  const auto reader = std::make_shared<LeavingReader>(LeavingReader::Leaves::kNever);
  const auto texts = start(stream_to(reader));
  EXPECT_TRUE(write(texts));
  EXPECT_TRUE(reader->is_waited_for());
  reader->call_drained();
}

TEST_F(ChoicesTest, AReaderThatLeavesWhileItIsAskedHangsNobody) {
  const auto reader = std::make_shared<LeavingReader>(LeavingReader::Leaves::kWhenAsked);
  EXPECT_FALSE(write(start(stream_to(reader))));
  EXPECT_FALSE(reader->is_waited_for());
}

TEST_F(ChoicesTest, ATransportMayCallBackAtOnce) {
  const auto hasty = std::make_shared<HastyResponse>();
  EXPECT_FALSE(write(start(hasty)));
  EXPECT_EQ(hasty->calls, 1);
}

// A step does not wait for words, and calls may come when the scheduler has gone.
TEST_F(ChoicesTest, AnswersAreToldInOrderOnTheirThread) {
  const auto response = std::make_shared<MemoryResponse>();
  JobThread tells;
  std::promise<void> gate;
  tells.add([&] { gate.get_future().wait(); });
  const auto texts = start(response, &tells);
  EXPECT_FALSE(texts->tell({.text = "one"}));
  EXPECT_FALSE(texts->tell({.text = "two"}));
  texts->fail({});
  receiver_->ended.get_future().wait();
  scheduler_.reset();
  gate.set_value();
  EXPECT_EQ(response->wait(), "data: one\n\ndata: two\n\n");
  tells.wait();
  texts->stop({});
}

TEST_F(ChoicesTest, CallbacksThatComeAfterTheAnswerDoNothing) {
  const auto reader = std::make_shared<LeavingReader>(LeavingReader::Leaves::kNever);
  write(start(reader));
  reader->call_drained();
  receiver_->ended.get_future().wait();
}

}  // namespace
}  // namespace moeflux::serve
