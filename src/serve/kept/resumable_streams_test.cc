#include "serve/kept/resumable_streams.h"

#include <gtest/gtest.h>

#include "serve/service_test_util.h"

namespace moeflux::serve {
namespace {

class ResumableStreamsTest : public ::testing::Test {
 protected:
  std::shared_ptr<Response> keep(const std::string& id, std::shared_ptr<MemoryResponse> reader) {
    auto response = streams_.keep(id, std::move(reader));
    response->begin(200, {{"Content-Type", "text/event-stream"}});
    response->when_closed([this] { ++cancelled_; });
    return response;
  }
  std::string resumed(const std::string& id, uint64_t from) {
    auto reader = std::make_shared<MemoryResponse>();
    EXPECT_FALSE(streams_.resume(id, from, reader));
    return reader->wait();
  }

  std::chrono::seconds now_{0};
  int cancelled_ = 0;
  ResumableStreams streams_{{.streams = 2, .stream_bytes = 64},
                            [this] { return ResumableStreams::Time(now_); }};
};

TEST_F(ResumableStreamsTest, EventsAreNumberedAndComeAgain) {
  auto reader = std::make_shared<MemoryResponse>();
  const auto stream = keep("a", reader);
  stream->write("data: 1\n\n");
  stream->write("event: x\ndata: 2\n\ndata: 3\n\n");
  stream->end();
  const std::string last = "id: 1\nevent: x\ndata: 2\n\nid: 2\ndata: 3\n\n";
  EXPECT_EQ(reader->wait(), "id: 0\ndata: 1\n\n" + last);
  EXPECT_EQ(resumed("a", 0), "id: 0\ndata: 1\n\n" + last);
  EXPECT_EQ(resumed("a", 1), last);
  EXPECT_EQ(resumed("a", 3), "");
}

TEST_F(ResumableStreamsTest, GoesOnWithoutAReader) {
  auto reader = std::make_shared<MemoryResponse>();
  const auto stream = keep("a", reader);
  stream->write("data: 1\n\n");
  reader->leave();
  EXPECT_EQ(cancelled_, 0);
  stream->write("data: 2\n\n");
  auto back = std::make_shared<MemoryResponse>();
  EXPECT_FALSE(streams_.resume("a", 1, back));
  stream->write("data: 3\n\n");
  stream->end();
  EXPECT_EQ(back->wait(), "id: 1\ndata: 2\n\nid: 2\ndata: 3\n\n");
  EXPECT_EQ(cancelled_, 0);
}

TEST_F(ResumableStreamsTest, ASecondReaderReplacesTheFirst) {
  auto first = std::make_shared<MemoryResponse>();
  const auto stream = keep("a", first);
  stream->write("data: 1\n\n");
  auto second = std::make_shared<MemoryResponse>();
  EXPECT_FALSE(streams_.resume("a", 0, second));
  EXPECT_EQ(first->wait(), "id: 0\ndata: 1\n\n");
  stream->end();
  EXPECT_EQ(second->wait(), "id: 0\ndata: 1\n\n");
}

TEST_F(ResumableStreamsTest, OldEventsMakeRoom) {
  const auto stream = keep("a", std::make_shared<MemoryResponse>());
  for (int i = 0; i < 10; ++i) stream->write("data: x\n\n");  // 15 bytes with the number
  auto reader = std::make_shared<MemoryResponse>();
  const auto problem = streams_.resume("a", 0, reader);
  ASSERT_TRUE(problem);
  EXPECT_EQ(problem->status, 400);
  EXPECT_NE(problem->message.find("6 to 10"), std::string::npos) << problem->message;
  EXPECT_FALSE(streams_.resume("a", 6, reader));
}

TEST_F(ResumableStreamsTest, ErasingCancels) {
  const auto stream = keep("a", std::make_shared<MemoryResponse>());
  stream->write("data: 1\n\n");
  EXPECT_TRUE(streams_.erase("a"));
  EXPECT_FALSE(streams_.erase("a"));
  EXPECT_EQ(cancelled_, 1);
  EXPECT_TRUE(streams_.resume("a", 0, std::make_shared<MemoryResponse>()));
}

TEST_F(ResumableStreamsTest, ANewStreamOfAnIdEndsTheOldOne) {
  keep("a", std::make_shared<MemoryResponse>())->write("data: old\n\n");
  const auto stream = keep("a", std::make_shared<MemoryResponse>());
  EXPECT_EQ(cancelled_, 1);
  stream->write("data: new\n\n");
  stream->end();
  EXPECT_EQ(resumed("a", 0), "id: 0\ndata: new\n\n");
}

TEST_F(ResumableStreamsTest, AreKeptForAWhileAfterTheirEnd) {
  const auto stream = keep("a", std::make_shared<MemoryResponse>());
  stream->write("data: 1\n\n");
  now_ = std::chrono::seconds(1000);
  stream->end();
  now_ += std::chrono::seconds(299);
  EXPECT_EQ(resumed("a", 0), "id: 0\ndata: 1\n\n");
  now_ += std::chrono::seconds(1);
  EXPECT_TRUE(streams_.resume("a", 0, std::make_shared<MemoryResponse>()));
}

TEST_F(ResumableStreamsTest, ThereAreOnlySoMany) {
  const auto a = keep("a", std::make_shared<MemoryResponse>());
  const auto b = keep("b", std::make_shared<MemoryResponse>());
  auto reader = std::make_shared<MemoryResponse>();
  EXPECT_EQ(streams_.keep("c", reader), reader);
  b->end();
  EXPECT_NE(streams_.keep("d", reader), reader);
  EXPECT_TRUE(streams_.resume("b", 0, std::make_shared<MemoryResponse>()));
}

TEST_F(ResumableStreamsTest, AnAnswerThatComesWholeEndsWithItsClient) {
  auto reader = std::make_shared<MemoryResponse>();
  const auto response = streams_.keep("a", reader);
  response->when_closed([this] { ++cancelled_; });
  reader->leave();
  EXPECT_EQ(cancelled_, 1);
  response->send(200, {}, "whole");
  EXPECT_EQ(reader->wait(), "whole");
}

}  // namespace
}  // namespace moeflux::serve
