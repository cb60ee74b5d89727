// The texts of HTTP/1.1 that need no socket: targets, heads of answers, chunks, bodies of errors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <ctime>
#include <optional>
#include <string>
#include <string_view>

#include "serve/wire/exchange.h"

namespace moeflux::serve {

/// An answer that the transport gives by itself.
struct Refusal {
  int status = 0;
  std::string type;  // as OpenAI's clients know them: "invalid_request_error"
  std::string code;  // empty: null
  std::string message;
};

/// The body that says so to who asked for `path`, in the words of that interface.
std::string refusal_body(const Refusal& refusal, std::string_view path = {});

/// %41 becomes A; nothing where two digits are missing behind a %.
std::optional<std::string> percent_decode(std::string_view text);

struct Target {
  std::string path;       // percent-decoded, UTF-8 without control characters, begins with '/'
  std::string query;      // behind '?', as it came
  std::string authority;  // of "http://host:port/path"; empty for "/path"
};
/// The part behind the method in a request's first line; nothing where it is neither of the two
/// forms or its path is no text.
std::optional<Target> parse_target(std::string_view text);

/// The percent-decoded value of a name in "a=1&b=2"; nothing where it is not there or is no text.
std::optional<std::string> query_value(std::string_view query, std::string_view name);

/// Whether a client's x-request-id may be given back: 1 to 128 letters, digits and "-_.:+/=@~".
bool is_request_id(std::string_view text);
/// An id that no other `number` has in a server of that `seed`: "req_" and 16 digits.
std::string make_request_id(uint64_t seed, uint64_t number);

/// "Not Found"; empty for statuses that nobody sends here.
std::string_view reason_phrase(int status);

/// "Sun, 06 Nov 1994 08:49:37 GMT"
std::string http_date(std::time_t time);

/// How the end of an answer's body is found.
enum class BodyFraming {
  kLength,
  kChunked,
  kUntilClose,
  kNone,  // the status allows no body
};

struct AnswerHead {
  int status = 200;
  int minor_version = 1;  // of the request: an HTTP/1.0 client is told that a connection stays open
  BodyFraming framing = BodyFraming::kLength;
  size_t body_bytes = 0;  // with kLength
  bool keep_alive = true;
};
/// The status line and all headers up to the empty line. `own`, then `headers`; those of `headers`
/// that are the transport's to say (lengths, Connection, Server, ids that `own` has) are left out,
/// and control characters in values become spaces.
std::string head_text(const AnswerHead& head, const Headers& own, const Headers& headers);

/// Whether an answer of that status has a body at all.
bool status_has_body(int status);

/// `bytes` as a chunk; nothing for nothing, which would end the body.
std::string chunk_of(std::string_view bytes);
inline constexpr std::string_view kLastChunk = "0\r\n\r\n";

}  // namespace moeflux::serve
