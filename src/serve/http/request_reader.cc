// Beast's parser with limits of ours. Requests that it leaves open and a proxy before us may read
// differently are refused: transfer codings other than chunked, several lengths, no Host.
#include "serve/http/request_reader.h"

#include <algorithm>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <limits>
#include <string>
#include <utility>

#include "base/ascii.h"
#include "base/format.h"

namespace moeflux::serve {
namespace {

namespace http = boost::beast::http;

template <typename View>
std::string_view view(const View& text) {
  return {text.data(), text.size()};
}

Refusal malformed(std::string message) {
  return {400, "invalid_request_error", "", std::move(message)};
}

Refusal too_large_header(const RequestLimits& limits) {
  return {431, "invalid_request_error", "",
          formatted("the headers have more than {} bytes or {} lines", limits.header_bytes,
                    limits.header_fields)};
}

}  // namespace

struct RequestReader::Parser {
  explicit Parser(const RequestLimits& of) : limits(of) {
    parser.header_limit(static_cast<std::uint32_t>(
        std::min<size_t>(limits.header_bytes, std::numeric_limits<std::uint32_t>::max())));
    parser.body_limit(limits.body_bytes);
    parser.eager(false);
  }

  size_t put(std::string_view bytes);
  void read_header();
  void refuse(Refusal why);
  Refusal problem_of(const boost::beast::error_code& error) const;
  bool host_and_target();

  RequestLimits limits;
  http::request_parser<http::string_body> parser;
  State state = State::kHeader;
  size_t header_bytes = 0;
  Request request;
  RequestMeta meta;
  Refusal problem;
};

void RequestReader::Parser::refuse(Refusal why) {
  state = State::kRefused;
  meta.keep_alive = false;
  problem = std::move(why);
}

Refusal RequestReader::Parser::problem_of(const boost::beast::error_code& error) const {
  if (error == http::error::header_limit) return too_large_header(limits);
  if (error == http::error::body_limit || error == http::error::buffer_overflow) {
    return {413, "invalid_request_error", "request_too_large",
            formatted("the body has more than {} bytes", limits.body_bytes)};
  }
  return malformed(formatted("not a well-formed HTTP request: {}", error.message()));
}

size_t RequestReader::Parser::put(std::string_view bytes) {
  // Heads of chunks and trailers have no limit of Beast's: they have to end in what it sees.
  if (state == State::kBody) bytes = bytes.substr(0, limits.header_bytes + 1);
  // A last chunk has at least five bytes; Beast asserts that they are there when it looks again.
  if (state == State::kBody && parser.chunked() && bytes.size() < 5 && bytes[0] == '0') return 0;
  size_t taken = 0;
  if (!parser.got_some()) {
    // Empty lines before a request are left over from clients that end bodies with one.
    while (bytes.substr(taken).starts_with("\r\n")) taken += 2;
    bytes.remove_prefix(taken);
    if (bytes.empty() || bytes == "\r") return taken;
  }
  boost::beast::error_code error;
  const size_t parsed = parser.put(boost::asio::const_buffer(bytes.data(), bytes.size()), error);
  if (!parser.is_header_done()) {
    header_bytes += parsed;
  } else if (state == State::kHeader) {
    header_bytes += parsed;
    if (!error) read_header();
  }
  if (error == http::error::need_more) {
    if (bytes.size() - parsed > limits.header_bytes) refuse(too_large_header(limits));
  } else if (error) {
    // The client's id and whether it wants a body, as far as they are known.
    if (state == State::kHeader && error == http::error::body_limit) read_header();
    refuse(problem_of(error));
  }
  return taken + parsed;
}

bool RequestReader::Parser::host_and_target() {
  const auto target = parse_target(view(parser.get().target()));
  if (target) {
    request.path = target->path;
    request.query = target->query;
  } else if (request.method == "OPTIONS" && view(parser.get().target()) == "*") {
    request.path.assign(1, '*');
  } else {
    refuse(malformed("the target is not a path, or not UTF-8 once its percent signs are decoded"));
    return false;
  }
  const auto hosts = std::count_if(request.headers.begin(), request.headers.end(),
                                   [](const auto& field) { return field.first == "host"; });
  if (hosts > 1 || (meta.minor_version > 0 && header(request, "host").empty())) {
    refuse(
        malformed(formatted("{} Host headers with a name, expected one", hosts > 1 ? hosts : 0)));
    return false;
  }
  if (target && !target->authority.empty()) {
    // A whole address says which host is meant, whatever the header says.
    std::erase_if(request.headers, [](const auto& field) { return field.first == "host"; });
    request.headers.emplace_back("host", target->authority);
  }
  return true;
}

void RequestReader::Parser::read_header() {
  const auto& message = parser.get();
  request.method = std::string(view(message.method_string()));
  meta.minor_version = message.version() >= 11 ? 1 : 0;
  meta.keep_alive = message.keep_alive();
  meta.has_body = !parser.is_done();
  size_t codings = 0;
  for (const auto& field : message) {
    request.headers.emplace_back(lower_case(view(field.name_string())),
                                 std::string(view(field.value())));
    const auto& [name, value] = request.headers.back();
    if (name == "transfer-encoding" && !equal_without_case(value, "chunked")) codings += 2;
    if (name == "transfer-encoding") codings += 1;
    if (name == "expect" && meta.minor_version > 0) {
      meta.expects_continue = equal_without_case(value, "100-continue");
      if (!meta.expects_continue) {
        return refuse({417, "invalid_request_error", "",
                       formatted("Expect '{}', expected 100-continue", value.substr(0, 100))});
      }
    }
  }
  if (codings > 1 || (codings == 1 && meta.minor_version == 0)) {
    return refuse(malformed("Transfer-Encoding, expected 'chunked' once and HTTP/1.1"));
  }
  if (header_bytes > limits.header_bytes || request.headers.size() > limits.header_fields) {
    return refuse(too_large_header(limits));
  }
  if (!host_and_target()) return;
  state = State::kHeaderDone;
}

RequestReader::RequestReader(const RequestLimits& limits)
    : parser_(std::make_unique<Parser>(limits)) {}
RequestReader::~RequestReader() = default;

size_t RequestReader::feed(std::string_view bytes) {
  Parser& p = *parser_;
  size_t taken = 0;
  if (p.state == State::kHeaderDone) {
    p.parser.eager(true);
    p.state = State::kBody;
  }
  const auto wants_bytes = [&p] {
    return p.state == State::kHeader || (p.state == State::kBody && !p.parser.is_done());
  };
  while (wants_bytes() && taken < bytes.size()) {
    const size_t more = p.put(bytes.substr(taken));
    if (more == 0) break;
    taken += more;
  }
  if (p.state == State::kBody && p.parser.is_done()) {
    p.request.body = std::move(p.parser.get().body());
    p.state = State::kDone;
  }
  return taken;
}

RequestReader::State RequestReader::state() const { return parser_->state; }

const Refusal& RequestReader::problem() const { return parser_->problem; }

Request& RequestReader::request() { return parser_->request; }

const RequestMeta& RequestReader::meta() const { return parser_->meta; }

}  // namespace moeflux::serve
