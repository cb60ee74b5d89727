#include "cli/chat/chat_history.h"

#include <cstdlib>
#include <utility>

#include "io/line_log.h"
#include "io/part_file.h"
#include "io/path_text.h"

namespace moeflux {
namespace {

constexpr size_t kEntryBytesMax = 64 << 10;
constexpr LineLogLimits kLimits{.lines_max = ChatHistory::kEntriesMax, .bytes_max = 1 << 20};

}  // namespace

std::optional<std::string> chat_history_path() {
  for (const auto& [variable, below] :
       {std::pair{"XDG_STATE_HOME", "/moeflux"}, {"HOME", "/.local/state/moeflux"}}) {
    const char* const folder = std::getenv(variable);
    if (folder != nullptr && folder[0] == '/') return std::string(folder) + below + "/chat_history";
  }
  return std::nullopt;
}

std::vector<std::string> ChatHistory::load() const {
  if (!path_) return {};
  Result<std::vector<std::string>> lines = read_lines(*path_, kLimits);
  if (!lines.ok()) return {};
  for (std::string& line : *lines) line = of_history_line(line);
  return std::move(lines).value();
}

void ChatHistory::add(std::string_view entry) const {
  if (!path_ || entry.empty() || entry.size() > kEntryBytesMax) return;
  if (create_folders(folder_of(*path_), FileAccess::kPrivate).ok())
    (void)append_line(*path_, as_history_line(entry), kLimits);
}

std::string as_history_line(std::string_view entry) {
  std::string line;
  for (const char c : entry) {
    if (c == '\n') {
      line += "\\n";
    } else if (c == '\\') {
      line += "\\\\";
    } else {
      line += c;
    }
  }
  return line;
}

std::string of_history_line(std::string_view line) {
  std::string entry;
  for (size_t i = 0; i < line.size(); ++i) {
    const bool is_escape = line[i] == '\\' && i + 1 < line.size();
    if (is_escape) ++i;
    entry += is_escape && line[i] == 'n' ? '\n' : line[i];
  }
  return entry;
}

}  // namespace moeflux
