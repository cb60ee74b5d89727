#include "library/answer_box.h"

#include <gtest/gtest.h>

#include <thread>

namespace moeflux {
namespace {

/// Where on_ready is counted.
struct Counted {
  int calls = 0;
  std::shared_ptr<AnswerBox> box =
      std::make_shared<AnswerBox>([this] { ++calls; }, /*head_only=*/false);
};

AnswerPiece piece(AnswerBox& box, int64_t timeout_ms = 0) {
  Result<AnswerPiece> piece = box.take(timeout_ms);
  EXPECT_TRUE(piece.ok());
  return piece.ok() ? *std::move(piece) : AnswerPiece();
}

TEST(AnswerBox, TellsOnceUntilSomethingWasTaken) {
  Counted counted;
  AnswerBox& box = *counted.box;
  EXPECT_EQ(piece(box).status, 0);
  box.begin(200, {{"Content-Type", "text/plain"}});
  box.write("a");
  box.write("b");
  EXPECT_EQ(counted.calls, 1);
  EXPECT_EQ(box.unsent_bytes(), 2u);
  EXPECT_EQ(piece(box).bytes, "ab");
  EXPECT_EQ(box.unsent_bytes(), 0u);
  EXPECT_EQ(piece(box).bytes, "");
  box.write("c");
  box.end();
  EXPECT_EQ(counted.calls, 2);
  const AnswerPiece last = piece(box, -1);
  EXPECT_EQ(last.bytes, "c");
  EXPECT_TRUE(last.ended);
  EXPECT_TRUE(box.is_over());
}

TEST(AnswerBox, WhoAsksToBeToldOfRoomIsToldByTheTaker) {
  Counted counted;
  AnswerBox& box = *counted.box;
  box.begin(200, {});
  box.write("abc");
  bool drained = false;
  box.when_drained(1, [&] { drained = true; });
  EXPECT_FALSE(drained);
  EXPECT_EQ(piece(box).bytes, "abc");
  EXPECT_TRUE(drained);
  // When all was taken before it was asked, the taker is called once more.
  drained = false;
  const int before = counted.calls;
  box.when_drained(1, [&] { drained = true; });
  EXPECT_FALSE(drained) << "the taker has not come";
  EXPECT_EQ(counted.calls, before + 1);
  EXPECT_EQ(piece(box).bytes, "");
  EXPECT_TRUE(drained);
}

TEST(AnswerBox, ATakerThatWaitsMakesRoomToo) {
  const auto box = std::make_shared<AnswerBox>(nullptr, false);
  box->begin(200, {});
  EXPECT_EQ(piece(*box).status, 200);
  std::jthread giver([&] { box->when_drained(0, [&] { box->write("more"); }); });
  EXPECT_EQ(piece(*box, -1).bytes, "more");
}

// A stream that may be come back to goes on without its reader: nobody else would resume its text.
TEST(AnswerBox, AnAbortMakesRoomForWhoGoesOnWithoutThePeer) {
  AnswerBox box(nullptr, false);
  box.begin(200, {});
  box.write("abc");
  int drained = 0;
  box.when_drained(1, [&] { ++drained; });
  box.abort();
  EXPECT_EQ(drained, 1);
  box.when_drained(1, [&] { ++drained; });
  EXPECT_EQ(drained, 2);
}

TEST(AnswerBox, AnAbortTellsTheServiceAndTheTaker) {
  Counted counted;
  bool closed = false;
  counted.box->when_closed([&] { closed = true; });
  counted.box->abort();
  EXPECT_TRUE(closed && counted.box->is_closed());
  EXPECT_EQ(counted.calls, 1);
  EXPECT_EQ(counted.box->take(-1).error().code(), ErrorCode::kCancelled);
  closed = false;
  counted.box->when_closed([&] { closed = true; });
  EXPECT_TRUE(closed);
  counted.box->send(200, {}, "late");
  EXPECT_FALSE(counted.box->take(0).ok());
}

TEST(AnswerBox, NobodyIsToldAfterSilence) {
  Counted counted;
  counted.box->silence();
  counted.box->send(200, {}, "text");
  EXPECT_EQ(counted.calls, 0);
  EXPECT_EQ(piece(*counted.box).bytes, "text");
}

TEST(AnswerBox, AGiverThatLeavesWithoutAnEndFails) {
  Counted counted;
  auto response = AnswerBox::response(counted.box);
  response->begin(200, {});
  response->write("a");
  response = nullptr;
  EXPECT_EQ(piece(*counted.box).bytes, "a");
  EXPECT_EQ(counted.box->take(-1).error().code(), ErrorCode::kFailedPrecondition);
}

TEST(AnswerBox, ATakersPatienceEnds) {
  const auto box = std::make_shared<AnswerBox>(nullptr, false);
  const AnswerPiece nothing = piece(*box, 1);
  EXPECT_EQ(nothing.status, 0);
  EXPECT_FALSE(nothing.ended);
}

}  // namespace
}  // namespace moeflux
