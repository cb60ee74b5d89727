#include "cli/config_file.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <utility>

#include "base/format.h"

namespace moeflux {
namespace {

bool is_key_letter(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_';
}

class ConfigParser {
 public:
  ConfigParser(std::string_view text, const std::string& source) : text_(text), source_(source) {}

  Result<std::vector<ConfigEntry>> parse() {
    constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";  // of editors on Windows
    if (text_.starts_with(kByteOrderMark)) at_ = kByteOrderMark.size();
    while (skip_lines(), at_ < text_.size()) {
      if (text_[at_] == '[') {
        MF_RETURN_IF_ERROR(read_section());
      } else {
        MF_RETURN_IF_ERROR(read_entry());
      }
      MF_RETURN_IF_ERROR(end_line());
    }
    return std::move(entries_);
  }

 private:
  Error wrong(std::string_view expected) const {
    return make_error(ErrorCode::kInvalidArgument, "{}:{}: expected {}", source_, line_, expected);
  }
  char peek() const { return at_ < text_.size() ? text_[at_] : '\n'; }

  void skip_spaces() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t' || text_[at_] == '\r')) {
      ++at_;
    }
  }
  // Comments and ends of lines too.
  void skip_lines() {
    while (skip_spaces(), at_ < text_.size()) {
      if (text_[at_] == '#') {
        at_ = std::min(text_.find('\n', at_), text_.size());
      } else if (text_[at_] == '\n') {
        ++line_;
        ++at_;
      } else {
        return;
      }
    }
  }
  Status end_line() {
    skip_spaces();
    if (peek() == '#' || peek() == '\n') return {};
    return wrong("the end of the line");
  }

  Result<std::string> read_key() {
    skip_spaces();
    const size_t begin = at_;
    while (at_ < text_.size() && is_key_letter(text_[at_])) ++at_;
    if (begin == at_) return wrong("a name of letters, digits, - and _");
    return std::string(text_.substr(begin, at_ - begin));
  }

  Status read_section() {
    ++at_;
    MF_ASSIGN_OR_RETURN(section_, read_key());
    skip_spaces();
    if (peek() == '.') {
      ++at_;
      skip_spaces();
      const bool is_quoted = peek() == '"' || peek() == '\'';
      MF_ASSIGN_OR_RETURN(const std::string name, is_quoted ? read_string(peek()) : read_key());
      section_ += '.' + name;
      skip_spaces();
    }
    if (peek() != ']') return wrong("] behind the name of a section");
    ++at_;
    return {};
  }

  Status read_entry() {
    ConfigEntry entry{.section = section_, .key = {}, .values = {}, .line = line_};
    MF_ASSIGN_OR_RETURN(entry.key, read_key());
    skip_spaces();
    if (peek() != '=') return wrong(formatted("= behind {}", entry.key));
    ++at_;
    MF_RETURN_IF_ERROR(check_first(entry));
    skip_spaces();
    if (peek() == '[') {
      MF_RETURN_IF_ERROR(read_array(entry.values));
    } else {
      MF_ASSIGN_OR_RETURN(std::string value, read_value());
      entry.values.push_back(std::move(value));
    }
    entries_.push_back(std::move(entry));
    return {};
  }

  // TOML gives a key one value; which of two is meant, nobody can tell.
  Status check_first(const ConfigEntry& entry) {
    std::string name = entry.key;
    std::ranges::replace(name, '_', '-');  // as options are found
    const auto [first, is_first] = lines_.try_emplace({entry.section, name}, entry.line);
    if (is_first) return {};
    return make_error(ErrorCode::kInvalidArgument, "{}:{}: {} stands in line {} already", source_,
                      line_, entry.key, first->second);
  }

  Status read_array(std::vector<std::string>& values) {
    ++at_;
    while (true) {
      skip_lines();
      if (peek() == ']') break;
      MF_ASSIGN_OR_RETURN(std::string value, read_value());
      values.push_back(std::move(value));
      skip_lines();
      if (peek() == ',') {
        ++at_;
      } else if (peek() != ']') {
        return wrong(", or ] behind a value of an array");
      }
    }
    ++at_;
    return {};
  }

  Result<std::string> read_value() {
    if (peek() == '"' || peek() == '\'') return read_string(peek());
    const size_t begin = at_;
    const auto is_bare = [](char c) { return is_key_letter(c) || c == '.' || c == '+'; };
    while (at_ < text_.size() && is_bare(text_[at_])) ++at_;
    std::string value(text_.substr(begin, at_ - begin));
    const bool is_number = !value.empty() && value.find_first_of("0123456789") <= 1 &&
                           value.find_first_not_of("0123456789_.+-eE") == std::string::npos;
    if (is_number) std::erase(value, '_');
    if (is_number || value == "true" || value == "false") return value;
    at_ = begin;
    return wrong("a number, true, false or a text in quotes");
  }

  Result<std::string> read_string(char quote) {
    ++at_;
    std::string value;
    for (; peek() != '\n'; ++at_) {
      char c = text_[at_];
      if (c == quote) {
        ++at_;
        return value;
      }
      if (c == '\\' && quote == '"') {
        ++at_;
        constexpr std::string_view kLetters = "nrt\"\\";
        constexpr std::string_view kMeant = "\n\r\t\"\\";
        const size_t letter = kLetters.find(peek());
        if (letter == std::string_view::npos) return wrong("\\n, \\r, \\t, \\\" or \\\\");
        c = kMeant[letter];
      }
      value += c;
    }
    return wrong("a quote at the end of a text");
  }

  const std::string_view text_;
  const std::string& source_;
  size_t at_ = 0;
  int line_ = 1;
  std::string section_;
  std::vector<ConfigEntry> entries_;
  std::map<std::pair<std::string, std::string>, int> lines_;  // of sections' keys
};

}  // namespace

Result<std::vector<ConfigEntry>> parse_config(std::string_view text, const std::string& source) {
  return ConfigParser(text, source).parse();
}

}  // namespace moeflux
