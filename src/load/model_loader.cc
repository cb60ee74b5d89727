#include "load/model_loader.h"

#include <algorithm>
#include <utility>

#include "backend/trace/trace_device.h"
#include "base/format.h"
#include "checkpoint/checksum.h"
#include "io/file.h"
#include "load/model_place.h"
#include "load/model_source.h"
#include "load/ngram_codes.h"
#include "load/score_head.h"
#include "model/config/quant_config.h"
#include "model/family/family.h"

namespace moeflux {
namespace {

struct Description {
  std::string place;  // as the user named it; empty: none, the tensors are in memory
  std::string config_text;
  std::string stated_type;  // model_type as the file has it
  const Family* family = nullptr;
  ModelSpec spec;
  QuantConfig quant;  // empty when quant_status is an error
  Status quant_status;
};

Result<Description> describe_config(std::string text, const ModelUse& use = {}) {
  MF_ASSIGN_OR_RETURN(Config config, Config::parse(text));
  config.set_use(use);
  Description description;
  description.config_text = std::move(text);
  description.stated_type = config.model_type();
  MF_ASSIGN_OR_RETURN(description.family, find_family(config));
  MF_ASSIGN_OR_RETURN(description.spec, description.family->read_spec(config));
  Result<QuantConfig> quant = QuantConfig::read(config);
  if (quant.ok()) {
    description.quant = std::move(quant).value();
  } else {
    description.quant_status = quant.error();
  }
  return description;
}

Result<Description> describe(const ModelSource& source, const ModelUse& use = {}) {
  MF_ASSIGN_OR_RETURN(std::string text, source.config());
  Result<Description> description = describe_config(std::move(text), use);
  if (description.ok()) return description;
  return Error(description.error().code(), source.in_its_names(description.error().message()));
}

/// A pack describes experts of one model only, and says of which.
Status check_pack_belongs(const TensorIndex& index, const Description& description) {
  if (!index.has_expert_pack()) return {};
  MF_ASSIGN_OR_RETURN(const uint64_t found, dense_fingerprint(index, description.config_text));
  if (found == index.packed_model()) return {};
  return make_error(ErrorCode::kCorruption,
                    "{} belongs to a model with fingerprint {}; config.json and the tensors beside "
                    "it have {}: pack the model again",
                    kExpertPackName, checksum_text(index.packed_model()), checksum_text(found));
}

Result<std::unique_ptr<LoadedModel>> build(const Description& description, TensorIndex index,
                                           Device& device, WeightStore::Options options,
                                           const LoadProgress& progress = {}) {
  MF_RETURN_IF_ERROR(check_pack_belongs(index, description));
  auto loaded = std::make_unique<LoadedModel>();
  loaded->config_json = description.config_text;
  loaded->index = std::move(index);
  if (loaded->index.has_canonical_names()) {
    options.scheme = {.prefixes = {""}, .renamed = {}, .ignored_prefixes = {}};
  } else {
    options.scheme = description.family->name_scheme(description.spec);
  }
  for (const std::string_view prefix : kScoreHeadPrefixes) {
    options.scheme.ignored_prefixes.emplace_back(prefix);
  }
  options.num_layers = description.spec.num_layers();
  const bool reads = options.loading == WeightLoading::kRead;
  const bool is_assumed = options.loading == WeightLoading::kAssume;
  const std::string enorm = formatted("layers.{}.enorm.weight", description.spec.num_text_layers());
  const std::string stored = rename_parts(enorm, options.scheme.renamed);
  WeightStore weights(loaded->index, description.quant, device, std::move(options));
  if (description.spec.draft_layers > 0 && !is_assumed && !weights.has(enorm)) {
    return make_error(ErrorCode::kNotFound,
                      "the checkpoint has no MTP layer, expected {} (see --draft-mtp)", stored);
  }
  loaded->model = description.family->create(description.spec, weights);
  if (const Status status = weights.finish(); !status.ok()) {
    if (description.place.empty()) return status.error();
    return make_error(status.error().code(), "{}: {}", description.place, status.error().message());
  }
  if (reads) MF_RETURN_IF_ERROR(weights.read(progress));
  loaded->experts = weights.take_expert_table();
  loaded->dense = weights.sizes();
  loaded->streamed = weights.take_streamed();
  loaded->far_networks = weights.take_far_networks();
  loaded->ngram_tables = weights.take_ngram_tables();
  loaded->modules = weights.modules();
  loaded->floats = weights.floats();
  loaded->expert_prefixes = weights.expert_prefixes();
  loaded->family = description.family;
  loaded->buffers = weights.take_buffers();
  return loaded;
}

/// Builds the model without memory for its weights first, so that their sizes are known.
Result<DensePlaces> plan_places(const Description& description, TensorIndex& index, Device& device,
                                const DensePlanner& plan) {
  const std::unique_ptr<Device> trace = make_trace_device(&device);
  MF_ASSIGN_OR_RETURN(
      const std::unique_ptr<LoadedModel> counted,
      build(description, std::move(index), *trace, {.loading = WeightLoading::kCheckOnly}));
  MF_ASSIGN_OR_RETURN(DensePlaces places, plan(*counted));
  index = std::move(counted->index);
  return places;
}

std::string assumption(const Description& description, const AssumedFormat& assumed) {
  if (assumed.type != nullptr) return "assumed a GGUF file of mostly " + assumed.to_string();
  if (!description.quant_status.ok()) {
    return formatted("assumed {}; what config.json says is not supported: {}", assumed.to_string(),
                     description.quant_status.error().message());
  }
  if (const std::optional<ModuleQuant> stated = description.quant.lookup(""); stated) {
    return formatted("assumed {} as config.json says", stated->to_string());
  }
  if (const std::string& method = description.quant.rule().method; !method.empty()) {
    return formatted("assumed {}; config.json's quant_method is {}", assumed.to_string(), method);
  }
  return "assumed " + assumed.to_string();
}

Result<std::unique_ptr<LoadedModel>> assume(const Description& description, Device& device,
                                            AssumedFormat assumed) {
  assumed.ties_embedding = description.spec.tie_word_embeddings;
  MF_ASSIGN_OR_RETURN(
      std::unique_ptr<LoadedModel> loaded,
      build(description, {}, device, {.loading = WeightLoading::kAssume, .assumed = assumed}));
  loaded->assumed_weights = assumption(description, assumed);
  return loaded;
}

}  // namespace

RouteTraceHeader LoadedModel::trace_header(std::string name) const {
  RouteTraceHeader header{.model = std::move(name),
                          .arch = spec().model_type,
                          .num_layers = static_cast<int32_t>(spec().layers.size())};
  for (const LayerSpec& layer : spec().layers) {
    header.top_k = std::max(header.top_k, static_cast<int32_t>(layer.moe.experts_per_token));
  }
  for (const ExpertLayer& layer : experts.layers) {
    header.num_experts = std::max(header.num_experts, layer.num_experts);
    header.expert_bytes.push_back(layer.num_experts == 0 ? 0 : layer.bytes_per_expert());
  }
  return header;
}

Status check_model_folder(const std::string& path) {
  MF_ASSIGN_OR_RETURN(const std::string place, find_model_place(path));
  for (const std::string& folder : {path, place}) {
    const bool packed = path_exists(formatted("{}/{}", folder, kExpertPackName));
    if (packed || !path_exists(formatted("{}/{}", folder, kExpertPackNotesName))) continue;
    return make_error(ErrorCode::kFailedPrecondition,
                      "{}: packing into this folder has not finished; the same moeflux command "
                      "goes on where it stopped",
                      folder);
  }
  return {};
}

Result<std::unique_ptr<LoadedModel>> load_model(std::string_view config_json, TensorIndex index,
                                                Device& device, WeightLoading loading) {
  MF_ASSIGN_OR_RETURN(const Description description, describe_config(std::string(config_json)));
  MF_RETURN_IF_ERROR(description.quant_status);
  return build(description, std::move(index), device, {.loading = loading});
}

Result<ModelSpec> read_model_spec(const std::string& directory) {
  MF_ASSIGN_OR_RETURN(const auto source, open_model_source(directory));
  MF_ASSIGN_OR_RETURN(Description description, describe(*source));
  return std::move(description.spec);
}

namespace {

/// Parts of a folder's checkpoint, divided by commas; GGUF files say it themselves.
Result<std::string> parts_left_out(const ModelSource& source, const Description& description,
                                   const ModelUse& use) {
  std::string list;
  MF_ASSIGN_OR_RETURN(const bool has_weights, source.holds_tensors());
  if (!has_weights) return list;
  MF_ASSIGN_OR_RETURN(const TensorIndex index, source.tensors(use));
  if (index.has_canonical_names()) return list;
  const NameScheme scheme = description.family->name_scheme(description.spec);
  // The first of a folder's draft layers, which is used.
  const std::string draft = formatted("layers.{}", description.spec.num_text_layers());
  for (const std::string& part : left_out_parts(index, scheme)) {
    if (use.draft_layer && (part.ends_with("mtp") || part.ends_with(draft))) continue;
    list += (list.empty() ? "" : ", ") + part;
  }
  return list;
}

}  // namespace

Result<std::vector<std::string>> opening_remarks(const std::string& path, const ModelUse& use) {
  MF_ASSIGN_OR_RETURN(const auto source, open_model_source(path));
  MF_ASSIGN_OR_RETURN(const Description description, describe(*source, use));
  const std::string file = source->in_its_names("config.json");
  std::vector<std::string> lines;
  std::string names;
  for (const std::string& key : description.spec.unread_keys) {
    names += (names.empty() ? "" : ", ") + key;
  }
  if (!names.empty()) {
    lines.push_back(
        formatted("{}: {} has keys that are not known and have no effect: {}", path, file, names));
  }
  const std::string& type = description.spec.model_type;
  if (type != description.stated_type) {
    lines.push_back(formatted("{}: {}: model_type {} is read as {}", path, file,
                              description.stated_type, type));
  }
  MF_ASSIGN_OR_RETURN(const std::string left_alone, source->left_alone(use));
  if (!left_alone.empty()) lines.push_back(formatted("{}: {}", file, left_alone));
  MF_ASSIGN_OR_RETURN(const std::string other_parts, parts_left_out(*source, description, use));
  if (!other_parts.empty()) {
    lines.push_back(
        formatted("{}: parts that are not of the text model are left out: {}", path, other_parts));
  }
  return lines;
}

Result<std::unique_ptr<LoadedModel>> load_model(const std::string& directory, Device& device,
                                                WeightLoading loading, const LoadProgress& progress,
                                                const DensePlanner& plan, const ModelUse& use) {
  MF_ASSIGN_OR_RETURN(const auto source, open_model_source(directory));
  MF_ASSIGN_OR_RETURN(Description description, describe(*source, use));
  description.place = directory;
  MF_RETURN_IF_ERROR(description.quant_status);
  MF_ASSIGN_OR_RETURN(TensorIndex index, source->tensors(use));
  DensePlaces places;
  if (plan) {
    MF_ASSIGN_OR_RETURN(places, plan_places(description, index, device, plan));
  }
  MF_ASSIGN_OR_RETURN(std::unique_ptr<LoadedModel> loaded,
                      build(description, std::move(index), device,
                            {.loading = loading, .places = std::move(places)}, progress));
  if (loading == WeightLoading::kRead) {
    MF_RETURN_IF_ERROR(set_token_codes(loaded->ngram_tables, *source));
  }
  return loaded;
}

Result<std::unique_ptr<LoadedModel>> assume_model(std::string_view config_json, Device& device,
                                                  const AssumedFormat& assumed,
                                                  const ModelUse& use) {
  MF_ASSIGN_OR_RETURN(const Description description,
                      describe_config(std::string(config_json), use));
  return assume(description, device, assumed);
}

Result<std::unique_ptr<LoadedModel>> describe_model(const std::string& directory, Device& device,
                                                    const AssumedFormat& assumed,
                                                    const ModelUse& use) {
  MF_ASSIGN_OR_RETURN(const auto source, open_model_source(directory));
  MF_ASSIGN_OR_RETURN(const Description description, describe(*source, use));
  MF_ASSIGN_OR_RETURN(const bool has_weights, source->holds_tensors());
  if (has_weights) return load_model(directory, device, WeightLoading::kCheckOnly, {}, {}, use);
  MF_ASSIGN_OR_RETURN(std::unique_ptr<LoadedModel> loaded, assume(description, device, assumed));
  loaded->assumed_weights += " (no *.safetensors in the folder)";
  return loaded;
}

}  // namespace moeflux
