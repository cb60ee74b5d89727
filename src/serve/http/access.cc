#include "serve/http/access.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "base/ascii.h"
#include "base/format.h"
#include "serve/wire/interface.h"
#include "store/owner_name.h"

namespace moeflux::serve {
namespace {

// Pages that a program brings with it: no web site has such an origin. Ollama lets in all but
// Capacitor's and Ionic's.
constexpr std::array<std::string_view, 7> kLocalSchemes = {
    "app://",   "capacitor://",   "file://",          "ionic://",
    "tauri://", "vscode-file://", "vscode-webview://"};

bool begins_without_case(std::string_view text, std::string_view begin) {
  return text.size() >= begin.size() && equal_without_case(text.substr(0, begin.size()), begin);
}

std::string_view trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

/// "host:port" without its port; a bracketed address keeps its brackets. Nothing if what follows
/// the name is no port.
std::string_view without_port(std::string_view host) {
  const size_t bracket = host.starts_with('[') ? host.find(']') : 0;
  if (bracket == std::string_view::npos) return {};
  const size_t colon = host.find(':', bracket);
  const std::string_view name = host.substr(0, colon);
  if (bracket > 0 && name.size() != bracket + 1) return {};
  if (colon == std::string_view::npos) return name;
  const std::string_view port = host.substr(colon + 1);
  const bool digits =
      std::all_of(port.begin(), port.end(), [](char c) { return c >= '0' && c <= '9'; });
  return digits && port.size() <= 5 ? name : std::string_view();
}

/// Whether a name, without a port, is of the machine itself: no web site has one of these. Names
/// below localhost are, with a dot at the end or not (RFC 6761); 0.0.0.0 and [::] are where many
/// programs listen, so where people go. Ollama takes them all.
bool is_own_name(std::string_view name) {
  if (name == "[::1]" || name == "[::]" || name == "0.0.0.0") return true;
  if (name.find_first_of("[]") != std::string_view::npos) return false;
  if (is_loopback(name)) return true;
  if (name.ends_with('.')) name.remove_suffix(1);
  constexpr std::string_view kTop = "localhost";
  if (name.size() < kTop.size()) return false;
  const std::string_view below = name.substr(0, name.size() - kTop.size());
  return equal_without_case(name.substr(below.size()), kTop) &&
         (below.empty() || (below.size() > 1 && below.ends_with('.')));
}

bool any_equal(const std::vector<std::string>& names, std::string_view name) {
  return std::any_of(names.begin(), names.end(),
                     [&](const std::string& known) { return equal_without_case(known, name); });
}

bool has_open_path(const Request& request, const AccessRules& rules) {
  if (request.method != "GET" && request.method != "HEAD") return false;
  const Route* route = find_route(request.method, request.path).route;
  return route != nullptr && std::find(rules.open_paths.begin(), rules.open_paths.end(),
                                       route->path) != rules.open_paths.end();
}

/// A header of names and commas, such as a browser's list of what it wants to send.
bool is_plain_list(std::string_view text) {
  return !text.empty() && text.size() <= 1024 && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' ||
           c == '_' || c == ',' || c == ' ';
  });
}

/// The key of `rules` that the request has, or null.
const std::string* given_key(const Request& request, const AccessRules& rules) {
  const std::string_view authorization = header(request, "authorization");
  constexpr std::string_view kBearer = "bearer ";
  std::string_view bearer;
  if (authorization.size() > kBearer.size() &&
      equal_without_case(authorization.substr(0, kBearer.size()), kBearer)) {
    bearer = trimmed(authorization.substr(kBearer.size()));
  }
  const std::string_view plain = trimmed(header(request, "x-api-key"));
  const std::string* found = nullptr;
  // All keys, so that the time does not say which one it was.
  for (const std::vector<std::string>* keys : {&rules.api_keys, &rules.admin_keys}) {
    for (const std::string& key : *keys) {
      const bool by_bearer = same_key(bearer, key);
      const bool by_header = same_key(plain, key);
      found = by_bearer || by_header ? &key : found;
    }
  }
  return found;
}

bool has_several(const Request& request, std::string_view name) {
  return std::count_if(request.headers.begin(), request.headers.end(),
                       [&](const auto& header) { return header.first == name; }) > 1;
}

}  // namespace

bool is_loopback(std::string_view host) {
  if (equal_without_case(host, "localhost") || host == "::1" || host == "[::1]") return true;
  // 127.0.0.0/8, written as four numbers: "127.evil.example" is a name.
  const char* at = host.data();
  const char* const end = at + host.size();
  for (int part = 0; part < 4; ++part) {
    int number = -1;
    const auto [stop, error] = std::from_chars(at, end, number);
    if (error != std::errc() || stop - at > 3 || number < 0 || number > 255) return false;
    if (part == 0 && number != 127) return false;
    at = stop;
    if (part < 3 && (at == end || *at++ != '.')) return false;
  }
  return at == end;
}

bool same_key(std::string_view given, std::string_view key) {
  if (key.empty()) return false;
  // volatile: a compiler that sees where the outcome is settled might stop there.
  volatile unsigned difference = given.size() == key.size() ? 0 : 1;
  for (size_t i = 0; i < given.size(); ++i) {
    difference = difference | static_cast<unsigned char>(given[i] ^ key[i % key.size()]);
  }
  return difference == 0;
}

bool host_allowed(std::string_view host, const AccessRules& rules, Reach reach) {
  if (reach == Reach::kUnixSocket) return true;
  if (reach == Reach::kNetwork && rules.allowed_hosts.empty()) return true;
  const std::string_view name = without_port(host);
  if (name.empty()) return false;
  if (any_equal(rules.allowed_hosts, name) || any_equal(rules.allowed_hosts, host)) return true;
  return is_own_name(name);
}

