// The lines typed into conversations, over programs: a private file in the user's state folder. A
// history that cannot be kept is no failure of a conversation.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace moeflux {

/// $XDG_STATE_HOME/moeflux/chat_history, or ~/.local/state/moeflux/chat_history; nothing where
/// neither is an absolute path.
std::optional<std::string> chat_history_path();

class ChatHistory {
 public:
  /// Entries that are remembered, at most.
  static constexpr size_t kEntriesMax = 1000;

  /// Without a path nothing is kept.
  explicit ChatHistory(std::optional<std::string> path) : path_(std::move(path)) {}

  /// The entries that earlier programs left, oldest first.
  std::vector<std::string> load() const;
  /// Keeps an entry, unless it is longer than 64 KiB. Folders that are missing are made, with mode
  /// 0700.
  void add(std::string_view entry) const;

 private:
  std::optional<std::string> path_;
};

/// An entry as one line, and back: line ends and backslashes are written \n and \\.
std::string as_history_line(std::string_view entry);
std::string of_history_line(std::string_view line);

}  // namespace moeflux
