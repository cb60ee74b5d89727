#include "serve/kept_texts.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "io/file.h"
#include "tests/support/temp_folder.h"

namespace moeflux::serve {
namespace {

constexpr KeptLimits kLimits = {.bytes_max = 1000, .count_max = 4};
constexpr KeptLimits kFixed = {.bytes_max = 1000, .count_max = 4, .makes_room = false};

/// The same facts hold in memory and in a folder.
class KeptTextsTest : public ::testing::TestWithParam<bool> {
 protected:
  std::unique_ptr<KeptTexts> keep(const KeptLimits& limits) const {
    if (!GetParam()) return keep_texts_in_memory(limits);
    auto texts = keep_texts_in_folder(folder_ / "texts", limits);
    EXPECT_TRUE(texts.ok()) << texts.error().message();
    return std::move(texts).value();
  }
  static std::string names(KeptTexts& texts) {
    std::string all;
    const auto list = texts.list();
    EXPECT_TRUE(list.ok());
    for (const KeptText& one : *list) all += one.name;
    return all;
  }

  testing::TempFolder folder_;
};

TEST_P(KeptTextsTest, GivesWhatWasKeptLast) {
  const auto texts = keep(kLimits);
  EXPECT_EQ(texts->find("a").error().code(), ErrorCode::kNotFound);
  EXPECT_EQ(texts->erase("a").error().code(), ErrorCode::kNotFound);
  ASSERT_TRUE(texts->keep("a", "old").ok());
  ASSERT_TRUE(texts->keep("a", "newer").ok());
  EXPECT_EQ(*texts->find("a"), "newer");
  const auto list = texts->list();
  ASSERT_EQ(list->size(), 1u);
  EXPECT_EQ(list->front().size_bytes, 5u);
  ASSERT_TRUE(texts->erase("a").ok());
  EXPECT_EQ(texts->find("a").error().code(), ErrorCode::kNotFound);
  EXPECT_EQ(texts->find("../a").error().code(), ErrorCode::kNotFound);
}

TEST_P(KeptTextsTest, WhoWasUsedLongestAgoMakesRoom) {
  const auto texts = keep(kLimits);
  for (const char* name : {"a", "b", "c", "d"}) ASSERT_TRUE(texts->keep(name, "1").ok());
  ASSERT_TRUE(texts->find("a").ok());
  ASSERT_TRUE(texts->keep("e", "1").ok());  // too many
  EXPECT_EQ(names(*texts), "acde");
  ASSERT_TRUE(texts->keep("f", std::string(999, '1')).ok());  // too large
  EXPECT_EQ(names(*texts), "ef");
  EXPECT_EQ(texts->keep("g", std::string(1001, '1')).error().code(), ErrorCode::kResourceExhausted);
  EXPECT_EQ(names(*texts), "ef");
}

TEST_P(KeptTextsTest, WhereNobodyMakesRoomTheNewOneIsRefused) {
  const auto texts = keep(kFixed);
  for (const char* name : {"a", "b", "c", "d"}) ASSERT_TRUE(texts->keep(name, "1").ok());
  EXPECT_EQ(texts->keep("e", "1").error().code(), ErrorCode::kResourceExhausted);
  ASSERT_TRUE(texts->keep("a", std::string(997, '1')).ok());
  EXPECT_EQ(texts->keep("b", "22").error().code(), ErrorCode::kResourceExhausted);
  EXPECT_EQ(names(*texts), "abcd");
  EXPECT_EQ(*texts->find("b"), "1");
}

INSTANTIATE_TEST_SUITE_P(Places, KeptTextsTest, ::testing::Bool(),
                         [](const auto& which) { return which.param ? "Folder" : "Memory"; });

TEST(KeptTexts, NamesAreThoseOfFilesEverywhere) {
  for (const char* good : {"a", "resp_9aZ", "2-b"}) EXPECT_TRUE(is_text_name(good)) << good;
  const std::string longest(64, 'x');
  EXPECT_TRUE(is_text_name(longest));
  for (const std::string bad : {"", ".", "..", "a/b", "_a", "-a", "a.json", "a b", "\xc3\xa9"}) {
    EXPECT_FALSE(is_text_name(bad)) << bad;
  }
  EXPECT_FALSE(is_text_name(longest + "x"));
}

TEST(KeptTexts, AFolderIsItsOwnersAloneAndOutlivesTheObject) {
  testing::TempFolder folder;
  const std::string path = folder / "texts";
  ASSERT_TRUE((*keep_texts_in_folder(path, kLimits))->keep("a", "said").ok());
  struct stat info = {};
  ASSERT_EQ(stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
  ASSERT_EQ(stat((path + "/a.json").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  // What is not ours stays; what a writer that died has left goes.
  testing::write_bytes(path + "/notes.txt", std::string(2000, 'x'));
  testing::write_bytes(path + "/b.json.tmp-1-0", "half");
  const auto again = keep_texts_in_folder(path, kLimits);
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(*(*again)->find("a"), "said");
  EXPECT_EQ((*again)->list()->size(), 1u);
  EXPECT_TRUE(path_exists(path + "/notes.txt"));
  EXPECT_FALSE(path_exists(path + "/b.json.tmp-1-0"));
  EXPECT_EQ((*again)->place_of("a"), path + "/a.json");
}

TEST(KeptTexts, AFileInTheFoldersPlaceIsRefused) {
  testing::TempFolder folder;
  testing::write_bytes(folder / "texts", "a file");
  const auto texts = keep_texts_in_folder(folder / "texts", kLimits);
  ASSERT_FALSE(texts.ok());
  EXPECT_NE(texts.error().message().find("texts"), std::string::npos);
}

}  // namespace
}  // namespace moeflux::serve
