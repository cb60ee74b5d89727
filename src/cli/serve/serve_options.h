// The options of moeflux serve.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/model_options.h"
#include "cli/options.h"
#include "cli/sampling_options.h"

namespace moeflux {

struct ServeOptions {
  ModelOptions model;
  SamplingFlags sampling;
  std::string host = "127.0.0.1";
  int port = 8080;
  std::string unix_socket;
  std::vector<std::string> api_keys;
  std::string api_key_file;
  std::vector<std::string> admin_keys;
  std::vector<std::string> mcp_urls;
  bool keeps_chats = false;
  std::vector<std::string> allowed_hosts;
  std::vector<std::string> allowed_origins;
  bool allow_public = false;
  std::string model_name;
  std::vector<std::string> aliases;
  bool strict_model = false;
  std::string template_file;
  std::string states_folder;
  std::string states_size = "4GiB";
  int64_t reasoning_budget = -1;
  std::string parallel = "auto";
  std::string share = "auto";
  int queue_max = 64;
  bool prompts_as_sent = false;
  std::string pooling;
  bool reranks = false;
  std::string keep_alive = "5m";
  std::string memory;  // empty: what is available
  bool manages_models = false;

  /// No option names a model or tells of one: the server has all that are on this machine.
  bool has_many() const;
  /// Requests generated at the same time; none: as many as usual_sequences() says.
  std::optional<int> active_max() const;
};

void add_serve_options(CommandOptions& command, ServeOptions& options);
/// The ones among these that a preset may set for its model.
void add_preset_options(CommandOptions& command, ServeOptions& options);

}  // namespace moeflux
