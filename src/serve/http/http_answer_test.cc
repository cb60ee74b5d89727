#include "serve/http/http_answer.h"

#include <gtest/gtest.h>

#include <deque>

namespace moeflux::serve {
namespace {

using std::chrono::milliseconds;

/// Tasks run when the test says so.
class LoopInTest : public Loop {
 public:
  bool post(std::function<void()> task) override {
    if (ended) return false;
    tasks.push_back(std::move(task));
    return true;
  }
  size_t run() {
    size_t ran = 0;
    for (; !tasks.empty(); ++ran) {
      const auto task = std::move(tasks.front());
      tasks.pop_front();
      task();
    }
    return ran;
  }

  bool ended = false;
  std::deque<std::function<void()>> tasks;
};

struct Answer {
  explicit Answer(AnswerFrame frame = {}) {
    channel = std::make_shared<AnswerChannel>(std::move(frame), loop, [this] { ++ready; });
    response = make_response(channel);
  }
  /// The body's bytes of the next piece, behind its head if it has one.
  std::string take() {
    const auto piece = channel->take(true);
    if (!piece) return "(nothing)";
    channel->sent(piece->bytes.size());
    const size_t head = piece->bytes.find("\r\n\r\n");
    const bool has_head = piece->bytes.starts_with("HTTP/");
    return (has_head ? piece->bytes.substr(head + 4) : piece->bytes) +
           (piece->last ? "(last)" : "") + (piece->given_up ? "(given up)" : "") +
           (piece->keep_alive ? "" : "(close)");
  }

