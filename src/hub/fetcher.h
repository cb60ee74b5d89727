// Reads from a hub that answers late, in part, elsewhere or not at all: redirects, waiting, trying
// again and who sees the token. Knows nothing about models and files.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>

#include "base/result.h"
#include "hub/http_client.h"
#include "hub/settings.h"

namespace moeflux::hub {

struct FetchJob {
  std::string url;
  HttpRange range;
  /// The bytes of the range, in order, each once.
  std::function<Status(uint64_t offset, std::span<const std::byte>)> take;
};

/// For one thread. The token goes to the endpoint's origin alone. A transfer that stalls or ends
/// early goes on where it was, a few times without progress; 429 and 5xx are asked again when
/// Retry-After says.
class Fetcher {
 public:
  Fetcher(std::unique_ptr<HttpClient> client, HubSettings settings, int connections,
          std::stop_token stop);
  ~Fetcher();

  /// Does the jobs that `next` gives, several at once, until it gives none and all have ended.
  /// `meanwhile` is called often. Fails with the first failure, which ends the other jobs, and with
  /// kCancelled after a stop.
  Status run(const std::function<std::optional<FetchJob>()>& next,
             const std::function<Status()>& meanwhile);

  /// The whole body. Fails as run() does, and with kResourceExhausted beyond `bytes_max`.
  Result<std::string> text(const std::string& url, uint64_t bytes_max);
  /// Bytes of a file.
  Result<std::string> bytes(const std::string& url, HttpRange range);

  const HubSettings& settings() const { return settings_; }

 private:
  struct Active;

  Status run_one(FetchJob job);
  void start(Active& active);
  Status finish(Active& active, const HttpAnswer& answer);
  Status follow(Active& active, const HttpAnswer& answer);
  Status try_again(Active& active, const HttpAnswer& answer);
  bool take(Active& active, uint64_t offset, std::span<const std::byte> bytes);

  std::unique_ptr<HttpClient> client_;
  const HubSettings settings_;
  const size_t connections_;
  const std::stop_token stop_;
  std::map<std::string, std::string> places_;  // where addresses were redirected to
};

/// An address below the endpoint; what is not a letter, a digit or one of "-_.~/" is escaped.
std::string escaped_path(std::string_view path);

}  // namespace moeflux::hub
