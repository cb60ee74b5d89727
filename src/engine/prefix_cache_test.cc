#include "engine/prefix_cache.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "base/format.h"
#include "engine/snapshot.h"
#include "io/file.h"
#include "io/file_use.h"
#include "tests/support/expect_error.h"
#include "tests/support/temp_folder.h"

namespace moeflux {
namespace {

using testing::expect_error;
using Tokens = std::vector<TokenId>;
using Bytes = std::vector<std::byte>;

/// Its layer has no byte a token, so that all snapshots but for their tokens are equally large.
Bytes snapshot_of(const Tokens& tokens) {
  SnapshotHeader header{.model = 1,
                        .num_tokens = tokens.size(),
                        .extra_bytes = 0,
                        .layers = {{{{.extent = StateExtent::kFixed, .shape = {1, 8, 8}}}}}};
  return SnapshotBuilder(header, tokens, {}).finish();
}

enum class States { kWhole, kCut };

class PrefixCacheTest : public ::testing::TestWithParam<bool> {
 protected:
  std::string directory() const { return GetParam() ? folder_ / "kept" : std::string(); }
  std::unique_ptr<PrefixCache> open(uint64_t capacity_bytes, States states = States::kWhole,
                                    uint64_t owner = 5, int64_t tokens_max = 64) {
    auto cache = PrefixCache::open({.capacity_bytes = capacity_bytes,
                                    .directory = directory(),
                                    .owner = owner,
                                    .tokens_max = tokens_max,
                                    .shortest_truncation = [states](int64_t length) {
                                      return states == States::kWhole ? length : int64_t{0};
                                    }});
    EXPECT_TRUE(cache.ok()) << (cache.ok() ? "" : cache.error().to_string());
    return std::move(cache).value();
  }
  static void keep(PrefixCache& cache, const Tokens& tokens, std::string_view client = {}) {
    Bytes bytes = snapshot_of(tokens);
    ASSERT_TRUE(cache.wants(tokens, bytes.size(), client));
    ASSERT_TRUE(cache.keep(tokens, std::move(bytes), client).ok());
  }
  /// The state that a text starts from, and the number of its tokens.
  struct Hit {
    int64_t length = 0;
    Tokens state;
  };
  static Hit reuse(PrefixCache& cache, const Tokens& tokens, std::string_view client = {}) {
    Hit hit;
    const auto load = [&](int64_t, std::span<const std::byte> bytes) {
      const auto view = parse_snapshot(bytes);
      if (!view.ok()) return Status(view.error());
      hit.state = view->tokens;
      return Status();
    };
    const auto length = cache.reuse(tokens, load, client);
    EXPECT_TRUE(length.ok());
    hit.length = length.ok() ? *length : -1;
    return hit;
  }
  std::vector<std::string> files() const {
    auto names = list_files(directory());
    EXPECT_TRUE(names.ok());
    return names.ok() ? *names : std::vector<std::string>();
  }

