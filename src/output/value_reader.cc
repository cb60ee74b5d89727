#include "output/value_reader.h"

#include <utility>

namespace moeflux {
namespace {

constexpr size_t kValueDepthMax = 128;
constexpr size_t kScalarBytesMax = 512;
constexpr std::string_view kHex = "0123456789abcdef";

bool is_value_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_hex(char c) { return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }

void append_control(char c, std::string* json) {
  switch (c) {
    case '\n':
      *json += "\\n";
      return;
    case '\r':
      *json += "\\r";
      return;
    case '\t':
      *json += "\\t";
      return;
    default:
      break;
  }
  const auto code = static_cast<unsigned char>(c);
  *json += "\\u00";
  *json += kHex[code >> 4];
  *json += kHex[code & 15];
}

void append_string_byte(char c, std::string* json) {
  if (c == '"' || c == '\\') {
    *json += '\\';
    *json += c;
  } else if (static_cast<unsigned char>(c) < 0x20) {
    append_control(c, json);
  } else {
    *json += c;
  }
}

}  // namespace

void append_json_escaped(std::string_view text, std::string* json) {
  for (const char c : text) append_string_byte(c, json);
}

std::string json_quoted(std::string_view text) {
  std::string json = "\"";
  append_json_escaped(text, &json);
  return json + '"';
}

bool is_json_number(std::string_view text) {
  size_t at = 0;
  const auto digits = [&] {
    const size_t begin = at;
    while (at < text.size() && is_digit(text[at])) ++at;
    return at - begin;
  };
  if (at < text.size() && text[at] == '-') ++at;
  const bool zero = at < text.size() && text[at] == '0';
  const size_t whole = digits();
  if (whole == 0 || (zero && whole > 1)) return false;
  if (at < text.size() && text[at] == '.') {
    ++at;
    if (digits() == 0) return false;
  }
  if (at < text.size() && (text[at] == 'e' || text[at] == 'E')) {
    ++at;
    if (at < text.size() && (text[at] == '+' || text[at] == '-')) ++at;
    if (digits() == 0) return false;
  }
  return at == text.size();
}

void ValueReader::start(ValueDialect dialect) {
  dialect_ = dialect;
  expect_ = Expect::kValue;
  stack_.clear();
  scalar_.clear();
  in_key_ = false;
  comma_ = false;
  high_half_.clear();
}

ValueReader::Outcome ValueReader::push(char c, std::string* json) {
  switch (expect_) {
    case Expect::kString:
      return push_string(c, json);
    case Expect::kEscape:
      return push_escape(c, json);
    case Expect::kHexEscape:
      return push_hex(c, json);
    case Expect::kScalar:
      return push_scalar(c, json);
    case Expect::kBareKey:
      return push_bare_key(c, json);
    case Expect::kDelimiter:
      return push_delimiter(c, json);
    case Expect::kValue:
    case Expect::kValueOrClose:
    case Expect::kKey:
    case Expect::kKeyOrClose:
    case Expect::kColon:
    case Expect::kCommaOrClose:
      break;
  }
  if (is_value_space(c)) {
    if (dialect_ == ValueDialect::kJson) *json += c;
    return Outcome::kMore;
  }
  switch (expect_) {
    case Expect::kValue:
    case Expect::kValueOrClose:
      return push_value(c, json);
    case Expect::kKey:
    case Expect::kKeyOrClose:
      return push_key(c, json);
    default:
      return push_after(c, json);
  }
}

bool ValueReader::finish(std::string* json) {
  return expect_ == Expect::kScalar && stack_.empty() && end_scalar(json);
}

void ValueReader::write_comma(std::string* json) {
  if (comma_) *json += ',';
  comma_ = false;
}

ValueReader::Outcome ValueReader::push_value(char c, std::string* json) {
  if (c == ']' || c == ')') {
    return expect_ == Expect::kValueOrClose ? close(c, json) : Outcome::kBad;
  }
  if (c == '{' || c == '[' || (c == '(' && dialect_ == ValueDialect::kPython)) {
    return open(c, json);
  }
  write_comma(json);
  if (c == '"' || (c == '\'' && dialect_ == ValueDialect::kPython)) {
    open_string(c, json);
    return Outcome::kMore;
  }
  if (c == '<' && dialect_ == ValueDialect::kCompact) {
    expect_ = Expect::kDelimiter;
    delimiter_bytes_ = 1;
    return Outcome::kMore;
  }
  if (c == ',' || c == ':' || c == '}' || static_cast<unsigned char>(c) < 0x20) {
    return Outcome::kBad;
  }
  const bool starts_number = is_digit(c) || c == '-';
  const bool starts_word = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  if (dialect_ != ValueDialect::kCompact && !starts_number && !starts_word) return Outcome::kBad;
  expect_ = Expect::kScalar;
  scalar_.assign(1, c);
  return Outcome::kMore;
}

ValueReader::Outcome ValueReader::push_key(char c, std::string* json) {
  if (c == '}') return expect_ == Expect::kKeyOrClose ? close(c, json) : Outcome::kBad;
  in_key_ = true;
  write_comma(json);
  if (c == '"' || (c == '\'' && dialect_ == ValueDialect::kPython)) {
    open_string(c, json);
    return Outcome::kMore;
  }
  if (dialect_ != ValueDialect::kCompact) return Outcome::kBad;
  if (c == '<') {
    expect_ = Expect::kDelimiter;
    delimiter_bytes_ = 1;
    return Outcome::kMore;
  }
  expect_ = Expect::kBareKey;
  scalar_.clear();
  return push_bare_key(c, json);
}

ValueReader::Outcome ValueReader::push_after(char c, std::string* json) {
  if (expect_ == Expect::kColon) {
    if (c != ':') return Outcome::kBad;
    *json += c;
    expect_ = Expect::kValue;
    return Outcome::kMore;
  }
  if (c != ',') return close(c, json);
  // JSON has no comma before a closing bracket; the others may.
  const bool strict = dialect_ == ValueDialect::kJson;
  if (strict) {
    *json += c;
  } else {
    comma_ = true;
  }
  if (stack_.back() == '{') {
    expect_ = strict ? Expect::kKey : Expect::kKeyOrClose;
  } else {
    expect_ = strict ? Expect::kValue : Expect::kValueOrClose;
  }
  return Outcome::kMore;
}

ValueReader::Outcome ValueReader::open(char c, std::string* json) {
  if (stack_.size() == kValueDepthMax) return Outcome::kBad;
  write_comma(json);
  stack_ += c;
  *json += c == '(' ? '[' : c;
  expect_ = c == '{' ? Expect::kKeyOrClose : Expect::kValueOrClose;
  return Outcome::kMore;
}

ValueReader::Outcome ValueReader::close(char c, std::string* json) {
  const char open = stack_.empty() ? '\0' : stack_.back();
  const bool fits =
      (open == '{' && c == '}') || (open == '[' && c == ']') || (open == '(' && c == ')');
  if (!fits) return Outcome::kBad;
  comma_ = false;
  *json += c == ')' ? ']' : c;
  stack_.pop_back();
  return end_value();
}

ValueReader::Outcome ValueReader::end_value() {
  expect_ = Expect::kCommaOrClose;
  return stack_.empty() ? Outcome::kDone : Outcome::kMore;
}

void ValueReader::open_string(char quote, std::string* json) {
  quote_ = quote;
  delimiter_bytes_ = 0;
  expect_ = Expect::kString;
  *json += '"';
}

ValueReader::Outcome ValueReader::end_string(std::string* json) {
  *json += '"';
  if (!in_key_) return end_value();
  in_key_ = false;
  expect_ = Expect::kColon;
  return Outcome::kMore;
}

ValueReader::Outcome ValueReader::push_delimiter(char c, std::string* json) {
  if (c != kCompactDelimiter[delimiter_bytes_]) return Outcome::kBad;
  if (++delimiter_bytes_ == kCompactDelimiter.size()) open_string('<', json);
  return Outcome::kMore;
}

ValueReader::Outcome ValueReader::push_string(char c, std::string* json) {
  if (quote_ == '<') {  // no escapes; only the delimiter ends it, which no suffix of itself begins
    if (c == kCompactDelimiter[delimiter_bytes_]) {
      if (++delimiter_bytes_ < kCompactDelimiter.size()) return Outcome::kMore;
      return end_string(json);
    }
    append_json_escaped(kCompactDelimiter.substr(0, delimiter_bytes_), json);
    delimiter_bytes_ = c == '<' ? 1 : 0;
    if (c != '<') append_string_byte(c, json);
    return Outcome::kMore;
  }
  if (c == '\\') {
    expect_ = Expect::kEscape;
    return Outcome::kMore;
  }
  drop_high_half(json);
  if (c == quote_) return end_string(json);
  append_string_byte(c, json);
  return Outcome::kMore;
}

ValueReader::Outcome ValueReader::push_escape(char c, std::string* json) {
  expect_ = Expect::kString;
  const bool python = dialect_ == ValueDialect::kPython;
  if (c == 'u' || (python && c == 'x')) {
    expect_ = Expect::kHexEscape;
    hex_digits_ = c == 'u' ? 4 : 2;
    scalar_.clear();
    return Outcome::kMore;
  }
  drop_high_half(json);
  if (c == '\'') {
    *json += c;
  } else if (std::string_view("\"\\/bfnrt").find(c) != std::string_view::npos) {
    *json += '\\';
    *json += c;
  } else if (python && c == '\n') {
    // A line that goes on in the next one.
  } else {
    *json += "\\\\";  // Python keeps the backslash of an escape that it does not know
    append_string_byte(c, json);
  }
  return Outcome::kMore;
}

ValueReader::Outcome ValueReader::push_hex(char c, std::string* json) {
  if (!is_hex(c)) {  // no escape after all
    drop_high_half(json);
    *json += "\\\\";
    *json += hex_digits_ == 4 ? 'u' : 'x';
    *json += scalar_;
    expect_ = Expect::kString;
    return push_string(c, json);
  }
  scalar_ += c;
  if (scalar_.size() < hex_digits_) return Outcome::kMore;
  expect_ = Expect::kString;
  if (hex_digits_ == 2) scalar_.insert(0, "00");
  const bool is_half = (scalar_[0] == 'd' || scalar_[0] == 'D') && scalar_[1] >= '8';
  const bool is_high = is_half && (scalar_[1] <= '9' || (scalar_[1] | 0x20) <= 'b');
  if (is_half && !is_high && !high_half_.empty()) {
    *json += "\\u" + std::exchange(high_half_, {}) + "\\u" + scalar_;
    return Outcome::kMore;
  }
  drop_high_half(json);
  if (is_high) {
    high_half_ = scalar_;
  } else {
    *json += "\\u" + (is_half ? "fffd" : scalar_);
  }
  return Outcome::kMore;
}

/// Half of a pair of UTF-16 is no character, and strict readers refuse it.
void ValueReader::drop_high_half(std::string* json) {
  if (!high_half_.empty()) *json += "\\ufffd";
  high_half_.clear();
}

ValueReader::Outcome ValueReader::push_scalar(char c, std::string* json) {
  const bool ends =
      is_value_space(c) || std::string_view(",:]})[{(\"'<").find(c) != std::string::npos;
  const bool compact_space = dialect_ == ValueDialect::kCompact && c == ' ';
  if (!ends || compact_space) {
    scalar_ += c;
    return scalar_.size() > kScalarBytesMax ? Outcome::kBad : Outcome::kMore;
  }
  if (!end_scalar(json)) return Outcome::kBad;
  if (stack_.empty()) return Outcome::kDoneBefore;
  expect_ = Expect::kCommaOrClose;
  return push(c, json);
}

bool ValueReader::end_scalar(std::string* json) {
  while (!scalar_.empty() && scalar_.back() == ' ') scalar_.pop_back();
  if (dialect_ == ValueDialect::kPython) {
    if (scalar_ == "True") scalar_ = "true";
    if (scalar_ == "False") scalar_ = "false";
    if (scalar_ == "None") scalar_ = "null";
  }
  const bool known =
      scalar_ == "true" || scalar_ == "false" || scalar_ == "null" || is_json_number(scalar_);
  if (!known && dialect_ != ValueDialect::kCompact) return false;
  if (known) {
    *json += scalar_;
  } else {
    *json += json_quoted(scalar_);
  }
  return true;
}

ValueReader::Outcome ValueReader::push_bare_key(char c, std::string* json) {
  if (c == ':') {
    while (!scalar_.empty() && is_value_space(scalar_.back())) scalar_.pop_back();
    if (scalar_.empty()) return Outcome::kBad;
    *json += json_quoted(scalar_) + ":";
    in_key_ = false;
    expect_ = Expect::kValue;
    return Outcome::kMore;
  }
  const bool bad = std::string_view("{}[],\"<").find(c) != std::string_view::npos;
  scalar_ += c;
  return bad || scalar_.size() > kScalarBytesMax ? Outcome::kBad : Outcome::kMore;
}

}  // namespace moeflux
