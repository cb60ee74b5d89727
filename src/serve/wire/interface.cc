#include "serve/wire/interface.h"

#include <chrono>
#include <optional>
#include <utility>

#include "serve/wire/wire_json.h"

namespace moeflux::serve {
namespace {

constexpr std::chrono::milliseconds kKeepAliveInterval{5000};
constexpr std::string_view kVersion = "/v1";

/// The part of `path` in place of the braces of `pattern`; nothing where they do not match.
std::optional<std::string> match_path(std::string_view pattern, std::string_view path) {
  const size_t at = pattern.find('{');
  if (at == std::string_view::npos) return pattern == path ? std::optional("") : std::nullopt;
  const std::string_view front = pattern.substr(0, at);
  const std::string_view back = pattern.substr(pattern.find('}') + 1);
  if (path.size() <= front.size() + back.size()) return std::nullopt;
  if (!path.starts_with(front) || !path.ends_with(back)) return std::nullopt;
  const std::string_view id = path.substr(at, path.size() - front.size() - back.size());
  const bool takes_parts = pattern.substr(at).starts_with("{name}");
  if (!takes_parts && id.find('/') != std::string_view::npos) return std::nullopt;
  return std::string(id);
}

std::string single_slashes(std::string_view path) {
  std::string plain;
  for (const char c : path) {
    if (c != '/' || !plain.ends_with('/')) plain += c;
  }
  if (plain.ends_with('/')) plain.pop_back();
  return plain;
}

bool is_versioned(std::string_view plain) {
  return plain.starts_with(kVersion) &&
         (plain.size() == kVersion.size() || plain[kVersion.size()] == '/');
}

bool is_at_home(const Interface& interface, std::string_view path) {
  const std::string_view home = interface.home;
  return path.starts_with(home) && (path.size() == home.size() || path[home.size()] == '/');
}

}  // namespace

size_t count_routes() {
  size_t count = 0;
  for (const Interface* one : interfaces()) count += one->routes.size();
  return count;
}

std::string route_path(std::string_view path) {
  std::string plain = single_slashes(path);
  if (is_versioned(plain)) plain.erase(0, kVersion.size());
  return plain.empty() ? "/" : plain;
}

bool has_version(std::string_view path) { return is_versioned(single_slashes(path)); }

Routed find_route(std::string_view method, std::string_view given_path) {
  const std::string path = route_path(given_path);
  Routed routed;
  const Interface* at_home = nullptr;
  for (const Interface* interface : interfaces()) {
    const bool is_closer = at_home == nullptr || at_home->home.empty();
    if (is_closer && is_at_home(*interface, path)) at_home = interface;
    for (const Route& route : interface->routes) {
      if (auto id = match_path(route.path, path)) {
        const bool is_head = method == "HEAD" && route.method == "GET";
        if (route.method == method || is_head) {
          routed.interface = interface;
          routed.route = &route;
          routed.id = *std::move(id);
          return routed;
        }
        if (!routed.allowed.empty()) routed.allowed += ", ";
        routed.allowed += route.method;
      }
      ++routed.number;
    }
  }
  routed.interface = at_home;
  return routed;
}

AnswerTarget AnswerTarget::of(const Request& request, std::shared_ptr<Response> response) {
  return {.response = std::move(response),
          .interface = find_route(request.method, request.path).interface,
          .request_id = std::string(header(request, "x-request-id"))};
}

void AnswerTarget::answer(const Json& json) const {
  response->send(200, {{"Content-Type", "application/json"}}, dump_json(json));
}

void AnswerTarget::fail(const ApiError& error, Headers headers) const {
  headers.emplace_back("Content-Type", "application/json");
  if (error.status == 429 || error.status == 503) headers.emplace_back("Retry-After", "1");
  response->send(error.status, std::move(headers), interface->error_text(error, request_id));
}

void AnswerTarget::begin_stream() const {
  const StreamForm& form = interface->stream;
  response->begin(200, {{"Content-Type", std::string(form.content_type)},
                        {"Cache-Control", "no-store"},
                        {"X-Accel-Buffering", "no"}});
  if (form.keep_alive.empty()) return;
  response->keep_alive(std::string(form.keep_alive), kKeepAliveInterval);
}

}  // namespace moeflux::serve
