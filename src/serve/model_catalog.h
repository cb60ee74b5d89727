// The models that a service may load, as the program that starts it knows them. Knows no request.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "base/result.h"
#include "chat/open_model.h"
#include "serve/service_options.h"

namespace moeflux::serve {

/// A model that can be loaded.
struct CatalogModel {
  std::string name;                       // what clients call it
  std::vector<std::string> aliases = {};  // see ServiceOptions
  std::string source = {};                // the program whose folder it is in, "preset"
  std::string format = {};                // "GGUF Q4_K_M", "safetensors"
  uint64_t bytes = 0;                     // of its files; 0: unknown
};

/// The host's memory that a model takes.
struct ModelRoom {
  uint64_t needed_bytes = 0;   // for everything but experts and a reserve
  uint64_t experts_bytes = 0;  // for all of them; it works with fewer
};

struct LoadRequest {
  std::string name;
  uint64_t memory_bytes = 0;  // of the host, for all of it
  std::stop_token stop = {};
  /// Told while weights are read. Any thread.
  std::function<void(uint64_t done, uint64_t total)> progress = {};
};

/// A model that was opened, and how it is to be served.
struct ServedModel {
  std::shared_ptr<OpenModel> model;
  ServiceOptions options;
};

/// A download by the name that a hub has for a model.
struct PullRequest {
  std::string name;
  std::stop_token stop = {};
  /// Told of bytes of all files.
  std::function<void(uint64_t done, uint64_t total)> progress = {};
};

/// Any thread, list() beside all others; load() one at a time.
class ModelCatalog {
 public:
  virtual ~ModelCatalog() = default;

  /// As the folders have them now; the first is taken where a request names none.
  virtual std::vector<CatalogModel> list() = 0;
  /// Fails where the files are not those of a model that runs here.
  virtual Result<ModelRoom> measure(const std::string& name) = 0;
  virtual Result<ServedModel> load(const LoadRequest& request) = 0;
  /// Fails with kInvalidArgument for what is not the name of a model.
  virtual Status pull(const PullRequest& request) = 0;
  /// Removes the files of a model that pull() made, and of no other: kInvalidArgument.
  virtual Status remove(const std::string& name) = 0;
};

}  // namespace moeflux::serve
