// A byte that chooses limits and rules, then what a client sends. In any pieces it reads the same,
// and what is let through is what the interface promises. An answer that repeats parts of it says
// no more than its own lines.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "base/ascii.h"
#include "serve/http/access.h"
#include "serve/http/http_text.h"
#include "serve/http/request_reader.h"
#include "text/encoding/utf8.h"

namespace {

using moeflux::serve::AccessRules;
using moeflux::serve::Headers;
using moeflux::serve::Reach;
using moeflux::serve::Request;
using moeflux::serve::RequestLimits;
using moeflux::serve::RequestReader;
using State = RequestReader::State;

void expect(bool fact, const char* what) {
  if (fact) return;
  std::fprintf(stderr, "not so: %s\n", what);
  std::abort();
}

/// The result for the next request of a connection.
struct Outcome {
  State state = State::kHeader;
  Request request;
  bool has_body = false;
  bool keep_alive = false;
  size_t left = 0;  // bytes behind it

  /// A refused request may have been refused before the rest was there, or wait for it.
  bool operator==(const Outcome& other) const {
    if (state != State::kDone || other.state != State::kDone) {
      return (state == State::kDone) == (other.state == State::kDone);
    }
    return request.method == other.request.method && request.path == other.request.path &&
           request.query == other.request.query && request.headers == other.request.headers &&
           request.body == other.request.body && has_body == other.has_body &&
           keep_alive == other.keep_alive && left == other.left;
  }
};

/// Reads as a connection does, pieces of up to `most` bytes.
Outcome read(std::string_view bytes, const RequestLimits& limits, size_t most, uint64_t seed) {
  std::mt19937_64 random(seed);
  RequestReader reader(limits);
  std::string buffer;
  while (reader.state() != State::kDone && reader.state() != State::kRefused) {
    if (reader.state() != State::kHeaderDone) {
      if (bytes.empty()) break;
      const size_t piece = std::min(bytes.size(), static_cast<size_t>(1 + random() % most));
      buffer += bytes.substr(0, piece);
      bytes.remove_prefix(piece);
    }
    const size_t taken = reader.feed(buffer);
    expect(taken <= buffer.size(), "a reader takes what it is given");
    buffer.erase(0, taken);
  }
  if (reader.state() == State::kRefused) {
    expect(reader.problem().status >= 400 && reader.problem().status < 500, "it is the client's");
  }
  return {.state = reader.state(),
          .request = reader.request(),
          .has_body = reader.meta().has_body,
          .keep_alive = reader.meta().keep_alive,
          .left = buffer.size() + bytes.size()};
}

bool has_control(std::string_view text) {
  return std::any_of(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) < 0x20 && c != '\t') || c == 0x7f;
  });
}

void check_request(const Outcome& read, const RequestLimits& limits) {
  const Request& request = read.request;
  expect(request.body.size() <= limits.body_bytes, "bodies keep to their limit");
  expect(request.headers.size() <= limits.header_fields, "headers keep to their limit");
  expect(request.path == "*" || request.path.starts_with('/'), "a path begins with /");
  expect(moeflux::is_valid_utf8(request.path) && !has_control(request.path), "a path is text");
  expect(!request.method.empty(), "a request has a method");
  expect(read.has_body || request.body.empty(), "who has no body sends none");
  int hosts = 0;
  for (const auto& [name, value] : request.headers) {
    expect(!name.empty() && name == moeflux::lower_case(name), "names are in lower case");
    expect(!has_control(name) && !has_control(value), "headers are lines");
    if (name == "host") ++hosts;
  }
  expect(hosts <= 1, "there is one Host");
}

void check_access(const Outcome& read, const AccessRules& rules, Reach reach) {
  namespace serve = moeflux::serve;
  const auto refusal = serve::check_access(read.request, read.has_body, rules, reach);
  const std::string_view origin = header(read.request, "origin");
  const auto kind = serve::origin_kind(origin, header(read.request, "host"), rules);
  expect(refusal || kind != serve::OriginKind::kForeign, "foreign pages are refused");
  const Headers cors = serve::cors_headers(read.request, rules, true);
  expect(cors.empty() == (kind != serve::OriginKind::kListed), "listed pages read answers");
  if (refusal) serve::refusal_body(*refusal);
  // An answer that repeats all of it.
  Headers headers = read.request.headers;
  if (refusal) headers.emplace_back("X-Why", refusal->message);
  const std::string head = serve::head_text({}, cors, headers);
  expect(head.find("\r\n\r\n") == head.size() - 4, "a head ends once");
  const auto lines = static_cast<size_t>(std::count(head.begin(), head.end(), '\n'));
  // Its first line, Server, Date, Content-Length and the empty line.
  expect(lines <= 5 + cors.size() + headers.size(), "a header is a line");
}

void check_texts(std::string_view text) {
  namespace serve = moeflux::serve;
  if (const auto target = serve::parse_target(text)) {
    expect(target->path.starts_with('/') && moeflux::is_valid_utf8(target->path),
           "a target's path is text");
  }
  const auto decoded = serve::percent_decode(text);
  expect(!decoded || decoded->size() <= text.size(), "decoding makes nothing longer");
  if (serve::host_allowed(text, {}, Reach::kLoopback)) {
    const std::string host = moeflux::lower_case(text);
    expect(host.starts_with("localhost") || host.starts_with("127.") || host.starts_with("[::1]"),
           "loopback has few names");
  }
  expect(serve::same_key(text, "key") == (text == "key"), "keys are equal or not");
  if (serve::is_request_id(text)) expect(!has_control(text), "ids are plain");
  const std::string chunk = serve::chunk_of(text);
  expect(text.empty() ? chunk.empty() : chunk.ends_with("\r\n"), "a chunk has an end");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const uint8_t choice = data[0];
  std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  check_texts(bytes);
  RequestLimits limits;
  if (choice & 1) limits = {.header_bytes = 120, .header_fields = 4, .body_bytes = 40};
  AccessRules rules;
  if (choice & 2) rules.api_keys = {"key", "other"};
  if (choice & 4) rules.allowed_hosts = {"box.lan"};
  if (choice & 8) rules.allowed_origins = {"https://chat.example"};
  const Reach reach = choice & 16 ? Reach::kNetwork : Reach::kLoopback;
  for (int requests = 0; requests < 4; ++requests) {
    const Outcome whole = read(bytes, limits, bytes.size() + 1, 0);
    expect(read(bytes, limits, 1, 0) == whole, "bytes read one by one are the same");
    expect(read(bytes, limits, 50, size) == whole, "pieces are the same");
    if (whole.state != State::kDone) break;
    check_request(whole, limits);
    check_access(whole, rules, reach);
    bytes.remove_prefix(bytes.size() - whole.left);
  }
  return 0;
}
