// The models of this machine for a server: presets of the configuration file, the embedded model,
// and those that moeflux list shows.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cli/serve/serve_options.h"
#include "cli/settings.h"
#include "serve/model_catalog.h"

namespace moeflux {

/// A model with a name and options of its own.
struct ServePreset {
  std::string name;
  ServeOptions options;
};

/// Sections [model.NAME], or [model."NAME"], over what holds for all models. Fails with
/// kInvalidArgument, naming the file and the line, for a key that is not an option of a model.
Result<std::vector<ServePreset>> read_presets(const ConfigFile& file, const ServeOptions& base);

std::shared_ptr<serve::ModelCatalog> make_local_catalog(ServeOptions base,
                                                        std::vector<ServePreset> presets);

}  // namespace moeflux
