// Standard streams that are closed, fill up or are slow, Ctrl-C, and memory that is used up.
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>

#include "base/sanitizers.h"
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

// The first file that a program opens has the lowest free number.
TEST(Streams, ClosedOnesAreNeverTheModelsFiles) {
  const auto with_closed = [](const std::string& streams,
                              const std::vector<std::string>& arguments) {
    std::vector<std::string> words = {"-c", "exec \"$0\" \"$@\" " + streams, MOEFLUX_PROGRAM};
    words.insert(words.end(), arguments.begin(), arguments.end());
    return run_program("/bin/sh", words);
  };
  // A model's file as standard input would be questions without end.
  const ProgramOutput chat = with_closed("<&-", {"chat", "-m", fable(), "-c", "64"});
  EXPECT_EQ(chat.status, 0) << chat.err;
  EXPECT_EQ(chat.out + chat.err, "");
  const ProgramOutput prompt = with_closed("<&-", {"run", "-m", fable()});
  EXPECT_EQ(prompt.status, 1);
  EXPECT_TRUE(contains(prompt.err, "standard input: cannot read: Bad file")) << prompt.err;
  const ProgramOutput silent = with_closed(">&-", {"run", "-n", "4", "-m", fable(), "Once"});
  EXPECT_EQ(silent.status, 1);
  EXPECT_TRUE(contains(silent.err, "standard output: Bad file descriptor")) << silent.err;
  const ProgramOutput all = with_closed("<&- 2>&-", {"run", "-n", "4", "-m", fable(), "Once"});
  EXPECT_EQ(all.status, 0);
  EXPECT_EQ(all.out, moeflux({"run", "-n", "4", "-m", fable(), "Once"}).out);
}

#if defined(__linux__) && !defined(MF_ADDRESS_SANITIZER) && !defined(MF_THREAD_SANITIZER)
// KiB of addresses, from what a loader needs to a whole run. The program's own words begin with
// main: before it, the runtime ends a program without memory.
TEST(Memory, ThatIsUsedUpIsAnErrorAndNoCrash) {
  int errors = 0;
  for (int limit = 44000; limit < 110000; limit += 1500) {
    const std::string command = "ulimit -v " + std::to_string(limit) + "; exec \"$0\" \"$@\"";
    const ProgramOutput output = run_program(
        "/bin/sh", {"-c", command, MOEFLUX_PROGRAM, "run", "-t", "1", "-n", "3", "Once"});
    errors += output.status == 1 && contains(output.err, "error: ");
    if (errors > 0) {
      EXPECT_EQ(output.signal, 0) << limit << ": " << output.err;
    }
  }
  EXPECT_GT(errors, 5);
}
#endif

}  // namespace
}  // namespace moeflux::testing
