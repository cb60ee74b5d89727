// A recursive reader over the pattern. Outside classes most characters pass through; inside, a
// class is read into alternatives (flat parts and nested classes) and written with lookaheads where
// needed.
#include "text/regex/regex_syntax.h"

#include <algorithm>
#include <vector>

#include "base/format.h"

namespace moeflux {
namespace {

// White_Space and its complement, as the inside of a class.
constexpr std::string_view kSpace =
    R"(\x{9}-\x{d} \x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
constexpr std::string_view kNotSpace =
    R"(\x{0}-\x{8}\x{e}-\x{1f}!-\x{84}\x{86}-\x{9f}\x{a1}-\x{167f}\x{1681}-\x{1fff})"
    R"(\x{200b}-\x{2027}\x{202a}-\x{202e}\x{2030}-\x{205e}\x{2060}-\x{2fff}\x{3001}-\x{10ffff})";
constexpr std::string_view kWord = R"(\p{L}\p{M}\p{N}\p{Pc})";
constexpr int kNestingMax = 20;

constexpr std::string_view kGeneralCategories[] = {
    "L",  "Lu", "Ll", "Lt", "Lm", "Lo", "M",  "Mn", "Mc", "Me", "N",  "Nd", "Nl",
    "No", "P",  "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "S",  "Sm", "Sc", "Sk",
    "So", "Z",  "Zs", "Zl", "Zp", "C",  "Cc", "Cf", "Cn", "Co", "Any"};

constexpr std::string_view kGroupBeginnings[] = {"?:", "?=",  "?!",   "?<=", "?<!",
                                                 "?>", "?i:", "?-i:", "?i)"};

/// A byte of UTF-8 behind the first of its character.
bool is_continuation(char c) { return (static_cast<unsigned char>(c) & 0xC0u) == 0x80; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool is_hex(char c) { return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }

// One atom of a pattern: how to write it inside and outside a class.
struct Escape {
  std::string inside;
  std::string outside;
  bool is_set = false;  // stands for several characters, so it cannot end a range
};

Escape set_escape(std::string_view content) {
  return {std::string(content), formatted("[{}]", content), true};
}

Escape literal_escape(std::string text) { return {text, text, false}; }

class Translator {
 public:
  Translator(std::string_view pattern, std::string_view script_prefix)
      : pattern_(pattern), script_prefix_(script_prefix) {}

  Result<std::string> run() {
    while (at_ < pattern_.size()) MF_RETURN_IF_ERROR(step());
    return std::move(out_);
  }

 private:
  bool starts(std::string_view text) const { return pattern_.substr(at_).starts_with(text); }

  Error unsupported(std::string_view what) const {
    return make_error(ErrorCode::kUnsupported, "{} at byte {} of the pattern", what, at_);
  }
  Error broken(std::string_view what) const {
    return make_error(ErrorCode::kInvalidArgument, "{} at byte {} of the pattern", what, at_);
  }

  Status step() {
    const char c = pattern_[at_];
    note_atom(c);
    if (c == '\\') {
      MF_ASSIGN_OR_RETURN(const Escape escape, read_escape());
      out_ += escape.outside;
      return {};
    }
    if (c == '[') {
      MF_ASSIGN_OR_RETURN(const std::string text, read_class(0));
      out_ += text;
      return {};
    }
    if (c == '(') return open_group();
    if (c == '{') return read_interval();
    ++at_;
    if (c == '^') {
      out_ += "(?m:^)";  // Ruby anchors are those of lines
    } else if (c == '$') {
      out_ += "(?m:$)";
    } else {
      out_ += c;
    }
    return {};
  }

  /// Keeps where in the output the element begins that a quantifier behind it repeats.
  void note_atom(char c) {
    if (c == '(') {
      groups_.push_back(out_.size());
    } else if (c == ')') {
      atom_ = groups_.empty() ? out_.size() : groups_.back();
      if (!groups_.empty()) groups_.pop_back();
    } else if (!is_continuation(c) && c != '{' && c != '*' && c != '+' && c != '?') {
      atom_ = out_.size();
    }
  }

  Status open_group() {
    ++at_;
    out_ += '(';
    if (starts("*")) return unsupported("a (* verb");
    if (!starts("?")) return {};
    for (const std::string_view group : kGroupBeginnings) {
      if (!starts(group)) continue;
      if (group == "?i)" && at_ != 1) break;  // inside an alternation the syntaxes scope it apart
      out_ += group;
      at_ += group.size();
      if (group.ends_with(')')) groups_.pop_back();
      return {};
    }
    return unsupported(formatted("the group ({}", pattern_.substr(at_, 3)));
  }

  // {n}, {n,}, {n,m} and {,m}; anything else is a literal brace in both syntaxes.
  Status read_interval() {
    size_t end = at_ + 1;
    const auto skip_digits = [&] {
      const size_t begin = end;
      while (end < pattern_.size() && is_digit(pattern_[end])) ++end;
      return pattern_.substr(begin, end - begin);
    };
    const std::string_view low = skip_digits();
    const bool has_comma = end < pattern_.size() && pattern_[end] == ',';
    if (has_comma) ++end;
    const std::string_view high = has_comma ? skip_digits() : std::string_view();
    if (end >= pattern_.size() || pattern_[end] != '}' || (low.empty() && high.empty())) {
      out_ += "\\{";
      ++at_;
      return {};
    }
    at_ = end + 1;
    if (!has_comma && starts("?")) return unsupported("{n}?");
    const bool repeats = starts("+");  // of the whole here, possessive in PCRE2
    if (repeats) out_.insert(atom_, "(?:");
    out_ += formatted("{{{}", low.empty() ? "0" : low);
    if (has_comma) out_ += formatted(",{}", high);
    out_ += repeats ? "})" : "}";
    return {};
  }

  Result<Escape> read_escape() {
    ++at_;
    if (at_ == pattern_.size()) return broken("a lone backslash");
    const char c = pattern_[at_];
    if (c == 'p' || c == 'P') return read_property();
    if (c == 'x' || c == 'u') return read_code_point();
    const bool is_plain = !is_letter(c) && !is_digit(c);
    ++at_;
    if (is_plain) return literal_escape(std::string("\\") + c);
    switch (c) {
      case 't':
      case 'n':
      case 'r':
      case 'f':
      case 'a':
      case 'e':
        return literal_escape(std::string("\\") + c);
      case 'v':
        return literal_escape("\\x{b}");
      case 's':
        return set_escape(kSpace);
      case 'S':
        return Escape{std::string(kNotSpace), formatted("[^{}]", kSpace), true};
      case 'd':
        return set_escape("\\p{Nd}");
      case 'D':
        return set_escape("\\P{Nd}");
      case 'w':
        return set_escape(kWord);
      case 'A':
      case 'G':  // where the search began, in both syntaxes
      case 'z':
        return Escape{"", std::string("\\") + c, true};
      case 'b':
        return Escape{"\\x{8}", formatted("(?:(?<=[{0}])(?![{0}])|(?<![{0}])(?=[{0}]))", kWord),
                      true};
      default:
        --at_;
        return unsupported(formatted("the escape \\{}", c));
    }
  }

  Result<Escape> read_property() {
    bool negated = pattern_[at_] == 'P';
    const size_t close = pattern_.find('}', at_);
    if (at_ + 1 >= pattern_.size() || pattern_[at_ + 1] != '{' || close == pattern_.npos) {
      return broken("a property without {name}");
    }
    std::string_view name = pattern_.substr(at_ + 2, close - at_ - 2);
    if (name.starts_with('^')) {
      negated = !negated;
      name.remove_prefix(1);
    }
    const bool is_name = !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
      return is_letter(c) || is_digit(c) || c == '_';
    });
    if (!is_name) return broken("a property with a broken name");
    const bool is_category = std::find(std::begin(kGeneralCategories), std::end(kGeneralCategories),
                                       name) != std::end(kGeneralCategories);
    at_ = close + 1;
    return set_escape(
        formatted("\\{}{{{}{}}}", negated ? 'P' : 'p', is_category ? "" : script_prefix_, name));
  }

