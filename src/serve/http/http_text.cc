#include "serve/http/http_text.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/ascii.h"
#include "base/format.h"
#include "serve/wire/interface.h"
#include "text/encoding/utf8.h"

namespace moeflux::serve {
namespace {

constexpr size_t kRequestIdMax = 128;

bool is_control(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return byte < 0x20 || byte == 0x7f;
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  c = lower_case(c);
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

bool is_transports_own(std::string_view name) {
  constexpr std::array<std::string_view, 8> kOwn = {"connection", "content-length",   "date",
                                                    "keep-alive", "server",           "trailer",
                                                    "upgrade",    "transfer-encoding"};
  return std::any_of(kOwn.begin(), kOwn.end(),
                     [&](std::string_view own) { return equal_without_case(own, name); });
}

void append_header(std::string_view name, std::string_view value, std::string* out) {
  const size_t begin = out->size();
  out->append(name).append(": ").append(value);
  // A value may repeat what a client wrote; a line break would let it write headers of its own.
  std::replace_if(out->begin() + static_cast<std::ptrdiff_t>(begin), out->end(), is_control, ' ');
  out->append("\r\n");
}

}  // namespace

std::string refusal_body(const Refusal& refusal, std::string_view path) {
  const ApiError error{.status = refusal.status,
                       .type = refusal.type,
                       .code = refusal.code,
                       .message = refusal.message};
  return find_route({}, path).interface->error_text(error, {});
}

std::optional<std::string> percent_decode(std::string_view text) {
  std::string decoded;
  decoded.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      decoded += text[i];
      continue;
    }
    if (text.size() - i < 3) return std::nullopt;
    const int high = hex_digit(text[i + 1]);
    const int low = hex_digit(text[i + 2]);
    if (high < 0 || low < 0) return std::nullopt;
    decoded += static_cast<char>(high * 16 + low);
    i += 2;
  }
  return decoded;
}

std::optional<Target> parse_target(std::string_view text) {
  Target target;
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (text.size() < scheme.size() || !equal_without_case(text.substr(0, scheme.size()), scheme)) {
      continue;
    }
    text.remove_prefix(scheme.size());
    const size_t end = std::min(text.find_first_of("/?#"), text.size());
    target.authority = std::string(text.substr(0, end));
    if (target.authority.empty()) return std::nullopt;
    text.remove_prefix(end);
    if (text.empty()) text = "/";
    break;
  }
  if (text.empty() || text.front() != '/') return std::nullopt;
  text = text.substr(0, text.find('#'));
  const size_t question = text.find('?');
  if (question != std::string_view::npos) target.query = std::string(text.substr(question + 1));
  auto path = percent_decode(text.substr(0, question));
  if (!path || !is_valid_utf8(*path) || std::any_of(path->begin(), path->end(), is_control)) {
    return std::nullopt;
  }
  target.path = *std::move(path);
  return target;
}

std::optional<std::string> query_value(std::string_view query, std::string_view name) {
  while (!query.empty()) {
    const size_t end = std::min(query.find('&'), query.size());
    const std::string_view field = query.substr(0, end);
    query.remove_prefix(std::min(end + 1, query.size()));
    const size_t equals = field.find('=');
    if (field.substr(0, equals) != name) continue;
    return percent_decode(equals == std::string_view::npos ? "" : field.substr(equals + 1));
  }
  return std::nullopt;
}

bool is_request_id(std::string_view text) {
  constexpr std::string_view kMarks = "-_.:+/=@~";
  return !text.empty() && text.size() <= kRequestIdMax &&
         std::all_of(text.begin(), text.end(), [&](char c) {
           return (c >= '0' && c <= '9') || (lower_case(c) >= 'a' && lower_case(c) <= 'z') ||
                  kMarks.find(c) != std::string_view::npos;
         });
}

std::string make_request_id(uint64_t seed, uint64_t number) {
  // splitmix64 is a bijection: numbers that differ give ids that differ.
  uint64_t x = seed + number * 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return formatted("req_{:016x}", x ^ (x >> 31));
}

std::string_view reason_phrase(int status) {
  static constexpr std::array<std::pair<int, std::string_view>, 27> kPhrases = {
      {{200, "OK"},
       {201, "Created"},
       {202, "Accepted"},
       {204, "No Content"},
       {206, "Partial Content"},
       {301, "Moved Permanently"},
       {302, "Found"},
       {303, "See Other"},
       {304, "Not Modified"},
       {307, "Temporary Redirect"},
       {308, "Permanent Redirect"},
       {400, "Bad Request"},
       {401, "Unauthorized"},
       {403, "Forbidden"},
       {404, "Not Found"},
       {405, "Method Not Allowed"},
       {408, "Request Timeout"},
       {409, "Conflict"},
       {413, "Content Too Large"},
       {415, "Unsupported Media Type"},
       {417, "Expectation Failed"},
       {422, "Unprocessable Content"},
       {429, "Too Many Requests"},
       {431, "Request Header Fields Too Large"},
       {500, "Internal Server Error"},
       {501, "Not Offered"},
       {503, "Service Unavailable"}}};
  for (const auto& [code, phrase] : kPhrases) {
    if (code == status) return phrase;
  }
  return {};
}

std::string http_date(std::time_t time) {
  constexpr std::array<std::string_view, 7> kDays = {"Sun", "Mon", "Tue", "Wed",
                                                     "Thu", "Fri", "Sat"};
  constexpr std::array<std::string_view, 12> kMonths = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                                        "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  std::tm parts{};
  if (gmtime_r(&time, &parts) == nullptr) return {};
  return formatted("{}, {:02} {} {:04} {:02}:{:02}:{:02} GMT", kDays[parts.tm_wday], parts.tm_mday,
                   kMonths[parts.tm_mon], parts.tm_year + 1900, parts.tm_hour, parts.tm_min,
                   parts.tm_sec);
}

bool status_has_body(int status) { return status >= 200 && status != 204 && status != 304; }

std::string head_text(const AnswerHead& head, const Headers& own, const Headers& headers) {
  std::string text = formatted("HTTP/1.1 {} {}\r\n", head.status, reason_phrase(head.status));
  append_header("Server", "moeflux", &text);
  append_header("Date", http_date(std::time(nullptr)), &text);
  for (const auto& [name, value] : own) append_header(name, value, &text);
  for (const auto& header : headers) {
    const auto& [name, value] = header;
    // Both may say what an answer depends on (Vary), but not the same twice.
    const bool said = std::any_of(own.begin(), own.end(), [&](const auto& one) {
      return equal_without_case(one.first, header.first) &&
             (one.second == header.second || !equal_without_case(header.first, "vary"));
    });
    if (!is_transports_own(name) && !said) append_header(name, value, &text);
  }
  switch (head.framing) {
    case BodyFraming::kLength:
      append_header("Content-Length", formatted("{}", head.body_bytes), &text);
      break;
    case BodyFraming::kChunked:
      append_header("Transfer-Encoding", "chunked", &text);
      break;
    case BodyFraming::kUntilClose:
    case BodyFraming::kNone:
      break;
  }
  if (!head.keep_alive) {
    append_header("Connection", "close", &text);
  } else if (head.minor_version == 0) {
    append_header("Connection", "keep-alive", &text);
  }
  return text += "\r\n";
}

std::string chunk_of(std::string_view bytes) {
  if (bytes.empty()) return {};
  std::string chunk = formatted("{:x}\r\n", bytes.size());
  chunk.reserve(chunk.size() + bytes.size() + 2 + kLastChunk.size());
  return chunk.append(bytes).append("\r\n");
}

}  // namespace moeflux::serve
