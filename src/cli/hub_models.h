// Models by the name that a hub has for them: what -hf and moeflux pull share.
#pragma once

#include <cstdint>
#include <functional>
#include <stop_token>
#include <string>

#include "base/result.h"
#include "cli/terminal.h"
#include "hub/settings.h"

namespace moeflux {

struct PullOptions {
  std::string name;  // ORG/NAME[:FILE|:QUANT]
  std::string revision = "main";
  int connections = 8;
  std::string piece;  // bytes of a request; empty: what download() has
  /// Told of bytes of all files, in place of a bar.
  std::function<void(uint64_t done, uint64_t total)> progress = {};
};

/// A variable of this process's environment, or null.
const char* variable_here(const char* name);
/// The settings that these variables give.
Result<hub::HubSettings> hub_settings_here();

/// Downloads what is missing, with a bar and notes on standard error, and gives the path to open:
/// a GGUF file, or a folder. Offline the cache alone is asked.
Result<std::string> pull_model(const PullOptions& options, const Log& log, std::stop_token stop);

/// The path of a model that is in the cache, or else pull_model(). The network is not asked whether
/// a newer one exists.
Result<std::string> find_or_pull_model(const std::string& name, const Log& log);

}  // namespace moeflux
