#include "serve/http/request_reader.h"

#include <gtest/gtest.h>

#include <string>

namespace moeflux::serve {
namespace {

using State = RequestReader::State;

/// Feeds pieces of `step` bytes as a connection does, until the reader is done; what it left.
std::string feed_all(RequestReader& reader, std::string_view bytes, size_t step) {
  std::string buffer;
  while (reader.state() != State::kDone && reader.state() != State::kRefused) {
    if (reader.state() != State::kHeaderDone) {
      if (bytes.empty()) break;
      buffer += bytes.substr(0, step);
      bytes.remove_prefix(std::min(step, bytes.size()));
    }
    buffer.erase(0, reader.feed(buffer));
  }
  return buffer.append(bytes);
}

constexpr std::string_view kPost =
    "POST /a%20b?c HTTP/1.1\r\nHost: x\r\nX-Mixed: Y\r\nContent-Length: 3\r\n\r\nabcGET ";
constexpr std::string_view kChunked =
    "\r\nPOST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    "2;e\r\nab\r\n1\r\nc\r\n0\r\nTrailer: t\r\n\r\nGET ";

TEST(RequestReader, ReadsTheSameInAnyPieces) {
  for (const std::string_view text : {kPost, kChunked}) {
    for (size_t step = 1; step <= text.size(); ++step) {
      RequestReader reader({});
      EXPECT_EQ(feed_all(reader, text, step), "GET ") << step;
      ASSERT_EQ(reader.state(), State::kDone) << step << reader.problem().message;
      EXPECT_EQ(reader.request().method, "POST");
      EXPECT_EQ(reader.request().body, "abc");
      EXPECT_TRUE(reader.meta().has_body);
      EXPECT_TRUE(reader.meta().keep_alive);
    }
  }
}

TEST(RequestReader, EmptyChunkedBodiesMayComeInAnyPieces) {
  constexpr std::string_view kBareRequest =
      "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET ";
  for (size_t step = 1; step <= kBareRequest.size(); ++step) {
    RequestReader reader({});
    EXPECT_EQ(feed_all(reader, kBareRequest, step), "GET ") << step;
    EXPECT_EQ(reader.state(), State::kDone) << step;
  }
}

TEST(RequestReader, StopsBehindTheHeaders) {
  RequestReader reader({});
  const size_t head = kPost.find("abc");
  EXPECT_EQ(reader.feed(kPost), head);
  ASSERT_EQ(reader.state(), State::kHeaderDone);
  EXPECT_EQ(reader.request().path, "/a b");
  EXPECT_EQ(reader.request().query, "c");
  const Headers headers = {{"host", "x"}, {"x-mixed", "Y"}, {"content-length", "3"}};
  EXPECT_EQ(reader.request().headers, headers);
  EXPECT_EQ(reader.request().body, "");
  EXPECT_EQ(reader.feed({}), 0u);
  EXPECT_EQ(reader.state(), State::kBody);
}

TEST(RequestReader, AWholeAddressSaysWhichHostIsMeant) {
  RequestReader reader({});
  reader.feed("GET http://b:1/ HTTP/1.1\r\nHost: a\r\n\r\n");
  ASSERT_EQ(reader.state(), State::kHeaderDone);
  EXPECT_EQ(header(reader.request(), "host"), "b:1");
}

TEST(RequestReader, VersionsSayWhetherTheConnectionStays) {
  const auto keep_alive = [](std::string_view text) {
    RequestReader reader({});
    reader.feed(text);
    EXPECT_EQ(reader.state(), State::kHeaderDone) << text;
    return reader.meta().keep_alive;
  };
  EXPECT_TRUE(keep_alive("GET / HTTP/1.1\r\nHost: a\r\n\r\n"));
  EXPECT_FALSE(keep_alive("GET / HTTP/1.1\r\nHost: a\r\nConnection: x, Close\r\n\r\n"));
  EXPECT_FALSE(keep_alive("GET / HTTP/1.0\r\n\r\n"));
  EXPECT_TRUE(keep_alive("GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n"));
}

TEST(RequestReader, LimitsHoldInAnyPieces) {
  const RequestLimits limits{.header_bytes = 100, .header_fields = 3, .body_bytes = 4};
  const std::string head = "POST / HTTP/1.1\r\nHost: a\r\n";
  const std::string chunked = head + "Transfer-Encoding: chunked\r\n\r\n";
  const std::pair<std::string, int> cases[] = {
      {"GET /" + std::string(200, 'a'), 431},
      {head + "A: " + std::string(200, 'a'), 431},
      {"GET /" + std::string(60, 'a') + " HTTP/1.1\r\nHost: " + std::string(60, 'a') + "\r\n\r\n",
       431},
      {head + "A: 1\r\nB: 1\r\nC: 1\r\n\r\n", 431},
      {head + "Content-Length: 5\r\n\r\n", 413},
      {chunked + "5\r\n", 413},
      {chunked + "3\r\nabc\r\n2\r\n", 413},
      {chunked + "1;" + std::string(200, 'a'), 431},
      {chunked + "0\r\nA: " + std::string(200, 'a'), 431},
  };
  for (const auto& [text, status] : cases) {
    for (const size_t step : {size_t{1}, size_t{7}, text.size()}) {
      RequestReader reader(limits);
      feed_all(reader, text, step);
      EXPECT_EQ(reader.state(), State::kRefused) << text;
      EXPECT_EQ(reader.problem().status, status) << text << step;
    }
  }
  // In one piece, which would be parsed whole, as in others.
  for (const std::string& text : {chunked + "1;" + std::string(200, 'a') + "\r\nb\r\n0\r\n\r\n",
                                  chunked + "0\r\nA: " + std::string(200, 'a') + "\r\n\r\n"}) {
    for (const size_t step : {size_t{1}, text.size()}) {
      RequestReader reader(limits);
      feed_all(reader, text, step);
      EXPECT_EQ(reader.state(), State::kRefused) << text << step;
    }
  }
  RequestReader fits(limits);
  feed_all(fits, chunked + "3\r\nabc\r\n1\r\nd\r\n0\r\n\r\n", 1);
  EXPECT_EQ(fits.state(), State::kDone);
}

TEST(RequestReader, WhatIsRefusedKnowsTheClientsId) {
  RequestReader reader({.body_bytes = 1});
  reader.feed("POST / HTTP/1.1\r\nHost: a\r\nX-Request-Id: i\r\nContent-Length: 2\r\n\r\n");
  EXPECT_EQ(reader.problem().status, 413);
  EXPECT_EQ(header(reader.request(), "x-request-id"), "i");
}

}  // namespace
}  // namespace moeflux::serve