  std::shared_ptr<LoopInTest> loop = std::make_shared<LoopInTest>();
  int ready = 0;
  std::shared_ptr<AnswerChannel> channel;
  std::shared_ptr<Response> response;
};

TEST(HttpAnswer, WhatIsWrittenMeanwhileIsOnePiece) {
  Answer answer;
  EXPECT_EQ(answer.take(), "(nothing)");
  answer.response->begin(200, {});
  answer.response->write("a");
  answer.response->write("bc");
  EXPECT_EQ(answer.loop->run(), 1u);
  EXPECT_EQ(answer.ready, 1);
  EXPECT_EQ(answer.take(), "3\r\nabc\r\n");
  EXPECT_EQ(answer.take(), "(nothing)");
  answer.response->write("d");
  answer.response->end();
  EXPECT_EQ(answer.loop->run(), 1u);
  EXPECT_EQ(answer.take(), "1\r\nd\r\n0\r\n\r\n(last)");
  EXPECT_EQ(answer.take(), "(nothing)");
}

TEST(HttpAnswer, OldClientsGetBytesUntilTheEnd) {
  Answer answer({.minor_version = 0});
  answer.response->begin(200, {});
  answer.response->write("a");
  EXPECT_EQ(answer.take(), "a(close)");
  answer.response->end();
  EXPECT_EQ(answer.take(), "(last)(close)");
}

TEST(HttpAnswer, HeadAndStatusesWithoutABodySendNone) {
  Answer head({.head_only = true});
  head.response->send(200, {}, "abc");
  EXPECT_EQ(head.take(), "(last)");
  Answer none;
  none.response->send(304, {}, "abc");
  EXPECT_EQ(none.take(), "(last)");
  Answer stream({.head_only = true});
  stream.response->begin(200, {});
  stream.response->write("a");
  EXPECT_EQ(stream.take(), "(last)");
  EXPECT_FALSE(stream.response->is_closed());
  stream.channel->finish();
  EXPECT_TRUE(stream.response->is_closed());
}

TEST(HttpAnswer, GivingUpIsSeen) {
  Answer unanswered;
  unanswered.response.reset();
  EXPECT_EQ(unanswered.loop->run(), 1u);
  EXPECT_NE(unanswered.take().find("server_error"), std::string::npos);
  Answer cut;
  cut.response->begin(200, {});
  cut.response->write("a");
  cut.response.reset();
  EXPECT_EQ(cut.take(), "1\r\na\r\n(given up)(close)");
  Answer whole;
  whole.response->send(200, {}, "a");
  whole.response.reset();
  EXPECT_EQ(whole.take(), "a(last)");
}

TEST(HttpAnswer, BytesCountUntilThePeerHasThem) {
  Answer answer;
  answer.response->begin(200, {});
  answer.response->write("abc");
  EXPECT_EQ(answer.response->unsent_bytes(), 3u);
  const auto piece = answer.channel->take(true);
  ASSERT_TRUE(piece);
  int drained = 0;
  answer.response->when_drained(0, [&] { drained += 100; });
  answer.response->when_drained(1, [&] { ++drained; });  // in place of the one before
  answer.channel->sent(piece->bytes.size() - 2);
  EXPECT_EQ(answer.response->unsent_bytes(), 2u);
  EXPECT_EQ(drained, 0);
  answer.channel->sent(1);
  EXPECT_EQ(drained, 1);
  answer.channel->sent(1);
  answer.response->when_drained(0, [&] { drained += 10; });
  EXPECT_EQ(drained, 1);  // never within the call
  answer.loop->run();
  EXPECT_EQ(drained, 11);
}

TEST(HttpAnswer, AClosedOneTakesEverythingAndSaysSoOnce) {
  Answer answer;
  int closed = 0;
  int drained = 0;
  answer.response->begin(200, {});
  answer.response->write("abc");
  answer.response->when_closed([&] { closed += 100; });
  answer.response->when_closed([&] { ++closed; });
  answer.response->when_drained(0, [&] { ++drained; });
  answer.channel->close();
  answer.channel->close();
  EXPECT_EQ(closed, 1);
  EXPECT_EQ(drained, 1);
  EXPECT_EQ(answer.response->unsent_bytes(), 0u);
  answer.response->begin(200, {});
  answer.response->write("abc");
  answer.response->keep_alive("x", milliseconds(1));
  answer.response->send(200, {}, "x");
  answer.response->end();
  EXPECT_EQ(answer.take(), "(nothing)");
  answer.response->when_closed([&] { ++closed; });
  EXPECT_EQ(closed, 2);
  answer.loop->run();
  answer.loop->ended = true;
  answer.response->when_drained(0, [&] { ++drained; });
  EXPECT_EQ(drained, 2);
}

TEST(HttpAnswer, OneThatHasEndedIsNotCutOff) {
  Answer answer;
  int closed = 0;
  answer.response->when_closed([&] { ++closed; });
  answer.response->send(200, {}, "abc");
  answer.response->when_closed([&] { ++closed; });
  answer.channel->close();
  answer.response->when_closed([&] { ++closed; });
  EXPECT_EQ(closed, 0);
}

TEST(HttpAnswer, CallbacksMayOwnTheResponse) {
  Answer answer;
  std::weak_ptr<Response> watch = answer.response;
  answer.response->when_closed([response = answer.response] { response->end(); });
  answer.response.reset();
  EXPECT_FALSE(watch.expired());
  answer.channel->close();
  EXPECT_TRUE(watch.expired());
  Answer ended;
  watch = ended.response;
  ended.response->when_closed([response = ended.response] {});
  ended.response->send(200, {}, "");
  ended.response.reset();
  EXPECT_TRUE(watch.expired());
}

TEST(HttpAnswer, SilenceIsDueWhenNothingWaits) {
  Answer answer;
  EXPECT_EQ(answer.channel->silence().interval.count(), 0);
  answer.response->begin(200, {});
  answer.response->keep_alive(": x\n\n", milliseconds(5));
  EXPECT_EQ(answer.take(), "");  // the head
  EXPECT_EQ(answer.channel->silence().interval, milliseconds(5));
  EXPECT_TRUE(answer.channel->silence().is_due);
  answer.response->write("a");
  EXPECT_FALSE(answer.channel->silence().is_due);
  answer.channel->speak();
  EXPECT_EQ(answer.take(), "1\r\na\r\n");
  answer.channel->speak();
  EXPECT_EQ(answer.take(), "5\r\n: x\n\n\r\n");
  answer.response->end();
  EXPECT_EQ(answer.channel->silence().interval.count(), 0);
}

TEST(HttpAnswerDeathTest, AnsweringTwiceIsABug) {
  Answer answer;
  answer.response->send(200, {}, "");
  EXPECT_DEATH(answer.response->send(200, {}, ""), "stage_");
  EXPECT_DEATH(answer.response->write("a"), "stage_");
}

}  // namespace
}  // namespace moeflux::serve
