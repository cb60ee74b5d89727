#include "tests/support/run_program.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <filesystem>
#include <sstream>

#include "tests/support/temp_folder.h"

extern char** environ;

namespace moeflux::testing {
namespace {

struct Streams {
  std::string in_path = "/dev/null";  // or in_pipe
  int in_pipe = -1;
  std::string out_path;  // or out_pipe
  int out_pipe = -1;
  std::string err_path;
};

pid_t spawn(const std::string& path, const std::vector<std::string>& arguments,
            const Streams& streams) {
  std::vector<std::string> words = {path};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  constexpr int kCreate = O_WRONLY | O_CREAT | O_TRUNC;
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  if (streams.in_pipe >= 0) {
    posix_spawn_file_actions_adddup2(&actions, streams.in_pipe, 0);
  } else {
    posix_spawn_file_actions_addopen(&actions, 0, streams.in_path.c_str(), O_RDONLY, 0);
  }
  if (streams.out_pipe >= 0) {
    posix_spawn_file_actions_adddup2(&actions, streams.out_pipe, 1);
  } else {
    posix_spawn_file_actions_addopen(&actions, 1, streams.out_path.c_str(), kCreate, 0600);
  }
  posix_spawn_file_actions_addopen(&actions, 2, streams.err_path.c_str(), kCreate, 0600);
  pid_t pid = -1;
  const int failed = posix_spawn(&pid, path.c_str(), &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  EXPECT_EQ(failed, 0) << path;
  return failed == 0 ? pid : -1;
}

void wait_for(pid_t pid, ProgramOutput& output) {
  int status = 0;
  if (pid < 0 || waitpid(pid, &status, 0) != pid) return;
  if (WIFEXITED(status)) output.status = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) output.signal = WTERMSIG(status);
}

// Without the note of programs with CUDA that names the device of `auto`, and why there is no GPU:
// other programs and machines have none. tests/packaging/driver_test.sh reads it.
std::string read_errors(const std::string& path) {
  std::string text = read_bytes(path);
  const size_t end = text.find('\n');
  if (text.starts_with("device auto: ") && end != std::string::npos) text.erase(0, end + 1);
  return text;
}

}  // namespace

std::vector<std::string> ProgramOutput::err_lines() const {
  std::vector<std::string> lines;
  std::istringstream stream(err);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

ProgramOutput run_program(const std::string& path, const std::vector<std::string>& arguments,
                          const ProgramInput& input) {
  const TempFolder folder;
  Streams streams{.out_path = input.out_path.empty() ? folder / "out" : input.out_path,
                  .err_path = folder / "err"};
  if (!input.standard_input.empty()) {
    streams.in_path = folder / "in";
    write_bytes(streams.in_path, input.standard_input);
  }
  ProgramOutput output;
  wait_for(spawn(path, arguments, streams), output);
  if (input.out_path.empty()) output.out = read_bytes(streams.out_path);
  output.err = read_errors(streams.err_path);
  return output;
}

BackgroundProgram::BackgroundProgram(const std::string& path,
                                     const std::vector<std::string>& arguments) {
  err_path_ = ::testing::TempDir() + "moeflux-err-XXXXXX";
  const int err = mkstemp(err_path_.data());
  EXPECT_GE(err, 0);
  close(err);
  int ends[2] = {-1, -1};
  EXPECT_EQ(pipe(ends), 0);
  for (const int end : ends) fcntl(end, F_SETFD, FD_CLOEXEC);
#ifdef F_SETPIPE_SZ
  fcntl(ends[1], F_SETPIPE_SZ, 4096);  // a writer soon waits for its reader
#endif
  out_ = ends[0];
  pid_ = spawn(path, arguments, {.out_pipe = ends[1], .err_path = err_path_});
  close(ends[1]);
}

BackgroundProgram::~BackgroundProgram() {
  if (pid_ > 0) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  close_output();
  std::error_code ignored;
  std::filesystem::remove(err_path_, ignored);
}

void BackgroundProgram::read_output(size_t bytes) {
  const size_t end = text_.size() + bytes;
  char buffer[4096];
  while (text_.size() < end) {
    const ssize_t n = read(out_, buffer, std::min(sizeof buffer, end - text_.size()));
    if (n <= 0) return;
    text_.append(buffer, static_cast<size_t>(n));
  }
}

void BackgroundProgram::close_output() {
  if (out_ >= 0) close(out_);
  out_ = -1;
}

void BackgroundProgram::send_signal(int signal) { kill(pid_, signal); }

ProgramOutput BackgroundProgram::finish() {
  if (out_ >= 0) read_output(size_t{1} << 30);
  ProgramOutput output;
  wait_for(pid_, output);
  pid_ = -1;
  output.out = text_;
  output.err = read_errors(err_path_);
  return output;
}

TerminalProgram::TerminalProgram(const std::string& path, const std::vector<std::string>& arguments,
                                 Output output)
    : output_(output) {
  signal(SIGPIPE, SIG_IGN);  // a program that ends early is a failed test, not the end of all
  master_ = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
  EXPECT_TRUE(master_ >= 0 && grantpt(master_) == 0 && unlockpt(master_) == 0);
  const std::string name = ptsname(master_);
  slave_ = open(name.c_str(), O_RDWR | O_NOCTTY | O_CLOEXEC);
  EXPECT_GE(slave_, 0) << name;
  termios settings{};
  tcgetattr(slave_, &settings);
  settings.c_oflag &= ~static_cast<tcflag_t>(OPOST);  // line feeds stay what they are
  tcsetattr(slave_, TCSANOW, &settings);
  if (output == Output::kHeld) tcflow(slave_, TCOOFF);
  int ends[2] = {-1, -1};
  EXPECT_EQ(pipe(ends), 0);
  for (const int end : ends) fcntl(end, F_SETFD, FD_CLOEXEC);
  input_ = ends[1];
  pid_ = spawn(path, arguments, {.in_pipe = ends[0], .out_path = name, .err_path = name});
  close(ends[0]);
}

TerminalProgram::~TerminalProgram() {
  if (pid_ > 0) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  for (const int file : {input_, slave_, master_}) {
    if (file >= 0) close(file);
  }
}

void TerminalProgram::write_input(const std::string& text) {
  EXPECT_EQ(write(input_, text.data(), text.size()), static_cast<ssize_t>(text.size()));
}

void TerminalProgram::close_input() {
  close(input_);
  input_ = -1;
}

void TerminalProgram::send_signal(int signal) { kill(pid_, signal); }

ProgramOutput TerminalProgram::finish() {
  ProgramOutput output;
  if (output_ == Output::kHeld) wait_for(pid_, output);  // there is nothing to read until then
  close(slave_);
  slave_ = -1;
  char buffer[4096];
  while (true) {  // to the last writer's end, which is an error on Linux
    const ssize_t n = read(master_, buffer, sizeof buffer);
    if (n <= 0) break;
    output.out.append(buffer, static_cast<size_t>(n));
  }
  if (output_ == Output::kFlowing) wait_for(pid_, output);
  pid_ = -1;
  return output;
}

}  // namespace moeflux::testing