bool is_host_rule(std::string_view text) {
  constexpr std::string_view kNotInNames = "/*@?#\\,'\" \t";
  return !without_port(text).empty() && text.find_first_of(kNotInNames) == std::string_view::npos &&
         !text.ends_with(':');
}

bool is_origin_rule(std::string_view text) {
  if (text == "*" || text == "null") return true;
  constexpr std::string_view kBehind = "://";
  const size_t end = text.find(kBehind);
  if (end == 0 || end == std::string_view::npos) return false;
  const std::string_view scheme = text.substr(0, end);
  const std::string_view host = text.substr(end + kBehind.size());
  constexpr std::string_view kInSchemes =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+-.";
  if (scheme.find_first_not_of(kInSchemes) != std::string_view::npos) return false;
  if (host == "*") return true;
  const bool is_http = equal_without_case(scheme, "http");
  const bool is_web = is_http || equal_without_case(scheme, "https");
  if (!is_web && host.empty()) return true;
  // Browsers leave out the port that a scheme has anyway.
  return is_host_rule(host) && !(is_web && host.ends_with(is_http ? ":80" : ":443"));
}

bool is_local_origin(std::string_view origin) {
  for (const std::string_view scheme : kLocalSchemes) {
    if (begins_without_case(origin, scheme)) return true;
  }
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (!begins_without_case(origin, scheme)) continue;
    return is_own_name(without_port(origin.substr(scheme.size())));
  }
  return false;
}

OriginKind origin_kind(std::string_view origin, std::string_view host, const AccessRules& rules) {
  if (origin.empty()) return OriginKind::kSame;
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (!host.empty() && origin.starts_with(scheme) &&
        equal_without_case(origin.substr(scheme.size()), host)) {
      return OriginKind::kSame;
    }
  }
  if (is_local_origin(origin)) return OriginKind::kListed;
  const bool is_listed = std::any_of(
      rules.allowed_origins.begin(), rules.allowed_origins.end(), [&](std::string_view known) {
        if (known == "*") return true;
        return known.ends_with("://*")
                   ? begins_without_case(origin, known.substr(0, known.size() - 1))
                   : equal_without_case(known, origin);
      });
  return is_listed ? OriginKind::kListed : OriginKind::kForeign;
}

bool has_key(const Request& request, const AccessRules& rules) {
  return rules.api_keys.empty() || has_open_path(request, rules) ||
         given_key(request, rules) != nullptr;
}

bool is_admin(const Request& request, const AccessRules& rules) {
  if (rules.api_keys.empty() && rules.admin_keys.empty()) return true;
  const std::string* const key = given_key(request, rules);
  const auto& admins = rules.admin_keys;
  return key != nullptr && std::find(admins.begin(), admins.end(), *key) != admins.end();
}

std::string owner_of(const Request& request, const AccessRules& rules) {
  const std::string* const key = given_key(request, rules);
  return key == nullptr ? std::string() : owner_name(*key);
}

bool is_json(std::string_view content_type) {
  return equal_without_case(trimmed(content_type.substr(0, content_type.find(';'))),
                            "application/json");
}

std::optional<Refusal> check_access(const Request& request, bool has_body, const AccessRules& rules,
                                    Reach reach) {
  if (has_several(request, "host") || has_several(request, "origin")) {
    return Refusal{400, "invalid_request_error", "",
                   "several Host or Origin headers, expected one"};
  }
  const std::string_view host = header(request, "host");
  // A request of HTTP/1.0 may have none; no browser sends such a one.
  if (!host.empty() && !host_allowed(host, rules, reach)) {
    return Refusal{403, "permission_error", "",
                   formatted("Host '{}' is not allowed here, expected localhost or a name of "
                             "--allow-host",
                             host.substr(0, 100))};
  }
  const std::string_view origin = header(request, "origin");
  if (origin_kind(origin, host, rules) == OriginKind::kForeign) {
    return Refusal{403, "permission_error", "",
                   formatted("Origin '{}' is not allowed here, expected the server's own, one of "
                             "this machine's programs or one of --allow-origin",
                             origin.substr(0, 100))};
  }
  if (request.method == "OPTIONS") return std::nullopt;
  if (!has_key(request, rules)) {
    return Refusal{401, "authentication_error", "invalid_api_key",
                   "no valid API key, expected one in 'Authorization: Bearer' or 'x-api-key'"};
  }
  const bool any_type = find_route(request.method, request.path).interface->takes_any_type;
  if (has_body && !any_type && !is_json(header(request, "content-type"))) {
    return Refusal{415, "invalid_request_error", "",
                   formatted("Content-Type '{}', expected application/json",
                             header(request, "content-type").substr(0, 100))};
  }
  return std::nullopt;
}

Headers cors_headers(const Request& request, const AccessRules& rules, bool preflight) {
  const std::string_view origin = header(request, "origin");
  if (origin_kind(origin, header(request, "host"), rules) != OriginKind::kListed) return {};
  Headers headers = {{"Access-Control-Allow-Origin", std::string(origin)},
                     {"Access-Control-Expose-Headers", "x-request-id, request-id, retry-after"},
                     {"Vary", "Origin"}};
  if (!preflight) return headers;
  headers.emplace_back("Access-Control-Allow-Methods", "GET, HEAD, POST, DELETE, OPTIONS");
  const std::string_view wanted = header(request, "access-control-request-headers");
  if (is_plain_list(wanted)) {
    headers.emplace_back("Access-Control-Allow-Headers", std::string(wanted));
  }
  headers.emplace_back("Access-Control-Max-Age", "600");
  return headers;
}

}  // namespace moeflux::serve
