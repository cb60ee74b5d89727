#include "io/line_log.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <span>
#include <thread>

#include "base/format.h"
#include "io/file.h"
#include "io/output_folder.h"
#include "io/posix/errno_text.h"
#include "io/posix/unique_fd.h"

namespace moeflux {
namespace {

// Others hold the lock for as long as they write a line.
constexpr int kLockAttempts = 40;
constexpr std::chrono::milliseconds kLockPause{5};

struct OpenLog {
  UniqueFd fd;
  uint64_t size_bytes = 0;
};

Result<OpenLog> open_log(const std::string& path, int flags) {
  // A pipe of that name must not make us wait for its writer.
  OpenLog log{UniqueFd(::open(path.c_str(), flags | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0600))};
  if (!log.fd.is_open()) return errno_error(errno, path, "cannot open");
  struct stat status = {};
  if (::fstat(log.fd.get(), &status) != 0) return errno_error(errno, path, "cannot look at");
  if (!S_ISREG(status.st_mode)) {
    return make_error(ErrorCode::kInvalidArgument, "{}: not a regular file", path);
  }
  log.size_bytes = static_cast<uint64_t>(status.st_size);
  return log;
}

/// The log with an exclusive lock on it. A process that cuts a log down puts another file in its
/// place, so that one which was opened before may be nobody's.
Result<OpenLog> open_locked(const std::string& path) {
  for (int attempt = 0; attempt < kLockAttempts; ++attempt) {
    MF_ASSIGN_OR_RETURN(OpenLog log, open_log(path, O_RDWR | O_CREAT | O_APPEND));
    const int locked = ::flock(log.fd.get(), LOCK_EX | LOCK_NB);
    if (locked != 0 && (errno == EWOULDBLOCK || errno == EINTR)) {
      std::this_thread::sleep_for(kLockPause);
      continue;
    }
    // A file system without locks: lines are added in one piece there, too.
    struct stat ours = {};
    struct stat named = {};
    const bool same = ::fstat(log.fd.get(), &ours) == 0 && ::stat(path.c_str(), &named) == 0 &&
                      ours.st_dev == named.st_dev && ours.st_ino == named.st_ino;
    if (!same) continue;
    if ((ours.st_mode & 0077) != 0 && ::fchmod(log.fd.get(), 0600) != 0) {
      return errno_error(errno, path, "cannot make it private");
    }
    log.size_bytes = static_cast<uint64_t>(ours.st_size);
    return log;
  }
  return make_error(ErrorCode::kFailedPrecondition, "{}: another process keeps it locked", path);
}

/// The last `bytes_max` of the log.
Result<std::string> read_tail(const OpenLog& log, const std::string& path, uint64_t bytes_max) {
  const uint64_t count = std::min(log.size_bytes, bytes_max);
  uint64_t at = log.size_bytes - count;
  std::string text(count, '\0');
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t n = ::pread(log.fd.get(), text.data() + done, text.size() - done,
                              static_cast<off_t>(at + done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno_error(errno, path, "cannot read");
    if (n == 0) break;
    done += static_cast<size_t>(n);
  }
  text.resize(done);
  // A first line that begins before these bytes is not whole.
  if (at > 0) text.erase(0, std::min(text.find('\n'), text.size() - 1) + 1);
  return text;
}

Status keep_last_half(const OpenLog& log, const std::string& path, uint64_t bytes_max) {
  MF_ASSIGN_OR_RETURN(const std::string text, read_tail(log, path, bytes_max / 2));
  MF_ASSIGN_OR_RETURN(const std::string target, real_path(path));  // a link stays one
  MF_ASSIGN_OR_RETURN(const auto file, AtomicFileWriter::create(target, FileAccess::kPrivate));
  MF_RETURN_IF_ERROR(file->write(std::as_bytes(std::span(text))));
  return file->commit();
}

}  // namespace

Result<std::vector<std::string>> read_lines(const std::string& path, const LineLogLimits& limits) {
  Result<OpenLog> log = open_log(path, O_RDONLY);
  std::vector<std::string> lines;
  if (!log.ok() && log.error().code() == ErrorCode::kNotFound) return lines;
  if (!log.ok()) return log.error();
  MF_ASSIGN_OR_RETURN(const std::string text, read_tail(*log, path, limits.bytes_max));
  size_t end = text.rfind('\n');
  while (end != std::string::npos && lines.size() < limits.lines_max) {
    const size_t before = end == 0 ? std::string::npos : text.rfind('\n', end - 1);
    const size_t begin = before == std::string::npos ? 0 : before + 1;
    lines.push_back(text.substr(begin, end - begin));
    end = before;
  }
  std::ranges::reverse(lines);
  return lines;
}

Status append_line(const std::string& path, std::string_view line, const LineLogLimits& limits) {
  if (line.size() > limits.bytes_max / 4) {
    return make_error(ErrorCode::kResourceExhausted, "{}: a line of {} bytes, at most {}", path,
                      line.size(), limits.bytes_max / 4);
  }
  MF_ASSIGN_OR_RETURN(OpenLog log, open_locked(path));
  if (log.size_bytes > limits.bytes_max) {
    MF_RETURN_IF_ERROR(keep_last_half(log, path, limits.bytes_max));
    log = OpenLog();  // gives the lock back
    MF_ASSIGN_OR_RETURN(log, open_locked(path));
  }
  std::string text;
  char last = '\n';
  if (log.size_bytes > 0 &&
      ::pread(log.fd.get(), &last, 1, static_cast<off_t>(log.size_bytes - 1)) == 1 &&
      last != '\n') {
    text += '\n';  // ends what a killed process left
  }
  text.append(line).append("\n");
  ssize_t written = 0;
  while ((written = ::write(log.fd.get(), text.data(), text.size())) < 0 && errno == EINTR) {
  }
  if (written == static_cast<ssize_t>(text.size())) return {};
  const int number = written < 0 ? errno : ENOSPC;
  if (written > 0) (void)!::ftruncate(log.fd.get(), static_cast<off_t>(log.size_bytes));
  return errno_error(number, path, "cannot write");
}

}  // namespace moeflux
