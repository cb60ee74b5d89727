// Ranks below the number of tokens, none twice: then none is missing.
#include "text/formats/tiktoken_ranks.h"

#include <charconv>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/format.h"
#include "text/encoding/base64.h"

namespace moeflux {
namespace {

constexpr size_t kExcerptBytesMax = 40;

struct Line {
  std::string_view text;  // never empty
  size_t number;          // from 1
};

std::vector<Line> lines_of(std::string_view text) {
  std::vector<Line> lines;
  for (size_t number = 1; !text.empty(); ++number) {
    const size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end == text.npos ? text.size() : end + 1);
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (!line.empty()) lines.push_back({line, number});
  }
  return lines;
}

// A line's contents for messages: printable ASCII, whatever the file is.
std::string excerpt(std::string_view text) {
  std::string shown;
  for (const char c : text.substr(0, kExcerptBytesMax)) shown += c < ' ' || c > '~' ? '?' : c;
  return text.size() > kExcerptBytesMax ? shown + "..." : shown;
}

Result<std::pair<std::string, int64_t>> parse_line(std::string_view line) {
  const size_t space = line.find(' ');
  const std::string_view rank_text = space == line.npos ? "" : line.substr(space + 1);
  int64_t rank = 0;
  const char* end = rank_text.data() + rank_text.size();
  const auto [stop, problem] = std::from_chars(rank_text.data(), end, rank);
  if (problem != std::errc() || stop != end || rank < 0) {
    return make_error(ErrorCode::kCorruption, "\"{}\", expected base64, a space and a rank",
                      excerpt(line));
  }
  auto bytes = decode_base64(line.substr(0, space));
  if (!bytes || bytes->empty()) {
    return make_error(ErrorCode::kCorruption, "\"{}\" is not the base64 of a token",
                      excerpt(line.substr(0, space)));
  }
  if (bytes->size() > kTiktokenBytesMax) {
    return make_error(ErrorCode::kUnsupported, "a token of {} bytes, at most {} are supported",
                      bytes->size(), kTiktokenBytesMax);
  }
  return std::pair(std::move(*bytes), rank);
}

class Table {
 public:
  explicit Table(size_t count) : line_of_rank_(count) {}

  Status add(const Line& line) {
    MF_ASSIGN_OR_RETURN(const auto entry, parse_line(line.text));
    const auto& [bytes, rank] = entry;
    const size_t count = line_of_rank_.size();
    if (static_cast<uint64_t>(rank) >= count) {
      return make_error(ErrorCode::kCorruption,
                        "rank {} among {} tokens: a lower rank is missing, expected 0 to {}", rank,
                        count, count - 1);
    }
    size_t& number = line_of_rank_[static_cast<size_t>(rank)];
    if (number != 0) {
      return make_error(ErrorCode::kCorruption, "rank {} was given to line {}", rank, number);
    }
    if (const auto twin = vocabulary_.find(bytes)) {
      return make_error(ErrorCode::kCorruption, "the same token as in line {}",
                        line_of_rank_[static_cast<size_t>(*twin)]);
    }
    number = line.number;
    return vocabulary_.add(rank, bytes, true);
  }

  Result<Vocabulary> finish() && {
    for (int byte = 0; byte < 256; ++byte) {
      const char c = static_cast<char>(byte);
      if (vocabulary_.find(std::string_view(&c, 1))) continue;
      return make_error(ErrorCode::kCorruption,
                        "no line for the single byte 0x{:02x}, expected all 256", byte);
    }
    return std::move(vocabulary_);
  }

 private:
  Vocabulary vocabulary_;
  std::vector<size_t> line_of_rank_;  // 0 is none yet
};

}  // namespace

Result<Vocabulary> parse_tiktoken_ranks(std::string_view text) {
  const std::vector<Line> lines = lines_of(text);
  if (lines.size() > static_cast<size_t>(Vocabulary::kIdMax)) {
    return make_error(ErrorCode::kResourceExhausted, "{} tokens, at most {} are supported",
                      lines.size(), Vocabulary::kIdMax);
  }
  Table table(lines.size());
  for (const Line& line : lines) {
    const Status added = table.add(line);
    if (!added.ok()) return added.error().with_context(formatted("line {}", line.number));
  }
  return std::move(table).finish();
}

}  // namespace moeflux
