// Asks a server of tools by the Model Context Protocol, over streamable HTTP. Trusts nothing that
// comes back: answers are bounded in bytes and time, redirects are failures, and of results only
// text is taken.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace moeflux::hub {

struct McpLimits {
  std::chrono::milliseconds time{60'000};  // of one operation, all of its requests together
  size_t answer_bytes = size_t{1} << 20;   // of one answer
  size_t text_bytes = size_t{256} << 10;   // of a result's text; the rest is cut
  size_t tools = 256;                      // further ones are left out
};

struct McpTool {
  std::string name;
  std::string description;  // up to 4 KiB
  Json input_schema = Json::object();
};

struct McpResult {
  std::string content;
  bool is_error = false;      // the tool says so
  bool is_truncated = false;  // text was cut
};

/// Whether a text is a URL of a server: http or https, with a host, without a user.
bool is_mcp_url(std::string_view url);

/// Thread-safe; operations of several threads do not wait for each other.
class McpClient {
 public:
  using GivenUp = std::function<bool()>;

  explicit McpClient(std::string url, const McpLimits& limits = {})
      : url_(std::move(url)), limits_(limits) {}

  /// The host and path of the URL, for people.
  std::string name() const;
  /// Fail with kIo where the server cannot be reached, redirects, refuses, or takes too long; with
  /// kCorruption where its answer is too long or not the protocol's. They fail with kCancelled once
  /// given up, and with kUnsupported in a build without libcurl.
  Result<std::vector<McpTool>> tools(const GivenUp& is_given_up);
  Result<McpResult> call(const std::string& tool, const Json& arguments,
                         const GivenUp& is_given_up);

 private:
  class Exchange;

  const std::string url_;
  const McpLimits limits_;
  std::mutex mutex_;                    // guards what follows
  std::optional<std::string> session_;  // none: to be initialized; empty: the server has none
};

}  // namespace moeflux::hub
