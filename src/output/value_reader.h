// Reads one value of a call's arguments byte by byte and writes it as JSON: from JSON itself, from
// a compact spelling with bare keys, and from Python's literals. Knows nothing of calls.
#pragma once

#include <string>
#include <string_view>

namespace moeflux {

enum class ValueDialect {
  kJson,     // white space and numbers stay as they are
  kCompact,  // {key:<|"|>text<|"|>,n:1}: bare keys, strings between delimiters, bare words
  kPython,   // {'key': "text", 'n': None}, lists and tuples
};

/// Around strings of kCompact; there is no way to have it in one.
inline constexpr std::string_view kCompactDelimiter = "<|\"|>";

/// Not thread-safe. Strings may hold bare control characters, unknown escapes and halves of
/// surrogate pairs, as models write them; what comes out is valid JSON nevertheless. Depth is at
/// most 128.
class ValueReader {
 public:
  enum class Outcome {
    kMore,
    kDone,        // the byte was the value's last
    kDoneBefore,  // the value ended before this byte, which belongs to somebody else
    kBad,         // no value goes on like this; what was appended stays
  };

  void start(ValueDialect dialect);
  /// Appends to `json` what is certain by now; joined, that is the value.
  Outcome push(char c, std::string* json);
  /// The text ends here: whether that makes a value. Only a bare scalar needs its end to be told.
  bool finish(std::string* json);

 private:
  enum class Expect {
    kValue,
    kValueOrClose,
    kKey,
    kKeyOrClose,
    kColon,
    kCommaOrClose,
    kString,
    kEscape,
    kHexEscape,
    kScalar,
    kBareKey,
    kDelimiter,
  };

  Outcome push_value(char c, std::string* json);
  Outcome push_key(char c, std::string* json);
  Outcome push_after(char c, std::string* json);
  Outcome push_string(char c, std::string* json);
  Outcome push_escape(char c, std::string* json);
  Outcome push_hex(char c, std::string* json);
  Outcome push_scalar(char c, std::string* json);
  Outcome push_bare_key(char c, std::string* json);
  Outcome push_delimiter(char c, std::string* json);
  Outcome open(char c, std::string* json);
  Outcome close(char c, std::string* json);
  void drop_high_half(std::string* json);
  void open_string(char quote, std::string* json);
  Outcome end_string(std::string* json);
  Outcome end_value();
  bool end_scalar(std::string* json);
  void write_comma(std::string* json);

  ValueDialect dialect_ = ValueDialect::kJson;
  Expect expect_ = Expect::kValue;
  std::string stack_;   // an opening bracket for each container
  std::string scalar_;  // or a bare key, or the digits of an escape
  char quote_ = 0;      // that ends the string; '<' for the delimiter
  size_t delimiter_bytes_ = 0;
  size_t hex_digits_ = 0;
  std::string high_half_;  // digits of an escape that the next one must complete
  bool in_key_ = false;
  bool comma_ = false;  // one that is written if a value follows
};

/// Appends `text` with quotes, backslashes and control characters escaped as in a JSON string.
void append_json_escaped(std::string_view text, std::string* json);
/// `text` as a JSON string, with its quotes.
std::string json_quoted(std::string_view text);
bool is_json_number(std::string_view text);

}  // namespace moeflux
