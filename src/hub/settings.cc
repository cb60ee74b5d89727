#include "hub/settings.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "base/ascii.h"
#include "base/format.h"
#include "io/file.h"

namespace moeflux::hub {
namespace {

constexpr std::string_view kEndpoint = "https://huggingface.co";
constexpr uint64_t kTokenBytesMax = 4096;
constexpr int kStallSecondsMax = 3600;

std::string text_of(const Variables& variable, const char* name) {
  const char* const value = variable(name);
  return value == nullptr ? "" : value;
}

// As Python's expanduser has it.
std::string with_home(std::string path, const std::string& home) {
  if (path == "~" || path.starts_with("~/")) path.replace(0, 1, home);
  return path;
}

bool is_true(const std::string& value) {
  const std::string low = lower_case(value);
  return low == "1" || low == "on" || low == "yes" || low == "true";
}

std::string trimmed(std::string text) {
  while (!text.empty() && static_cast<unsigned char>(text.back()) <= ' ') text.pop_back();
  text.erase(0, text.find_first_not_of(" \t\r\n"));
  return text;
}

}  // namespace

bool Url::is_loopback() const {
  return host == "localhost" || host == "[::1]" ||
         (host.starts_with("127.") && host.find_first_not_of("0123456789.") == std::string::npos);
}

Result<Url> parse_url(std::string_view text) {
  const auto refuse = [](std::string_view what) {
    return make_error(ErrorCode::kInvalidArgument, "{}, expected https://HOST", what);
  };
  if (std::ranges::any_of(
          text, [](char c) { return static_cast<unsigned char>(c) <= ' ' || c == 0x7f; })) {
    return refuse("an address with spaces or control characters");
  }
  Url url{.text = std::string(text)};
  const size_t colon = text.find("://");
  url.scheme = lower_case(text.substr(0, colon == std::string_view::npos ? 0 : colon));
  if (url.scheme != "https" && url.scheme != "http") {
    return refuse(formatted("the address '{}'", text.substr(0, 200)));
  }
  url.port = url.scheme == "https" ? 443 : 80;
  std::string_view rest = text.substr(colon + 3);
  rest = rest.substr(0, rest.find_first_of("/?#\\"));
  if (rest.find('@') != std::string_view::npos) return refuse("an address with a user's name");
  const size_t bracket = rest.starts_with('[') ? rest.find(']') : 0;
  if (bracket == std::string_view::npos)
    return refuse(formatted("the address '{}'", text.substr(0, 200)));
  const size_t port = rest.find(':', bracket);
  url.host = lower_case(rest.substr(0, port));
  if (url.host.empty()) return refuse(formatted("the address '{}'", text.substr(0, 200)));
  if (port != std::string_view::npos) {
    const std::string_view digits = rest.substr(port + 1);
    const auto [end, error] =
        std::from_chars(digits.data(), digits.data() + digits.size(), url.port);
    if (error != std::errc() || end != digits.data() + digits.size() || url.port <= 0 ||
        url.port > 65535) {
      return refuse(formatted("the port of '{}'", text.substr(0, 200)));
    }
  }
  return url;
}

Status check_redirect(const Url& from, const Url& to) {
  if (to.scheme == "https") return {};
  if (from.scheme == "http" && from.is_loopback() && to.is_loopback()) return {};
  return make_error(ErrorCode::kUnsupported, "{}://{} redirects to {}://{}, expected https",
                    from.scheme, from.host, to.scheme, to.host);
}

Result<HubSettings> hub_settings(const Variables& variable) {
  HubSettings settings;
  const auto text = [&](const char* name) { return text_of(variable, name); };
  std::string endpoint = text("HF_ENDPOINT");
  if (endpoint.empty()) endpoint = kEndpoint;
  while (endpoint.ends_with('/')) endpoint.pop_back();
  Result<Url> url = parse_url(endpoint);
  if (!url.ok()) return url.error().with_context("HF_ENDPOINT");
  if (url->scheme != "https" && !url->is_loopback()) {
    return make_error(ErrorCode::kInvalidArgument,
                      "HF_ENDPOINT: {}, expected https: http is for this machine alone", endpoint);
  }
  settings.endpoint = std::move(*url);

  const std::string home = text("HOME");
  std::string root = with_home(text("HF_HOME"), home);
  if (root.empty()) {
    const std::string caches = with_home(text("XDG_CACHE_HOME"), home);
    root = (caches.empty() ? home + "/.cache" : caches) + "/huggingface";
  }
  settings.cache = with_home(text("HF_HUB_CACHE"), home);
  if (settings.cache.empty()) settings.cache = with_home(text("HUGGINGFACE_HUB_CACHE"), home);
  if (settings.cache.empty()) settings.cache = root + "/hub";
  if (settings.cache.starts_with("/.cache")) {
    return make_error(ErrorCode::kInvalidArgument,
                      "HOME is not set; say with HF_HOME where downloads lie");
  }
  settings.token = trimmed(text("HF_TOKEN"));
  if (settings.token.empty()) {
    std::string path = with_home(text("HF_TOKEN_PATH"), home);
    if (path.empty()) path = root + "/token";
    if (auto stored = read_text_file(path, kTokenBytesMax); stored.ok()) {
      settings.token = trimmed(std::move(*stored));
    }
  }
  if (std::ranges::any_of(settings.token, [](char c) {
        return static_cast<unsigned char>(c) <= ' ' || c == 0x7f;
      })) {
    return make_error(ErrorCode::kInvalidArgument, "HF_TOKEN: spaces or control characters in it");
  }
  settings.offline = is_true(text("HF_HUB_OFFLINE")) || is_true(text("TRANSFORMERS_OFFLINE"));
  if (const std::string seconds = text("HF_HUB_DOWNLOAD_TIMEOUT"); !seconds.empty()) {
    const auto [end, error] =
        std::from_chars(seconds.data(), seconds.data() + seconds.size(), settings.stall_seconds);
    if (error != std::errc() || end != seconds.data() + seconds.size() ||
        settings.stall_seconds < 1 || settings.stall_seconds > kStallSecondsMax) {
      return make_error(ErrorCode::kInvalidArgument,
                        "HF_HUB_DOWNLOAD_TIMEOUT: '{}', expected seconds from 1 to {}", seconds,
                        kStallSecondsMax);
    }
  }
  return settings;
}

}  // namespace moeflux::hub
