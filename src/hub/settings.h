// Where the hub is, who asks, and where downloads lie: the variables that huggingface_hub has.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace moeflux::hub {

/// An address in parts; the port is that of the scheme where none is written.
struct Url {
  std::string scheme;  // "https" or "http"
  std::string host;    // in lower case, with brackets around IPv6
  int port = 443;
  std::string text;

  bool has_origin_of(const Url& other) const {
    return scheme == other.scheme && host == other.host && port == other.port;
  }
  bool is_loopback() const;
};
/// Fails with kInvalidArgument for another scheme than https and http, for a user's name in it and
/// for what is not an address.
Result<Url> parse_url(std::string_view text);
/// Fails with kUnsupported where an answer from `from` may not lead to `to`: anything but https,
/// or http between hosts of this machine.
Status check_redirect(const Url& from, const Url& to);

struct HubSettings {
  Url endpoint;            // HF_ENDPOINT
  std::string token;       // HF_TOKEN, or the file HF_TOKEN_PATH or HF_HOME/token; empty: none
  std::string cache;       // HF_HUB_CACHE, or HF_HOME/hub
  bool offline = false;    // HF_HUB_OFFLINE
  int stall_seconds = 30;  // HF_HUB_DOWNLOAD_TIMEOUT
};

/// A variable's value, or null.
using Variables = std::function<const char*(const char* name)>;

/// Fails with kInvalidArgument, naming the variable. The endpoint is https, or http of this
/// machine: a token must never travel in the clear.
Result<HubSettings> hub_settings(const Variables& variable);

}  // namespace moeflux::hub
