// Opens a model as moeflux serve's options say.
#pragma once

#include <cstdint>
#include <functional>
#include <stop_token>

#include "cli/serve/serve_options.h"
#include "serve/model_catalog.h"

namespace moeflux {

/// The service's own, beside its models.
serve::ServiceOptions service_options(const ServeOptions& options);

/// The least of what is free and `memory_bytes` is the host's memory for the model, at its opening.
struct ServedLimits {
  uint64_t memory_bytes = UINT64_MAX;
  std::stop_token stop = {};
  std::function<void(uint64_t done, uint64_t total)> progress = {};  // null: a bar on a terminal
};

/// Fails as open_model() does, and for a template that was given and cannot be used.
Result<serve::ServedModel> open_served_model(const ServeOptions& options,
                                             const ServedLimits& limits = {});

}  // namespace moeflux
