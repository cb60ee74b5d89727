#include "serve/http/http_text.h"

#include <gtest/gtest.h>

#include "base/json.h"

namespace moeflux::serve {
namespace {

TEST(HttpText, PercentSignsNeedTwoDigits) {
  EXPECT_EQ(percent_decode("a%41%2f%C3%a4+"), "aA/\xc3\xa4+");
  EXPECT_EQ(percent_decode(""), "");
  EXPECT_EQ(percent_decode("%25"), "%");
  for (const char* text : {"%", "%4", "a%", "%4g", "%g4", "%%41", "%-1"}) {
    EXPECT_FALSE(percent_decode(text)) << text;
  }
}

TEST(HttpText, TargetsAreDecodedOnce) {
  const auto target = parse_target("/a%2541%20b?c=%41?d#e");
  ASSERT_TRUE(target);
  EXPECT_EQ(target->path, "/a%41 b");
  EXPECT_EQ(target->query, "c=%41?d");
  EXPECT_EQ(target->authority, "");
}

TEST(HttpText, TargetsMayBeWholeAddresses) {
  auto target = parse_target("HTTP://Box:80/a?b");
  ASSERT_TRUE(target);
  EXPECT_EQ(target->authority, "Box:80");
  EXPECT_EQ(target->path, "/a");
  target = parse_target("http://box");
  ASSERT_TRUE(target);
  EXPECT_EQ(target->path, "/");
  EXPECT_FALSE(parse_target("http://box?b"));
  EXPECT_FALSE(parse_target("http:///a"));
}

TEST(HttpText, PathsAreText) {
  for (const char* text : {"", "a", "*", "?a", "#", "/%00", "/%0a", "/%7f", "/%ff", "/%c3", "/%",
                           "ftp://box/a", "box:80"}) {
    EXPECT_FALSE(parse_target(text)) << text;
  }
}

TEST(HttpText, IdsOfClientsArePlain) {
  EXPECT_TRUE(is_request_id("a-B_9.:+/=@~"));
  EXPECT_TRUE(is_request_id(std::string(128, 'a')));
  for (const std::string& text :
       {std::string(), std::string(129, 'a'), std::string("a b"), std::string("a\"b"),
        std::string("\xc3\xa4"), std::string("a\nb")}) {
    EXPECT_FALSE(is_request_id(text)) << text;
  }
}

TEST(HttpText, OwnIdsDiffer) {
  EXPECT_NE(make_request_id(1, 1), make_request_id(1, 2));
  EXPECT_NE(make_request_id(1, 1), make_request_id(2, 1));
  EXPECT_TRUE(is_request_id(make_request_id(1, 1)));
}

TEST(HttpText, DatesAreThoseOfTheRfc) {
  EXPECT_EQ(http_date(784111777), "Sun, 06 Nov 1994 08:49:37 GMT");
  EXPECT_EQ(http_date(0), "Thu, 01 Jan 1970 00:00:00 GMT");
}

TEST(HttpText, HeadsSayWhereTheBodyEnds) {
  const auto head = [](AnswerHead what) { return head_text(what, {}, {}); };
  EXPECT_NE(head({.body_bytes = 7}).find("\r\nContent-Length: 7\r\n"), std::string::npos);
  EXPECT_NE(head({.framing = BodyFraming::kChunked}).find("\r\nTransfer-Encoding: chunked\r\n"),
            std::string::npos);
  const std::string none = head({.status = 204, .framing = BodyFraming::kNone});
  EXPECT_TRUE(none.starts_with("HTTP/1.1 204 No Content\r\n")) << none;
  EXPECT_EQ(none.find("Content-Length"), std::string::npos);
  EXPECT_NE(head({.minor_version = 0}).find("\r\nConnection: keep-alive\r\n"), std::string::npos);
  EXPECT_NE(head({.keep_alive = false}).find("\r\nConnection: close\r\n"), std::string::npos);
  EXPECT_EQ(head({}).find("Connection"), std::string::npos);
  EXPECT_TRUE(head({.status = 299}).starts_with("HTTP/1.1 299 \r\n"));
}

TEST(HttpText, HeadersOfAnswersCannotForgeOthers) {
  const Headers own = {{"x-request-id", "1"}, {"Vary", "Origin"}};
  const Headers headers = {{"X-A", "b\r\nX-Evil: 1"}, {"content-length", "9"}, {"SERVER", "x"},
                           {"X-Request-Id", "2"},     {"Vary", "Accept"},      {"Connection", "x"}};
  const std::string text = head_text({}, own, headers);
  EXPECT_NE(text.find("\r\nX-A: b  X-Evil: 1\r\n"), std::string::npos) << text;
  EXPECT_EQ(text.find("\r\nX-Evil"), std::string::npos);
  EXPECT_EQ(text.find("9\r\n"), std::string::npos);
  EXPECT_EQ(text.find("X-Request-Id"), std::string::npos);
  EXPECT_NE(text.find("\r\nVary: Origin\r\n"), std::string::npos);
  EXPECT_NE(text.find("\r\nVary: Accept\r\n"), std::string::npos);
  EXPECT_TRUE(text.ends_with("\r\n\r\n"));
}

TEST(HttpText, ChunksSayTheirLength) {
  EXPECT_EQ(chunk_of("0123456789abcdef"), "10\r\n0123456789abcdef\r\n");
  EXPECT_EQ(chunk_of(""), "");
}

TEST(HttpText, RefusalsAreJsonWhateverTheirMessage) {
  const auto json =
      parse_json(refusal_body({403, "permission_error", "", "Host '\xff\"'"}), "body");
  ASSERT_TRUE(json.ok());
  EXPECT_EQ((*json)["error"]["type"], "permission_error");
  EXPECT_TRUE((*json)["error"]["param"].is_null());
  EXPECT_TRUE((*json)["error"]["code"].is_null());
}

}  // namespace
}  // namespace moeflux::serve
