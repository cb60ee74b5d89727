// Runs a program as a shell would and keeps what came out of it.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace moeflux::testing {

struct ProgramOutput {
  int status = -1;  // exit status; -1 when a signal ended it
  int signal = 0;
  std::string out;
  std::string err;

  /// Lines of standard error, without their ends.
  std::vector<std::string> err_lines() const;
};

struct ProgramInput {
  std::string standard_input;  // through a file
  std::string out_path;        // standard output goes there and is not kept
};

/// Runs `path` to its end. A program that cannot be started is a gtest failure.
ProgramOutput run_program(const std::string& path, const std::vector<std::string>& arguments,
                          const ProgramInput& input = {});

/// A program that runs beside the test, its standard output in a pipe of one page.
class BackgroundProgram {
 public:
  BackgroundProgram(const std::string& path, const std::vector<std::string>& arguments);
  ~BackgroundProgram();
  BackgroundProgram(const BackgroundProgram&) = delete;
  BackgroundProgram& operator=(const BackgroundProgram&) = delete;

  /// Blocks until it has written `bytes`, or has closed its output.
  void read_output(size_t bytes);
  void close_output();
  void send_signal(int signal);
  /// Reads what is left, waits for the end.
  ProgramOutput finish();

 private:
  pid_t pid_ = -1;
  int out_ = -1;
  std::string err_path_;
  std::string text_;
};

}  // namespace moeflux::testing