  // \xHH (ASCII only: above, Oniguruma means a raw byte), \x{H...} and \uHHHH.
  Result<Escape> read_code_point() {
    const bool is_short_x = pattern_[at_] == 'x' && !pattern_.substr(at_ + 1).starts_with('{');
    const bool is_braced = pattern_[at_] == 'x' && !is_short_x;
    const size_t begin = at_ + (is_braced ? 2 : 1);
    const size_t digits_max = is_braced ? 6 : is_short_x ? 2 : 4;
    size_t end = begin;
    while (end < pattern_.size() && end < begin + digits_max && is_hex(pattern_[end])) ++end;
    const bool is_whole = is_braced ? end < pattern_.size() && pattern_[end] == '}' && end > begin
                                    : end == begin + digits_max;
    if (!is_whole) return broken("a broken code point escape");
    if (is_short_x && pattern_[begin] >= '8') return unsupported("a raw byte escape");
    const std::string digits(pattern_.substr(begin, end - begin));
    at_ = end + (is_braced ? 1 : 0);
    return literal_escape(formatted("\\x{{{}}}", digits));
  }

  // Reads from '[' to its ']' and returns an expression that matches one character of the class.
  Result<std::string> read_class(int depth) {
    if (depth > kNestingMax) return unsupported("classes nested too deeply");
    ++at_;
    const bool negated = starts("^");
    if (negated) ++at_;
    if (starts("]")) return unsupported("a class that begins with ]");
    std::vector<std::string> operands;
    while (true) {
      MF_ASSIGN_OR_RETURN(std::string operand, read_operand(depth));
      operands.push_back(std::move(operand));
      if (starts("]")) break;
      at_ += 2;  // past "&&"
    }
    ++at_;
    if (operands.size() == 1 && operands[0].starts_with("[") && !operands[0].starts_with("[^")) {
      return negated ? formatted("[^{}", std::string_view(operands[0]).substr(1)) : operands[0];
    }
    std::string all;
    for (size_t i = 0; i + 1 < operands.size(); ++i) all += formatted("(?={})", operands[i]);
    all += operands.back();
    if (negated) return formatted("(?:(?!{})\\p{{Any}})", all);
    return formatted("(?:{})", all);
  }

