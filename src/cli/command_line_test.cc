#include "cli/command_line.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <initializer_list>
#include <string>
#include <vector>

#include "cli/foreign_options.h"
#include "tests/support/expect_error.h"

namespace moeflux {
namespace {

struct Values {
  std::string model;
  std::string prompt;
  std::string size;
  std::vector<std::string> stops;
  std::vector<int64_t> counts = {512};
  int threads = 0;
  int64_t tokens = 128;
  double temperature = 0.5;
  bool quiet = false;
  bool verbose = false;
  bool help = false;
};

/// A command with an option of each kind, and what came of its arguments.
class CommandLineTest : public ::testing::Test {
 protected:
  CommandLineTest() {
    command_.add("prompt,-p,--prompt", values_.prompt, "").value("PROMPT").command_line_only();
    command_.add("-m,--model", values_.model, "").not_empty();
    command_.add("-t,--threads", values_.threads, "").range(0, 1024);
    command_.add("-n,--n-predict,--predict", values_.tokens, "");
    command_.add("--temp", values_.temperature, "");
    command_.add("-r,--reverse-prompt", values_.stops, "");
    command_.add_list("-c,--counts", values_.counts, "").range(0, 100);
    command_.add_size("--cache", values_.size, "");
    command_.add("-q,--quiet", values_.quiet, "");
    command_.add("-V,--very", values_.verbose, "");
    command_.add("-h,--help", values_.help, "");
  }

  Status parse(const std::vector<std::string>& arguments) {
    MF_ASSIGN_OR_RETURN(parsed_, parse_arguments(command_, arguments));
    return apply_options(command_);
  }
  void fails(const std::vector<std::string>& arguments,
             std::initializer_list<std::string_view> pieces) {
    testing::expect_error(parse(arguments), ErrorCode::kInvalidArgument, pieces);
  }

