// Standard output that closes, fills up or is slow, and Ctrl-C.
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>

#include "tests/integration/moeflux_program.h"

namespace moeflux::testing {
namespace {

const std::vector<std::string> kLongRun = {"run", "-n", "-1", "--ignore-eos", "Once upon a time"};

TEST(Streams, InterruptEndsTheTextWithStatisticsAndSuccess) {
  for (const int signal : {SIGINT, SIGTERM}) {
    BackgroundProgram program(MOEFLUX_PROGRAM, kLongRun);
    program.read_output(100);  // past the prompt: the pipe holds back what would come next
    program.send_signal(signal);
    const ProgramOutput output = program.finish();
    EXPECT_EQ(output.status, 0) << output.err;
    EXPECT_EQ(output.signal, 0);
    ASSERT_EQ(output.err_lines().size(), 1u) << output.err;
    EXPECT_TRUE(contains(output.err, "| stopped")) << output.err;
    EXPECT_EQ(output.out.back(), '\n');
  }
}

TEST(Streams, ReaderThatLeavesEndsTheRunInOrder) {
  BackgroundProgram program(MOEFLUX_PROGRAM, kLongRun);
  program.read_output(30);
  program.close_output();
  const ProgramOutput output = program.finish();
  EXPECT_EQ(output.status, 0) << output.err;
  EXPECT_EQ(output.signal, 0);
  ASSERT_EQ(output.err_lines().size(), 1u) << output.err;
  EXPECT_TRUE(contains(output.err, "| stopped")) << output.err;
}

TEST(Streams, ReaderThatNeverReadsIsNoError) {
  for (const std::vector<std::string>& arguments :
       std::vector<std::vector<std::string>>{{"inspect"}, {"tokenize", "Once"}, {"run", "Once"}}) {
    BackgroundProgram program(MOEFLUX_PROGRAM, arguments);
    program.close_output();
    const ProgramOutput output = program.finish();
    EXPECT_EQ(output.status, 0) << output.err;
    EXPECT_EQ(output.err, "");
  }
}

TEST(Streams, FullDiskIsAnError) {
  if (!std::filesystem::exists("/dev/full"))
    GTEST_SKIP() << "hardware: this system has no /dev/full";
  for (const std::vector<std::string>& arguments : std::vector<std::vector<std::string>>{
           {"inspect", "--json"}, {"tokenize", "Once"}, {"run", "Once"}, {"run", "-q", "Once"}}) {
    const ProgramOutput output = moeflux(arguments, {.out_path = "/dev/full"});
    EXPECT_EQ(output.status, 1);
    ASSERT_EQ(output.err_lines().size(), 1u) << output.err;
    EXPECT_TRUE(contains(output.err, "standard output: No space left")) << output.err;
  }
}

}  // namespace
}  // namespace moeflux::testing
