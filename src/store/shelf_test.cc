#include "store/shelf.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "base/format.h"
#include "checkpoint/checksum.h"
#include "io/file.h"
#include "io/output_folder.h"
#include "io/part_file.h"
#include "tests/support/temp_folder.h"

namespace moeflux {
namespace {

constexpr ShelfLimits kLimits = {.bytes_max = 1000, .count_max = 4};
constexpr ShelfLimits kFixed = {.bytes_max = 1000, .count_max = 4, .makes_room = false};
constexpr int64_t kSecond = 1'000'000'000;

bool is_name(std::string_view name) {
  return !name.empty() && name.find_first_not_of("abcdefgh") == std::string_view::npos;
}

class ShelfTest : public ::testing::Test {
 protected:
  std::unique_ptr<Shelf> open(ShelfOptions options) const {
    options.is_name = is_name;
    options.clock_ns = [this] { return wall_clock_ns() + clock_ahead_ns_; };
    auto shelf = Shelf::open(std::move(options));
    EXPECT_TRUE(shelf.ok()) << shelf.error().message();
    return std::move(shelf).value();
  }
  std::unique_ptr<Shelf> open_folder(ShelfLimits limits = kLimits, Seal seal = Seal::kJson) const {
    return open({.limits = limits, .directory = path_, .seal = seal});
  }
  static std::string names(Shelf& shelf) {
    std::string all;
    const auto list = shelf.list();
    EXPECT_TRUE(list.ok());
    for (const ShelfItem& one : *list) all += one.name;
    return all;
  }
  std::string file(const std::string& name) const { return path_ + "/" + name + ".json"; }

