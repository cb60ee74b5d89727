// Runs a program as a shell would and keeps what came out of it.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

namespace moeflux::testing {

struct ProgramOutput {
  int status = -1;  // exit status; -1 when a signal ended it
  int signal = 0;
  std::string out;
  std::string err;  // without the note that names the device of `auto`

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

/// A program whose standard output and error are one terminal, and its input a pipe.
class TerminalProgram {
 public:
  enum class Output : uint8_t {
    kFlowing,
    kHeld,  // as by Ctrl-S: the program's first write to the terminal does not return
  };
  TerminalProgram(const std::string& path, const std::vector<std::string>& arguments,
                  Output output = Output::kFlowing);
  ~TerminalProgram();
  TerminalProgram(const TerminalProgram&) = delete;
  TerminalProgram& operator=(const TerminalProgram&) = delete;

  /// Returns when the program has read all of it but what a pipe holds.
  void write_input(const std::string& text);
  void close_input();
  void send_signal(int signal);
  /// Waits for the end. `out` is what the terminal got.
  ProgramOutput finish();

 private:
  pid_t pid_ = -1;
  int input_ = -1;
  int master_ = -1;
  int slave_ = -1;
  Output output_;
};

}  // namespace moeflux::testing