  // A union: everything up to "&&" or the closing bracket, which is left unread.
  Result<std::string> read_operand(int depth) {
    std::string flat;
    std::vector<std::string> nested;
    while (true) {
      if (at_ >= pattern_.size()) return broken("a class without ]");
      if (starts("]") || starts("&&")) break;
      if (starts("[:")) return unsupported("a POSIX bracket");
      if (starts("[")) {
        MF_ASSIGN_OR_RETURN(std::string text, read_class(depth + 1));
        nested.push_back(std::move(text));
        continue;
      }
      MF_ASSIGN_OR_RETURN(const std::string item, read_class_item());
      flat += item;
    }
    if (flat.empty() && nested.empty()) return broken("an empty class");
    if (nested.empty()) return formatted("[{}]", flat);
    std::string all = flat.empty() ? "" : formatted("[{}]", flat);
    for (const std::string& text : nested) {
      if (!all.empty()) all += '|';
      all += text;
    }
    return formatted("(?:{})", all);
  }

  // One character, set or range.
  Result<std::string> read_class_item() {
    if (starts("-")) {
      ++at_;
      return std::string("\\-");  // first, last, or after a range or set
    }
    MF_ASSIGN_OR_RETURN(const Escape first, read_class_atom());
    const bool is_range = starts("-") && at_ + 1 < pattern_.size() && pattern_[at_ + 1] != ']';
    if (!is_range) return first.inside;
    if (first.is_set) return unsupported("a range that begins with a set");
    ++at_;
    if (starts("[") || starts("&&")) return unsupported("a range that ends with a set");
    MF_ASSIGN_OR_RETURN(const Escape last, read_class_atom());
    if (last.is_set) return unsupported("a range that ends with a set");
    return first.inside + "-" + last.inside;
  }

  Result<Escape> read_class_atom() {
    const char c = pattern_[at_];
    if (c == '\\') {
      for (const std::string_view anchor : {"\\A", "\\G", "\\z"}) {
        if (starts(anchor)) return unsupported("an anchor inside a class");
      }
      return read_escape();
    }
    size_t end = at_ + 1;  // a whole UTF-8 character, so that ranges keep their ends
    while (end < pattern_.size() && is_continuation(pattern_[end])) ++end;
    std::string text(pattern_.substr(at_, end - at_));
    at_ = end;
    if (c == '^' || c == '[' || c == '-') text = formatted("\\{}", text);
    return literal_escape(std::move(text));
  }

  std::string_view pattern_;
  std::string_view script_prefix_;
  size_t at_ = 0;
  std::string out_;
  size_t atom_ = 0;             // of out_
  std::vector<size_t> groups_;  // where open ones begin in out_
};

}  // namespace

Result<std::string> translate_regex(std::string_view pattern, std::string_view script_prefix) {
  return Translator(pattern, script_prefix).run();
}

std::string quote_regex(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const bool is_ascii = static_cast<unsigned char>(c) < 0x80;
    if (is_ascii && !is_letter(c) && !is_digit(c)) out += '\\';
    out += c;
  }
  return out;
}

}  // namespace moeflux
