// moeflux pack as a user meets it, and what is left of it when it is killed.
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <filesystem>
#include <map>
#include <thread>

#include "tests/integration/moeflux_program.h"
#include "tests/support/run_program.h"
#include "tests/support/temp_folder.h"

namespace moeflux::testing {
namespace {

std::map<std::string, std::string> read_folder(const std::string& path) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(path)) {
    if (!entry.is_regular_file()) continue;
    files[entry.path().string().substr(path.size() + 1)] = read_bytes(entry.path().string());
  }
  return files;
}

TEST(PackCommand, KilledAtAnyTimeItGoesOnToTheSameFolder) {
  const TempFolder parent;
  expect_success(moeflux({"pack", "-m", fable(), "-o", parent / "whole"}));
  const auto expected = read_folder(parent / "whole");
  ASSERT_GE(expected.size(), 12u);
  const std::vector<std::string> command = {"pack", "-m", fable(), "-o", parent / "killed",
                                            "-t",   "1"};
  int kills = 0;
  // The delays grow until a run gets through; whatever the machine's speed, the folder is the same.
  for (int milliseconds = 0;; milliseconds += 1 + milliseconds / 8) {
    BackgroundProgram program(MOEFLUX_PROGRAM, command);
    std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
    program.send_signal(SIGKILL);
    const ProgramOutput output = program.finish();
    if (output.signal == 0) {
      expect_success(output);
      break;
    }
    ++kills;
    if (!std::filesystem::exists(parent / "killed/expert_pack.json") &&
        std::filesystem::exists(parent / "killed/expert_pack.unfinished.json")) {
      const ProgramOutput run = moeflux({"inspect", "-m", parent / "killed"});
      EXPECT_EQ(run.status, 1);
      EXPECT_NE(run.err.find("has not finished"), std::string::npos) << run.err;
    }
  }
  RecordProperty("kills", kills);
  expect_success(moeflux(command));
  EXPECT_EQ(read_folder(parent / "killed"), expected);
}

TEST(PackCommand, VerifiesAgainstChecksumsOrSource) {
  const TempFolder parent;
  const std::string packed = parent / "packed";
  expect_success(moeflux({"pack", "-m", fable(), "-o", packed}));
  const ProgramOutput alone = moeflux({"pack", "--verify", "-o", packed});
  expect_success(alone);
  EXPECT_NE(alone.out.find("every expert has its checksum"), std::string::npos) << alone.out;
  const ProgramOutput source = moeflux({"pack", "--verify", "-m", fable(), "-o", packed});
  expect_success(source);
  EXPECT_NE(source.out.find("every byte"), std::string::npos) << source.out;
  std::string layer = read_bytes(packed + "/experts/layer-00003.experts");
  layer[5000] = static_cast<char>(layer[5000] + 1);
  write_bytes(packed + "/experts/layer-00003.experts", layer);
  const ProgramOutput damaged = moeflux({"pack", "--verify", "-o", packed});
  EXPECT_EQ(damaged.status, 1);
  EXPECT_NE(damaged.err.find("layer 3 expert 0"), std::string::npos) << damaged.err;
}

TEST(PackCommand, SynthWritesPackedWhatPackMakesOfItsFolder) {
  const TempFolder parent;
  expect_success(moeflux({"synth", "--like", "tiny", "-o", parent / "plain"}));
  expect_success(moeflux({"pack", "-m", parent / "plain", "-o", parent / "packed"}));
  expect_success(moeflux({"synth", "--like", "tiny", "--pack", "-o", parent / "direct"}));
  auto packed = read_folder(parent / "packed");
  auto direct = read_folder(parent / "direct");
  packed.erase("expert_pack.json");  // its recipe does not know the seed
  direct.erase("expert_pack.json");
  EXPECT_EQ(packed, direct);
  EXPECT_FALSE(direct.empty());
  const ProgramOutput again =
      moeflux({"synth", "--like", "tiny", "--pack", "-o", parent / "direct"});
  EXPECT_NE(again.out.find("is packed already"), std::string::npos) << again.out << again.err;
  const ProgramOutput other =
      moeflux({"synth", "--like", "tiny", "--pack", "-s", "3", "-o", parent / "direct"});
  EXPECT_EQ(other.status, 1);
  expect_success(moeflux(
      {"synth", "--like", "tiny", "--pack", "-s", "3", "--force", "-o", parent / "direct"}));
  expect_success(moeflux({"inspect", "-m", parent / "direct"}));
}

TEST(PackCommand, SaysWhatIsWrong) {
  const TempFolder folder;
  const ProgramOutput bits = moeflux({"pack", "-m", fable(), "-o", folder / "x", "--bits", "4"});
  EXPECT_EQ(bits.status, 1);
  EXPECT_NE(bits.err.find("quantised already"), std::string::npos) << bits.err;
  EXPECT_FALSE(std::filesystem::exists(folder / "x"));
  write_bytes(folder / "notes.txt", "mine");
  const ProgramOutput full = moeflux({"pack", "-m", fable(), "-o", folder.path()});
  EXPECT_EQ(full.status, 1);
  EXPECT_NE(full.err.find("not empty"), std::string::npos) << full.err;
  const ProgramOutput none = moeflux({"pack", "--verify", "-o", folder.path()});
  EXPECT_EQ(none.status, 1);
}

}  // namespace
}  // namespace moeflux::testing
