// moeflux pack as a user meets it, and what is left of it when it is killed.
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <filesystem>
#include <map>
#include <thread>

#include "base/format.h"
#include "io/output_folder.h"
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
  EXPECT_TRUE(read_folder(parent / "killed") == expected);
}

TEST(PackCommand, RefusesItsSourceUnderEverySpelling) {
  const TempFolder parent;
  expect_success(moeflux({"synth", "--like", "tiny", "-o", parent / "model"}));
  std::filesystem::create_directory_symlink(parent / "model", parent / "link");
  const auto before = read_folder(parent / "model");
  for (const char* spelling : {"model", "model/", "./model", "link"}) {
    const ProgramOutput output =
        moeflux({"pack", "-m", parent / "model", "-o", parent / spelling, "--force"});
    EXPECT_EQ(output.status, 1) << spelling;
    EXPECT_NE(output.err.find("is an input"), std::string::npos) << output.err;
    EXPECT_TRUE(read_folder(parent / "model") == before) << spelling;
  }
}

std::string names_in(const std::map<std::string, std::string>& files) {
  std::string names;
  for (const auto& [name, bytes] : files) names += formatted("{} ({}) ", name, bytes.size());
  return names;
}

TEST(PackCommand, KilledWhileItReplacesItLeavesTheOldModelOrTheNewOne) {
  const TempFolder parent;
  const std::string target = parent / "model";
  expect_success(moeflux({"pack", "-m", fable(), "-o", parent / "whole"}));
  expect_success(moeflux({"synth", "--like", "tiny", "--pack", "-o", target}));
  write_bytes(target + "/notes.txt", "mine");
  auto before = read_folder(target);
  auto after = read_folder(parent / "whole");
  const std::vector<std::string> command = {"pack", "-m", fable(), "-o",
                                            target, "-t", "1",     "--force"};
  // Its own notes travel after the model, and its list, which may be half written, says so
  // meanwhile.
  const auto model_in = [](std::map<std::string, std::string> files) {
    files.erase("notes.txt");
    std::erase_if(files,
                  [](const auto& file) { return file.first.starts_with("moeflux_files.json"); });
    return files;
  };
  before = model_in(before);
  after = model_in(after);
  int old_models = 0;
  for (int milliseconds = 0;; milliseconds += 1 + milliseconds / 8) {
    BackgroundProgram program(MOEFLUX_PROGRAM, command);
    std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
    program.send_signal(SIGKILL);
    const ProgramOutput output = program.finish();
    const auto found = model_in(read_folder(target));
    ASSERT_TRUE(found == before || found == after)
        << "killed after " << milliseconds << " ms, found " << names_in(found);
    if (found == before) ++old_models;
    if (output.signal != 0) continue;
    expect_success(output);
    break;
  }
  RecordProperty("old_models", old_models);
  EXPECT_TRUE(model_in(read_folder(target)) == after);
  EXPECT_EQ(read_bytes(target + "/notes.txt"), "mine");
  EXPECT_FALSE(std::filesystem::exists(target + ".moeflux-new"));
  for (const auto& [name, bytes] : read_folder(target)) {
    EXPECT_EQ(name.find(".tmp-"), std::string::npos) << name;
  }
}

TEST(PackCommand, ASecondPackerInAFolderIsRefusedAtOnce) {
  const TempFolder parent;
  const std::string target = parent / "packed";
  std::filesystem::create_directory(target);
  const auto lock = FolderLock::take(target);
  ASSERT_TRUE(lock.ok());
  for (const char* force : {"-t1", "--force"}) {
    const ProgramOutput output = moeflux({"pack", "-m", fable(), "-o", target, force});
    EXPECT_EQ(output.status, 1);
    EXPECT_NE(output.err.find(target + ": another moeflux is writing"), std::string::npos)
        << output.err;
  }
  EXPECT_TRUE(std::filesystem::is_empty(target));
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
  EXPECT_NE(bits.err.find("`moeflux quantize`"), std::string::npos) << bits.err;
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
