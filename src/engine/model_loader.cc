#include "engine/model_loader.h"

#include <utility>

#include "base/format.h"
#include "base/units.h"
#include "model/config.h"
#include "model/family.h"
#include "model/quant_config.h"

namespace moeflux {
namespace {

constexpr uint64_t kConfigBytesMax =
    64 * kMiB;  // the largest public ones, with per-module entries, reach 1 MiB

struct Description {
  const Family* family = nullptr;
  ModelSpec spec;
  QuantConfig quant;
};

Result<Description> describe(const std::string& directory) {
  if (!is_directory(directory)) {
    return make_error(ErrorCode::kNotFound, "{}: {}", directory,
                      path_exists(directory) ? "not a folder; a model is a folder with config.json"
                                             : "no such folder");
  }
  MF_ASSIGN_OR_RETURN(const std::string text,
                      read_text_file(directory + "/config.json", kConfigBytesMax));
  MF_ASSIGN_OR_RETURN(Config config, Config::parse(text));
  Description description;
  MF_ASSIGN_OR_RETURN(description.family, find_family(config.model_type()));
  MF_ASSIGN_OR_RETURN(description.spec, description.family->read_spec(config));
  MF_ASSIGN_OR_RETURN(description.quant, QuantConfig::read(config));
  return description;
}

}  // namespace

Result<ModelSpec> read_model_spec(const std::string& directory) {
  MF_ASSIGN_OR_RETURN(Description description, describe(directory));
  return std::move(description.spec);
}

Result<std::unique_ptr<LoadedModel>> load_model(const std::string& directory, Device& device,
                                                WeightLoading loading) {
  MF_ASSIGN_OR_RETURN(const Description description, describe(directory));
  MF_ASSIGN_OR_RETURN(TensorIndex index, TensorIndex::open(directory));
  auto loaded = std::make_unique<LoadedModel>(LoadedModel{std::move(index), {}, {}, {}});
  WeightStore weights(loaded->index, description.quant, device,
                      {.scheme = description.family->name_scheme(description.spec),
                       .num_layers = description.spec.num_layers(),
                       .loading = loading});
  loaded->model = description.family->create(description.spec, weights);
  MF_RETURN_IF_ERROR(weights.finish());
  loaded->experts = weights.take_expert_table();
  loaded->dense_bytes = weights.resident_bytes();
  loaded->dense_parameters = weights.resident_parameters();
  loaded->buffers = weights.take_buffers();
  return loaded;
}

}  // namespace moeflux