  Values values_;
  CommandOptions command_{"run", "Runs."};
  ParsedArguments parsed_;
};

TEST_F(CommandLineTest, ValuesFollowNamesInEveryManner) {
  const Status parsed = parse({"--model", "a", "--threads=3", "-n8", "-qV", "--temp", "-1", "-r",
                               "x", "-r", "--y", "-c", "1,2", "-c", "3", "--cache", "2G", "hello"});
  ASSERT_TRUE(parsed.ok()) << parsed.error().message();
  EXPECT_EQ(values_.model, "a");
  EXPECT_EQ(values_.threads, 3);
  EXPECT_EQ(values_.tokens, 8);
  EXPECT_TRUE(values_.quiet);
  EXPECT_TRUE(values_.verbose);
  EXPECT_EQ(values_.temperature, -1.0);
  EXPECT_EQ(values_.stops, (std::vector<std::string>{"x", "--y"}));
  EXPECT_EQ(values_.counts, (std::vector<int64_t>{1, 2, 3}));
  EXPECT_EQ(values_.size, "2G");
  EXPECT_EQ(values_.prompt, "hello");
}

TEST_F(CommandLineTest, TheLastValueWinsAndNamesHaveAliases) {
  ASSERT_TRUE(parse({"--predict", "1", "-n", "2", "-qn", "3"}).ok());
  EXPECT_EQ(values_.tokens, 3);
  EXPECT_TRUE(values_.quiet);
}

TEST_F(CommandLineTest, AnOptionThatIsGivenTwiceIsNoted) {
  const std::vector<std::string> repeated = {"-m", "a",  "-r", "x",  "-r", "y",   "-q",
                                             "-q", "-m", "b",  "-m", "b",  "-t1", "-t2"};
  ASSERT_TRUE(parse(repeated).ok());
  EXPECT_EQ(values_.model, "b");
  EXPECT_EQ(parsed_.notes,
            (std::vector<std::string>{"--model is given twice: b counts, a does not",
                                      "--threads is given twice: 2 counts, 1 does not"}));
}

TEST_F(CommandLineTest, BehindTwoDashesAllIsPositional) {
  ASSERT_TRUE(parse({"--", "--model"}).ok());
  EXPECT_EQ(values_.prompt, "--model");
  EXPECT_EQ(values_.model, "");
}

TEST_F(CommandLineTest, MistakesNameTheOptionAndTheNearest) {
  fails({"--modle", "x"}, {"unknown option --modle", "did you mean --model?"});
  fails({"-model", "x"}, {"-model", "did you mean --model?"});
  fails({"-x"}, {"unknown option -x"});
  fails({"a", "b"}, {"unexpected argument 'b'"});
  fails({"--model"}, {"--model needs a value"});
  fails({"-t", "many"}, {"--threads", "'many' is not a whole number"});
  fails({"-t", "1.5"}, {"--threads", "'1.5' is not a whole number"});
}

TEST_F(CommandLineTest, AnEmptyValueDoesNotMeanTheDefault) {
  fails({"--model", ""}, {"--model", "is empty"});
}

TEST_F(CommandLineTest, ValuesOutOfRangeAreNamed) {
  fails({"-t", "1025"}, {"--threads", "1025 is not between 0 and 1024"});
}

TEST_F(CommandLineTest, AListIsCheckedValueByValue) {
  fails({"-c", "1,200"}, {"--counts", "200 is not between 0 and 100"});
}

TEST_F(CommandLineTest, ASizeWithoutAUnitThatNobodyMeansIsRefused) {
  fails({"--cache", "8"}, {"--cache", "8 without a unit is 8 bytes", "8G"});
  EXPECT_EQ(size_problem("0"), "");
  EXPECT_EQ(size_problem("8B"), "");
  EXPECT_EQ(size_problem("8G"), "");
  EXPECT_EQ(size_problem("1048576"), "");
  EXPECT_NE(size_problem("1048575"), "");
  EXPECT_NE(size_problem("lots"), "");
}

TEST_F(CommandLineTest, NoFlagHidesInTheNameOfAnotherProgramsOption) {
  // -h is help here: `-hff` is not.
  fails({"-hff", "model.gguf"}, {"no option -hff", "moeflux pull"});
  EXPECT_FALSE(values_.help);
  fails({"-ngl", "99"}, {"no option -ngl", "--near-cache SIZE"});
}

TEST_F(CommandLineTest, OptionsWithoutAnEffectAreTakenWithTheirValues) {
  const Status parsed =
      parse({"--jinja", "--no-mmap", "-b", "512", "-fa", "on", "--color", "text"});
  ASSERT_TRUE(parsed.ok()) << parsed.error().message();
  EXPECT_EQ(values_.prompt, "text");
  ASSERT_EQ(parsed_.notes.size(), 5u);
  EXPECT_EQ(parsed_.notes[0].rfind("--jinja does nothing: ", 0), 0u);
}

TEST(ForeignOptions, EveryNameStandsOnceAndEveryRowSaysWhy) {
  for (const ForeignOption& option : foreign_options()) {
    EXPECT_FALSE(option.text.empty()) << option.names;
    std::string_view rest = option.names;
    while (!rest.empty()) {
      const size_t end = std::min(rest.find(','), rest.size());
      EXPECT_EQ(find_foreign_option(rest.substr(0, end)), &option) << rest;
      rest.remove_prefix(std::min(end + 1, rest.size()));
    }
  }
  EXPECT_EQ(find_foreign_option("--nobody"), nullptr);
  EXPECT_EQ(find_foreign_option(""), nullptr);
}

TEST(Options, OneExcludesAnotherAndOneIsRequired) {
  std::string a;
  std::string b;
  CommandOptions command("x", "");
  Option& first = command.add("--a", a, "");
  command.add("--b", b, "").excludes(first);
  command.add("--c", b, "").required();
  const auto parse = [&](const std::vector<std::string>& arguments) -> Status {
    MF_ASSIGN_OR_RETURN(const ParsedArguments parsed, parse_arguments(command, arguments));
    return apply_options(command);
  };
  testing::expect_error(parse({"--a", "1"}), ErrorCode::kInvalidArgument, {"--c is required"});
  testing::expect_error(parse({"--b", "1", "--c", "1"}), ErrorCode::kInvalidArgument,
                        {"--b excludes --a"});
}

}  // namespace
}  // namespace moeflux
