// Files that an engine keeps are readable by their user alone: texts are in them.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>

#include "engine/sequence_file.h"
#include "engine/tiny_engine_test_util.h"

namespace moeflux {
namespace {

using std::filesystem::perms;

perms mode_of(const std::string& path) { return std::filesystem::status(path).permissions(); }

class PrivateFilesTest : public TinyEngineTest {
 protected:
  PrivateFilesTest() : umask_(::umask(0)) {}  // which lets everybody do everything
  ~PrivateFilesTest() override { ::umask(umask_); }

  mode_t umask_;
};

TEST_F(PrivateFilesTest, SavedAndKeptStatesAreTheirUsersAlone) {
  const auto engine =
      open({.prefix_cache_bytes = 1 << 20, .prefix_cache_directory = folder_ / "kept"});
  const auto sequence = start(*engine);
  eval(*engine, *sequence, some_tokens(9), LogitsMode::kLast);
  testing::write_bytes(folder_ / "state", "readable before");
  ASSERT_TRUE(save_sequence(*engine, *sequence, folder_ / "state").ok());
  ASSERT_TRUE(engine->prefixes().keep(*sequence).ok());
  EXPECT_EQ(mode_of(folder_ / "state"), perms(0600));
  EXPECT_EQ(mode_of(folder_ / "kept"), perms(0700));
  int kept = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder_ / "kept")) {
    EXPECT_EQ(mode_of(entry.path().string()), perms(0600)) << entry.path();
    ++kept;
  }
  EXPECT_EQ(kept, 1);
}

}  // namespace
}  // namespace moeflux