  testing::TempFolder folder_;
  const std::string path_ = folder_ / "kept";
  int64_t clock_ahead_ns_ = 0;
};

/// The same facts hold in memory and in a folder.
class ShelfPlaces : public ShelfTest, public ::testing::WithParamInterface<bool> {
 protected:
  std::unique_ptr<Shelf> keep(const ShelfLimits& limits) const {
    return open({.limits = limits, .directory = GetParam() ? path_ : "", .seal = Seal::kOwn});
  }
};

TEST_P(ShelfPlaces, GivesWhatWasKeptLast) {
  const auto shelf = keep(kLimits);
  EXPECT_EQ(shelf->find("a").error().code(), ErrorCode::kNotFound);
  EXPECT_EQ(shelf->erase("a").error().code(), ErrorCode::kNotFound);
  ASSERT_TRUE(keep_text(*shelf, "a", "old").ok());
  ASSERT_TRUE(keep_text(*shelf, "a", "newer").ok());
  EXPECT_EQ(*find_text(*shelf, "a"), "newer");
  const auto list = shelf->list();
  ASSERT_EQ(list->size(), 1u);
  EXPECT_EQ(list->front().size_bytes, 5u);
  ASSERT_TRUE(shelf->erase("a").ok());
  EXPECT_EQ(shelf->find("a").error().code(), ErrorCode::kNotFound);
  EXPECT_EQ(shelf->find("../a").error().code(), ErrorCode::kNotFound);
}

TEST_P(ShelfPlaces, WhatWasUsedLongestAgoMakesRoom) {
  const auto shelf = keep(kLimits);
  for (const char* name : {"a", "b", "c", "d"}) ASSERT_TRUE(keep_text(*shelf, name, "1").ok());
  ASSERT_TRUE(shelf->find("a").ok());
  ASSERT_TRUE(keep_text(*shelf, "e", "1").ok());  // too many
  EXPECT_EQ(names(*shelf), "acde");
  ASSERT_TRUE(keep_text(*shelf, "f", std::string(999, '1')).ok());  // too large
  EXPECT_EQ(names(*shelf), "ef");
  EXPECT_EQ(keep_text(*shelf, "g", std::string(1001, '1')).error().code(),
            ErrorCode::kResourceExhausted);
  EXPECT_EQ(names(*shelf), "ef");
}

TEST_P(ShelfPlaces, WhereNothingMakesRoomTheNewIsRefused) {
  const auto shelf = keep(kFixed);
  for (const char* name : {"a", "b", "c", "d"}) ASSERT_TRUE(keep_text(*shelf, name, "1").ok());
  EXPECT_EQ(keep_text(*shelf, "e", "1").error().code(), ErrorCode::kResourceExhausted);
  ASSERT_TRUE(keep_text(*shelf, "a", std::string(997, '1')).ok());
  EXPECT_EQ(keep_text(*shelf, "b", "22").error().code(), ErrorCode::kResourceExhausted);
  EXPECT_EQ(names(*shelf), "abcd");
  EXPECT_EQ(*find_text(*shelf, "b"), "1");
}

TEST_P(ShelfPlaces, WhatItReplacesGoesBeforeOthers) {
  const auto shelf = keep(kLimits);
  for (const char* name : {"a", "b", "c", "d"}) ASSERT_TRUE(keep_text(*shelf, name, "1").ok());
  ASSERT_TRUE(shelf->keep("e", {std::byte{1}}, {"d"}).ok());
  EXPECT_EQ(names(*shelf), "abce");
}

TEST_P(ShelfPlaces, ANameIsClaimedOnceAtATime) {
  const auto shelf = keep(kLimits);
  auto claim = shelf->claim("a");
  ASSERT_TRUE(claim.ok());
  EXPECT_EQ(shelf->claim("a").error().code(), ErrorCode::kFailedPrecondition);
  EXPECT_TRUE(shelf->claim("b").ok());
  claim->reset();
  EXPECT_TRUE(shelf->claim("a").ok());
  EXPECT_EQ(names(*shelf), "");
}

INSTANTIATE_TEST_SUITE_P(All, ShelfPlaces, ::testing::Bool(),
                         [](const auto& which) { return which.param ? "Folder" : "Memory"; });

TEST_F(ShelfTest, AFolderIsItsOwnersAloneAndOutlivesTheObject) {
  ASSERT_TRUE(keep_text(*open_folder(), "a", R"({"said": 1})").ok());
  struct stat info = {};
  ASSERT_EQ(stat(path_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
  ASSERT_EQ(stat(file("a").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  // Files of others stay; files that a dead writer left go.
  testing::write_bytes(path_ + "/notes.txt", std::string(2000, 'x'));
  testing::write_bytes(path_ + "/b.json.tmp-1-0", "half");
  const auto again = open_folder();
  EXPECT_EQ(*find_text(*again, "a"), R"({"said": 1})");
  EXPECT_EQ(names(*again), "a");
  EXPECT_TRUE(path_exists(path_ + "/notes.txt"));
  EXPECT_FALSE(path_exists(path_ + "/b.json.tmp-1-0"));
  EXPECT_EQ(again->place_of("a"), file("a"));
}

// As its file cannot be written there, it shows what went before.
TEST_F(ShelfTest, RoomIsMadeBeforeAFileIsWritten) {
  const auto shelf = open_folder({.bytes_max = 1000}, Seal::kOwn);
  for (const char* name : {"a", "b", "c"}) {
    ASSERT_TRUE(keep_text(*shelf, name, std::string(300, 'x')).ok());
  }
  ASSERT_TRUE(create_folders(file("d") + "/in", FileAccess::kPrivate).ok());
  EXPECT_FALSE(keep_text(*shelf, "d", "small").ok());
  EXPECT_EQ(names(*shelf).size(), 3u);
  EXPECT_FALSE(keep_text(*shelf, "d", std::string(500, 'x')).ok());
  EXPECT_EQ(names(*shelf), "c");
}

TEST_F(ShelfTest, FoldersAboveItAreMade) {
  const std::string above = folder_ / "a";
  open({.limits = kLimits, .directory = above + "/b/kept/"});
  struct stat info = {};
  ASSERT_EQ(::stat(above.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
}

TEST_F(ShelfTest, AFileInTheFoldersPlaceIsRefused) {
  testing::write_bytes(path_, "a file");
  const auto shelf = Shelf::open({.limits = kLimits, .directory = path_, .is_name = is_name});
  ASSERT_FALSE(shelf.ok());
  EXPECT_NE(shelf.error().message().find("kept"), std::string::npos);
}

TEST_F(ShelfTest, NoFlippedBitIsTakenForWhatWasKept) {
  const std::string text = R"({"said": "one hundred and 100"})";
  const auto shelf = open_folder();
  ASSERT_TRUE(keep_text(*shelf, "a", text).ok());
  const std::string good = testing::read_bytes(file("a"));
  EXPECT_EQ(good.find(R"({"checksum":")"), 0u) << good;
  EXPECT_NE(good.find(R"("kept_as":"a",)"), std::string::npos) << good;
  size_t refused = 0;
  for (size_t bit = 0; bit < good.size() * 8; ++bit) {
    std::string bad = good;
    bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ 1 << bit % 8);
    testing::write_bytes(file("a"), bad);
    const auto found = find_text(*shelf, "a");
    refused += !found.ok();
    // A seal that is none any more leaves the text as it was.
    if (found.ok()) {
      EXPECT_EQ(found->substr(found->size() - text.size() + 1), text.substr(1));
    }
  }
  EXPECT_GE(refused, (text.size() + 16) * 8 - 16);
}

TEST_F(ShelfTest, ATextWithoutASealIsReadAndSealed) {
  const std::string text = R"({"said": 1})";
  const auto shelf = open_folder();
  testing::write_bytes(file("a"), text);
  EXPECT_EQ(*find_text(*shelf, "a"), text);
  EXPECT_NE(testing::read_bytes(file("a")), text);
  EXPECT_EQ(*find_text(*shelf, "a"), text);
  testing::write_bytes(file("b"), text);
  const auto claim = shelf->claim("b");  // its holder may be about to write
  EXPECT_EQ(*find_text(*shelf, "b"), text);
  EXPECT_EQ(testing::read_bytes(file("b")), text);
}

TEST_F(ShelfTest, AFileUnderAnotherNameIsNotWhatWasKeptThere) {
  const auto shelf = open_folder();
  ASSERT_TRUE(keep_text(*shelf, "a", R"({"said": 1})").ok());
  ASSERT_TRUE(keep_text(*shelf, "ab", R"({"said": 2})").ok());
  const std::string first = testing::read_bytes(file("a"));
  const std::string second = testing::read_bytes(file("ab"));
  testing::write_bytes(file("a"), second);
  testing::write_bytes(file("ab"), first);
  testing::write_bytes(file("c"), first);
  for (const char* name : {"a", "ab", "c"}) {
    const auto found = find_text(*shelf, name);
    ASSERT_FALSE(found.ok()) << name;
    EXPECT_EQ(found.error().code(), ErrorCode::kCorruption);
    EXPECT_NE(found.error().message().find(file(name)), std::string::npos);
  }
  testing::write_bytes(file("a"), first);
  EXPECT_EQ(*find_text(*shelf, "a"), R"({"said": 1})");
}

TEST_F(ShelfTest, ASealOfAnOlderVersionGetsItsName) {
  const auto shelf = open_folder();
  const std::string sum = checksum_text(checksum64(R"({"said": 1})"));
  testing::write_bytes(file("a"), formatted(R"({{"checksum":"{}","said": 1}})", sum));
  EXPECT_EQ(*find_text(*shelf, "a"), R"({"said": 1})");
  testing::write_bytes(file("b"), testing::read_bytes(file("a")));
  EXPECT_FALSE(find_text(*shelf, "b").ok());
}

TEST_F(ShelfTest, AFolderThatIsGoneIsAnErrorOfTheDrive) {
  const auto shelf = open_folder();
  ASSERT_TRUE(remove_empty_folder(path_).ok());
  EXPECT_EQ(keep_text(*shelf, "a", "{}").error().code(), ErrorCode::kIo);
  EXPECT_EQ(shelf->list().error().code(), ErrorCode::kIo);
  EXPECT_EQ(shelf->claim("a").error().code(), ErrorCode::kIo);
  EXPECT_EQ(shelf->find("a").error().code(), ErrorCode::kNotFound);
}

TEST_F(ShelfTest, LocksOfTheDeadGoAndHeldOnesStay) {
  const auto shelf = open_folder();
  const auto held = shelf->claim("a");
  ASSERT_TRUE(held.ok());
  testing::write_bytes(file("b") + ".lock", "");
  testing::write_bytes(path_ + "/notes.lock", "mine");
  const auto other = open_folder();
  EXPECT_TRUE(path_exists(file("a") + ".lock"));
  EXPECT_FALSE(path_exists(file("b") + ".lock"));
  EXPECT_TRUE(path_exists(path_ + "/notes.lock"));
  EXPECT_TRUE((*held)->is_held());
}

TEST_F(ShelfTest, AClaimThatIsRevokedIsSeenToBe) {
  const auto shelf = open_folder();
  const auto other = open_folder();
  const auto claim = shelf->claim("a");
  ASSERT_TRUE(claim.ok());
  ASSERT_TRUE(other->revoke("a").ok());
  EXPECT_FALSE((*claim)->is_held());
  EXPECT_EQ(other->revoke("a").error().code(), ErrorCode::kNotFound);
  EXPECT_TRUE(other->claim("a").ok());
}

TEST_F(ShelfTest, AClockThatGoesBackLosesNothingNew) {
  for (const int64_t back : {60 * kSecond, 3 * 86'400 * kSecond}) {
    clock_ahead_ns_ = back;
    const auto shelf = open_folder();
    for (const char* name : {"a", "b", "c", "d"}) ASSERT_TRUE(keep_text(*shelf, name, "{}").ok());
    clock_ahead_ns_ = 0;
    ASSERT_TRUE(keep_text(*shelf, "e", "{}").ok());
    EXPECT_EQ(names(*shelf), "bcde") << back;
    ASSERT_TRUE(keep_text(*open_folder(), "f", "{}").ok());  // by a server that begins then
    ASSERT_TRUE(keep_text(*shelf, "g", "{}").ok());
    EXPECT_EQ(names(*shelf), "defg") << back;
    for (const char* name : {"d", "e", "f", "g"}) ASSERT_TRUE(shelf->erase(name).ok());
  }
}

TEST_F(ShelfTest, TimesAheadOfTheClockCountAsOldest) {
  const auto shelf = open_folder();
  for (const char* name : {"a", "b", "c", "d"}) ASSERT_TRUE(keep_text(*shelf, name, "{}").ok());
  ASSERT_TRUE(note_file_use(file("c"), wall_clock_ns() + 86'400 * kSecond).ok());
  ASSERT_TRUE(keep_text(*shelf, "e", "{}").ok());
  EXPECT_EQ(names(*shelf), "abde");
}

}  // namespace
}  // namespace moeflux