  testing::TempFolder folder_;
};

constexpr uint64_t kRoomyCache = 1 << 20;

TEST_P(PrefixCacheTest, LongestMatchWins) {
  const auto cache = open(kRoomyCache);
  keep(*cache, {1, 2});
  keep(*cache, {1, 2, 3, 4});
  keep(*cache, {1, 2, 9});
  EXPECT_EQ(reuse(*cache, {1, 2, 3, 4, 5}).state, (Tokens{1, 2, 3, 4}));
  EXPECT_EQ(reuse(*cache, {1, 2, 3, 4, 5}).length, 4);
  EXPECT_EQ(reuse(*cache, {1, 2, 3}).state, (Tokens{1, 2}));
  EXPECT_EQ(reuse(*cache, {1, 2, 9}).length, 3);
  EXPECT_EQ(reuse(*cache, {1}).length, 0);
  EXPECT_EQ(reuse(*cache, {2, 1}).length, 0);
  EXPECT_EQ(reuse(*cache, {}).length, 0);
}

TEST_P(PrefixCacheTest, StatesThatCanBeCutServeWhatTheyShare) {
  const auto cache = open(kRoomyCache, States::kCut);
  keep(*cache, {1, 2, 3, 4});
  EXPECT_EQ(reuse(*cache, {1, 2, 9}).length, 2);
  EXPECT_FALSE(cache->wants(Tokens{1, 2, 3}, 10));  // the longer one serves
  keep(*cache, {1, 2, 3, 4, 5, 6});                 // and makes the shorter one useless
  EXPECT_EQ(cache->size(), 1u);
  EXPECT_EQ(reuse(*cache, {1, 2, 3, 4, 7}).length, 4);
}

TEST_P(PrefixCacheTest, LeastRecentlyUsedGoesFirst) {
  const uint64_t each = snapshot_of({1, 1}).size();
  const auto cache = open(3 * each);
  keep(*cache, {1, 1});
  keep(*cache, {2, 2});
  keep(*cache, {3, 3});
  EXPECT_EQ(reuse(*cache, {1, 1}).length, 2);
  EXPECT_FALSE(cache->wants(Tokens{2, 2}, each));  // counts as a use
  keep(*cache, {4, 4});
  EXPECT_EQ(cache->size_bytes(), 3 * each);
  EXPECT_EQ(reuse(*cache, {3, 3}).length, 0);
  for (const TokenId kept : {1, 2, 4}) EXPECT_EQ(reuse(*cache, {kept, kept}).length, 2) << kept;
  if (GetParam()) {
    EXPECT_EQ(files().size(), 3u);
  }
}

TEST_P(PrefixCacheTest, AClientsStatesAreNothingToOthers) {
  const auto cache = open(kRoomyCache, States::kCut);
  keep(*cache, {1, 2, 3}, "ann");
  EXPECT_EQ(reuse(*cache, {1, 2, 3}, "ann").length, 3);
  EXPECT_EQ(reuse(*cache, {1, 2, 3}, "bob").length, 0);
  EXPECT_EQ(reuse(*cache, {1, 2, 3}).length, 0);
  keep(*cache, {1, 2, 3, 4}, "bob");  // wanted though ann's serves, and in place of none of hers
  keep(*cache, {1, 2});
  EXPECT_EQ(cache->size(), 3u);
  EXPECT_EQ(reuse(*cache, {1, 2, 3, 4}, "ann").length, 3);
  EXPECT_EQ(reuse(*cache, {1, 2, 3, 4}, "bob").length, 4);
  EXPECT_EQ(reuse(*cache, {1, 2, 3, 4}).length, 2);
}

TEST_P(PrefixCacheTest, WhatExceedsTheCapacityIsNotWanted) {
  const uint64_t each = snapshot_of({1, 1}).size();
  const auto cache = open(each - 1);
  EXPECT_FALSE(cache->wants(Tokens{1, 1}, each));
  EXPECT_TRUE(cache->wants(Tokens{1, 1}, each - 1));
  EXPECT_FALSE(cache->wants(Tokens{}, 1));
}

TEST_P(PrefixCacheTest, RefusedStateIsRemovedAndTheNextTried) {
  const auto cache = open(kRoomyCache);
  keep(*cache, {1, 2});
  keep(*cache, {1, 2, 3});
  const auto length = cache->reuse(Tokens{1, 2, 3}, [](int64_t n, std::span<const std::byte>) {
    return n == 3 ? Status(Error(ErrorCode::kCorruption, "damaged")) : Status();
  });
  ASSERT_TRUE(length.ok());
  EXPECT_EQ(*length, 2);
  EXPECT_EQ(cache->size(), 1u);
}

TEST_P(PrefixCacheTest, FullMemoryIsAnErrorAndRemovesNothing) {
  const auto cache = open(kRoomyCache);
  keep(*cache, {1, 2});
  expect_error(cache->reuse(Tokens{1, 2},
                            [](int64_t, std::span<const std::byte>) {
                              return Status(Error(ErrorCode::kResourceExhausted, "full"));
                            }),
               ErrorCode::kResourceExhausted, {"full"});
  EXPECT_EQ(cache->size(), 1u);
}

TEST_P(PrefixCacheTest, StateOfMoreTokensThanASequenceMayHaveIsCutOrMissed) {
  const auto cut = open(kRoomyCache, States::kCut, 5, 3);
  keep(*cut, {1, 2, 3, 4, 5, 6});
  EXPECT_EQ(reuse(*cut, {1, 2}).length, 2);
  EXPECT_EQ(reuse(*cut, {1, 2, 3, 4, 5, 6, 7}).length, 3);
  const auto whole = open(kRoomyCache, States::kWhole, 6, 3);
  keep(*whole, {1, 2, 3, 4, 5, 6});
  EXPECT_EQ(reuse(*whole, {1, 2, 3, 4, 5, 6, 7}).length, 0);
  keep(*whole, {1, 2});
  EXPECT_EQ(reuse(*whole, {1, 2, 3, 4, 5, 6, 7}).length, 2);
  EXPECT_EQ(whole->size(), 2u);
}

INSTANTIATE_TEST_SUITE_P(Places, PrefixCacheTest, ::testing::Values(false, true),
                         [](const auto& test) { return test.param ? "Folder" : "Memory"; });

class PrefixCacheFolder : public PrefixCacheTest {};

TEST_P(PrefixCacheFolder, SurvivesARestart) {
  keep(*open(kRoomyCache), {1, 2, 3});
  const auto cache = open(kRoomyCache);
  EXPECT_EQ(cache->size(), 1u);
  EXPECT_EQ(reuse(*cache, {1, 2, 3, 4}).length, 3);
  EXPECT_EQ(open(10)->size(), 0u);  // a smaller capacity
  EXPECT_TRUE(files().empty());
}

TEST_P(PrefixCacheFolder, DamagedFilesAreIgnoredAndRemoved) {
  keep(*open(kRoomyCache), {1, 2, 3});
  const std::string name = files().at(0);
  const std::string path = directory() + "/" + name;
  const std::string good = testing::read_bytes(path);
  testing::write_bytes(path, good.substr(0, good.size() / 2));  // seen when the folder is read
  EXPECT_EQ(open(kRoomyCache)->size(), 0u);
  EXPECT_TRUE(files().empty());

  std::string flipped = good;
  flipped.back() = static_cast<char>(flipped.back() ^ 1);  // seen when the state is used
  testing::write_bytes(path, flipped);
  const auto cache = open(kRoomyCache);
  EXPECT_EQ(cache->size(), 1u);
  EXPECT_EQ(reuse(*cache, {1, 2, 3}).length, 0);
  EXPECT_TRUE(files().empty());

  std::string other_name = name;  // the hash of other tokens
  other_name[20] = other_name[20] == '0' ? '1' : '0';
  testing::write_bytes(directory() + "/" + other_name, good);
  EXPECT_EQ(open(kRoomyCache)->size(), 0u);
  EXPECT_TRUE(files().empty());
}

TEST_P(PrefixCacheFolder, AClientFindsItsStatesAfterARestart) {
  {
    const auto cache = open(kRoomyCache);
    keep(*cache, {1, 2, 3}, "ann");
    keep(*cache, {1, 2});
  }
  const auto cache = open(kRoomyCache);
  EXPECT_EQ(cache->size(), 1u);
  EXPECT_EQ(reuse(*cache, {1, 2, 3}, "bob").length, 0);
  EXPECT_EQ(reuse(*cache, {1, 2, 3}).length, 2);
  EXPECT_EQ(reuse(*cache, {1, 2, 3}, "ann").length, 3);
  EXPECT_EQ(files().size(), 2u);
}

TEST_P(PrefixCacheFolder, AClientsDamagedFilesAreRemovedWhenItComes) {
  keep(*open(kRoomyCache), {1, 2, 3}, "ann");
  const std::string path = directory() + "/" + files().at(0);
  testing::write_bytes(path, "moeflux");
  const auto cache = open(kRoomyCache);
  EXPECT_EQ(files().size(), 1u);
  EXPECT_EQ(reuse(*cache, {1, 2, 3}, "ann").length, 0);
  EXPECT_TRUE(files().empty());
}

TEST_P(PrefixCacheFolder, OthersFilesAreLeftAlone) {
  keep(*open(kRoomyCache), {1, 2, 3});
  testing::write_bytes(directory() + "/notes.txt", "mine");
  const auto other = open(kRoomyCache, States::kWhole, 6);
  EXPECT_EQ(other->size(), 0u);
  EXPECT_EQ(files().size(), 2u);
}

TEST_P(PrefixCacheFolder, LongStatesStayWhereSequencesAreShort) {
  const Tokens text(100'000, 1);
  keep(*open(kRoomyCache, States::kCut, 5, 200'000), text);
  EXPECT_EQ(reuse(*open(kRoomyCache, States::kCut, 5, 3), text).length, 3);
  EXPECT_EQ(files().size(), 1u);
  EXPECT_EQ(reuse(*open(kRoomyCache, States::kCut, 5, 200'000), text).length, 100'000);
}

TEST_P(PrefixCacheFolder, CapacityIsThatOfAllOwners) {
  const uint64_t each = snapshot_of({1, 1}).size();
  const auto first = open(4 * each);
  keep(*first, {1, 1});
  keep(*first, {2, 2});
  const auto second = open(4 * each, States::kWhole, 6);
  keep(*second, {3, 3});
  keep(*second, {4, 4});
  EXPECT_EQ(reuse(*first, {1, 1}).length, 2);
  keep(*second, {5, 5});  // {2, 2} was used longest ago
  EXPECT_EQ(files().size(), 4u);
  EXPECT_EQ(reuse(*first, {2, 2}).length, 0);
  keep(*first, {6, 6});  // then {3, 3} of the other
  EXPECT_EQ(reuse(*second, {3, 3}).length, 0);
  EXPECT_EQ(reuse(*first, {1, 1}).length, 2);
  for (const TokenId kept : {4, 5}) EXPECT_EQ(reuse(*second, {kept, kept}).length, 2) << kept;
  EXPECT_EQ(open(each, States::kWhole, 7)->size(), 0u);
  EXPECT_EQ(files().size(), 1u);
  EXPECT_EQ(reuse(*open(kRoomyCache, States::kWhole, 6), {5, 5}).length, 2);  // the last one used
}

TEST_P(PrefixCacheFolder, UsesAreRememberedAcrossRestarts) {
  const uint64_t each = snapshot_of({1, 1}).size();
  for (const TokenId token : {1, 2, 3}) keep(*open(kRoomyCache), {token, token});
  EXPECT_EQ(reuse(*open(kRoomyCache), {1, 1}).length, 2);
  const auto cache = open(2 * each);
  EXPECT_EQ(reuse(*cache, {2, 2}).length, 0);
  for (const TokenId kept : {1, 3}) EXPECT_EQ(reuse(*cache, {kept, kept}).length, 2) << kept;
}

TEST_P(PrefixCacheFolder, StateThatCannotBeKeptAloneCostsNobodyElse) {
  const uint64_t each = snapshot_of({1, 1}).size();
  const auto cache = open(2 * each);
  keep(*cache, {1, 1});
  keep(*open(kRoomyCache, States::kWhole, 6), Tokens(1000, 1));
  keep(*cache, {2, 2});
  for (const TokenId kept : {1, 2}) EXPECT_EQ(reuse(*cache, {kept, kept}).length, 2) << kept;
  EXPECT_EQ(files().size(), 2u);
}

TEST_P(PrefixCacheFolder, TimesAheadOfTheClockCountAsOldest) {
  const uint64_t each = snapshot_of({1, 1}).size();
  const auto cache = open(2 * each);
  keep(*cache, {1, 1});
  const std::string path = directory() + "/" + files().at(0);
  ASSERT_TRUE(note_file_use(path, wall_clock_ns() + int64_t{86'400} * 1'000'000'000).ok());
  keep(*cache, {2, 2});
  keep(*cache, {3, 3});
  EXPECT_EQ(reuse(*cache, {1, 1}).length, 0);
  for (const TokenId kept : {2, 3}) EXPECT_EQ(reuse(*cache, {kept, kept}).length, 2) << kept;
}

TEST_P(PrefixCacheFolder, FilesThatAreNoStatesAreNeitherCountedNorTouched) {
  const std::string foreign = "0123456789abcdef-0123456789abcdef.snapshot";
  const uint64_t each = snapshot_of({1, 1}).size();
  const auto cache = open(each);
  for (const std::string& name : {foreign, foreign + ".old", std::string("notes.snapshot")}) {
    testing::write_bytes(directory() + "/" + name, std::string(1000, 'n'));
  }
  const auto write_version = [&](uint32_t version) {
    const std::string text = {static_cast<char>(version), 0, 0, 0};
    testing::write_bytes(directory() + "/" + foreign, "MFLXSNAP" + text + std::string(1000, 'n'));
  };
  keep(*cache, {1, 1});
  EXPECT_EQ(files().size(), 4u);
  write_version(kSnapshotVersion - 1);  // nobody's to remove
  keep(*cache, {2, 2});
  EXPECT_EQ(files().size(), 4u);
  write_version(kSnapshotVersion);
  keep(*cache, {3, 3});
  EXPECT_EQ(files().size(), 3u);
}

TEST_P(PrefixCacheFolder, TemporaryFilesStayWhileTheirWriterLives) {
  const std::string state = directory() + "/0123456789abcdef-0123456789abcdef.snapshot";
  const std::string dead =
      formatted("{}.tmp-{}-7", state, getpid());  // the id is in use, and not it
  open(kRoomyCache);
  testing::write_bytes(dead, "half a state");
  testing::write_bytes(directory() + "/notes.tmp-1-0", "mine");
  auto writer = AtomicFileWriter::create(state);
  ASSERT_TRUE(writer.ok());
  const Bytes bytes = snapshot_of({1, 2});
  ASSERT_TRUE((*writer)->write(bytes).ok());
  EXPECT_EQ(files().size(), 3u);
  const auto cache = open(kRoomyCache);
  EXPECT_FALSE(path_exists(dead));
  EXPECT_EQ(files().size(), 2u);
  ASSERT_TRUE((*writer)->commit().ok());
  EXPECT_TRUE(path_exists(state));
  testing::write_bytes(dead, "half a state");
  keep(*cache, {1, 2, 3});  // looks after them too
  EXPECT_FALSE(path_exists(dead));
}

TEST_P(PrefixCacheFolder, StateThatCannotBeReadIsNotRemoved) {
  const auto cache = open(kRoomyCache);
  keep(*cache, {1, 2});
  const auto length = cache->reuse(Tokens{1, 2}, [](int64_t, std::span<const std::byte>) {
    return Status(Error(ErrorCode::kIo, "the drive is away"));
  });
  ASSERT_TRUE(length.ok());
  EXPECT_EQ(*length, 0);
  EXPECT_EQ(cache->size(), 0u);
  EXPECT_EQ(reuse(*open(kRoomyCache), {1, 2}).length, 2);
}

TEST_P(PrefixCacheFolder, StatesOfOtherVersionsStay) {
  keep(*open(kRoomyCache), {1, 2});
  const std::string path = directory() + "/" + files().at(0);
  std::string newer = testing::read_bytes(path);
  newer[8] = 99;
  testing::write_bytes(path, newer);
  EXPECT_EQ(open(kRoomyCache)->size(), 0u);
  EXPECT_EQ(files().size(), 1u);
}

TEST_P(PrefixCacheFolder, FileThatIsGoneIsAMiss) {
  const auto cache = open(kRoomyCache);
  keep(*cache, {1, 2});
  keep(*cache, {1, 2, 3});
  open(10);  // another process with less room removes both
  EXPECT_EQ(reuse(*cache, {1, 2, 3}).length, 0);
  EXPECT_EQ(cache->size(), 0u);
}

INSTANTIATE_TEST_SUITE_P(Folder, PrefixCacheFolder, ::testing::Values(true));

}  // namespace
}  // namespace moeflux
