// Decides who may ask the server: keys, the Host a request names and the Origin of the page that
// sent it. Plain functions over strings; knows nothing of sockets.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "serve/http/http_text.h"
#include "serve/wire/exchange.h"

namespace moeflux::serve {

struct AccessRules {
  /// A request names one of them in `Authorization: Bearer KEY` or `x-api-key: KEY`. Without keys
  /// everybody may ask who reaches the server.
  std::vector<std::string> api_keys;
  /// Keys that also see the log, the plan, the options and what all requests routed.
  std::vector<std::string> admin_keys = {};
  /// Names that a Host header may have besides those of the loopback interface, without a port:
  /// "box.lan".
  std::vector<std::string> allowed_hosts;
  /// Origins of pages besides the server's own and is_local_origin()'s: "https://chat.example";
  /// "chrome-extension://*" is any of that scheme, "*" any at all. Browsers let these pages read
  /// answers.
  std::vector<std::string> allowed_origins;
  /// Routes whose paths GET and HEAD need no key for: the page asks for one by itself.
  std::vector<std::string> open_paths = {"/health", "/", "/page/{id}"};
};

/// Where the server listens, which decides what a Host header has to say.
enum class Reach {
  kLoopback,  // Host has to be a loopback name or allowed: a page whose name is made to resolve to
              // 127.0.0.1 gets no further
  kNetwork,   // Host has to be allowed where allowed_hosts has names, else it may be anything
  kUnixSocket,  // no browser connects here: Host may be anything
};

/// Whether a host to bind, "127.0.0.1", "::1" or "localhost", can be reached from this machine
/// only.
bool is_loopback(std::string_view host);

/// Compares in a time that depends on the lengths alone.
bool same_key(std::string_view given, std::string_view key);

/// Whether a Host header, port or not, is one that `rules` and `reach` let in.
bool host_allowed(std::string_view host, const AccessRules& rules, Reach reach);

/// Whether some request's Host, or Origin, can match such an entry of allowed_hosts, or
/// allowed_origins.
bool is_host_rule(std::string_view text);
bool is_origin_rule(std::string_view text);

/// Whether only a program of this machine has such an Origin: desktop programs, editors, and pages
/// that a server of this machine gives out, whatever its port. "null" is not one: a web page puts
/// what it likes into a frame of that origin.
bool is_local_origin(std::string_view origin);

enum class OriginKind {
  kSame,     // no Origin, or the one of the server itself
  kListed,   // local or of allowed_origins: its page may read the answer
  kForeign,  // of somebody else
};
OriginKind origin_kind(std::string_view origin, std::string_view host, const AccessRules& rules);

/// Whether the request has a key of `rules`, or needs none.
bool has_key(const Request& request, const AccessRules& rules);
/// Request::is_admin: whether it has an admin key, or there is no key of any kind.
bool is_admin(const Request& request, const AccessRules& rules);
/// Request::owner: who has the key that the request has; nobody without one.
std::string owner_of(const Request& request, const AccessRules& rules);

/// Whether a Content-Type is application/json, whatever its parameters.
bool is_json(std::string_view content_type);

/// Why the request, whose headers are there and whose body may be on its way, is refused: 403 for
/// Host and Origin, 401 without a key, 415 for a body that is not JSON. Nothing if it is let in.
/// On Ollama's paths (/api/...) a body may have any type. OPTIONS needs no key: browsers ask so
/// what they may send, without one.
std::optional<Refusal> check_access(const Request& request, bool has_body, const AccessRules& rules,
                                    Reach reach);

/// Headers of answers to a page of a listed origin, so that it may read them; empty for others.
/// With `preflight` also what it may send.
Headers cors_headers(const Request& request, const AccessRules& rules, bool preflight);

}  // namespace moeflux::serve
