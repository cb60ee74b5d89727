#include "experts/tiers/usage_profile.h"

#include <algorithm>

#include "base/format.h"
#include "base/json.h"
#include "base/units.h"
#include "io/file.h"

namespace moeflux {
namespace {

constexpr std::string_view kFormat = "moeflux usage profile v1";
constexpr uint64_t kProfileBytesMax = 64 * kMiB;
constexpr size_t kProfileLayersMax = 4096;
constexpr size_t kProfileExpertsMax = 65536;
/// A profile weighs as much as so many tokens of prompt: a real prompt soon outweighs it.
constexpr double kSeedTokens = 16.0;
/// The same in near slots, whose decay of 0.97 remembers 33.
constexpr double kNearSeedTokens = 30.0;

Error corrupt(std::string_view what, std::string_view found, std::string_view expected) {
  return make_error(ErrorCode::kCorruption, "usage profile: {}: found {}, expected {}", what, found,
                    expected);
}

Result<const Json*> member(const Json& object, const char* name) {
  const auto found = object.find(name);
  if (found == object.end()) return corrupt(name, "nothing", "a value");
  return &*found;
}

Result<uint64_t> parse_count(const Json& value, std::string_view what) {
  MF_ASSIGN_OR_RETURN(const int64_t count, json_int(value, what));
  if (count < 0) return corrupt(what, json_excerpt(value), "0 or more");
  return static_cast<uint64_t>(count);
}

Result<std::vector<uint64_t>> parse_layer(const Json& value, size_t layer) {
  const std::string what = formatted("layer {}", layer);
  if (!value.is_array() || value.size() > kProfileExpertsMax) {
    return corrupt(what, json_excerpt(value),
                   formatted("a list of at most {} counts", kProfileExpertsMax));
  }
  std::vector<uint64_t> uses;
  for (const Json& count : value) {
    MF_ASSIGN_OR_RETURN(const uint64_t parsed, parse_count(count, what));
    uses.push_back(parsed);
  }
  return uses;
}

}  // namespace

Result<UsageProfile> UsageProfile::parse(std::string_view text) {
  MF_ASSIGN_OR_RETURN(const Json json, parse_json(text, "usage profile"));
  if (!json.is_object()) return corrupt("file", json_excerpt(json), "an object");
  MF_ASSIGN_OR_RETURN(const Json* kind, member(json, "format"));
  if (*kind != kFormat) return corrupt("format", json_excerpt(*kind), formatted("\"{}\"", kFormat));
  UsageProfile profile;
  MF_ASSIGN_OR_RETURN(const Json* model, member(json, "model"));
  if (!model->is_string()) return corrupt("model", json_excerpt(*model), "a name");
  profile.model = model->get<std::string>();
  MF_ASSIGN_OR_RETURN(const Json* tokens, member(json, "tokens"));
  MF_ASSIGN_OR_RETURN(profile.tokens, parse_count(*tokens, "tokens"));
  MF_ASSIGN_OR_RETURN(const Json* layers, member(json, "layers"));
  if (!layers->is_array() || layers->size() > kProfileLayersMax) {
    return corrupt("layers", json_excerpt(*layers),
                   formatted("a list of at most {}", kProfileLayersMax));
  }
  for (const Json& layer : *layers) {
    MF_ASSIGN_OR_RETURN(std::vector<uint64_t> uses, parse_layer(layer, profile.layers.size()));
    profile.layers.push_back(std::move(uses));
  }
  return profile;
}

Result<UsageProfile> UsageProfile::read(const std::string& path) {
  MF_ASSIGN_OR_RETURN(const std::string text, read_text_file(path, kProfileBytesMax));
  Result<UsageProfile> profile = parse(text);
  if (!profile.ok()) return profile.error().with_context(path);
  return profile;
}

std::string UsageProfile::to_json() const {
  const Json json{{"format", kFormat}, {"model", model}, {"tokens", tokens}, {"layers", layers}};
  // Names come from folders, which need not be UTF-8.
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

Status UsageProfile::write(const std::string& path) const {
  const std::string text = to_json();
  MF_ASSIGN_OR_RETURN(const auto file, AtomicFileWriter::create(path));
  MF_RETURN_IF_ERROR(file->write(std::as_bytes(std::span(text))));
  return file->commit();
}

void UsageProfile::add(const ExpertShape& shape, std::span<const uint64_t> uses,
                       uint64_t more_tokens) {
  layers.resize(std::max(layers.size(), static_cast<size_t>(shape.num_layers)));
  for (int32_t l = 0; l < shape.num_layers; ++l) {
    std::vector<uint64_t>& layer = layers[static_cast<size_t>(l)];
    layer.resize(std::max(layer.size(), static_cast<size_t>(shape.num_experts)));
    for (int32_t e = 0; e < shape.num_experts; ++e) {
      layer[static_cast<size_t>(e)] += uses[shape.index_of({LayerId{l}, ExpertId{e}})];
    }
  }
  tokens += more_tokens;
}

void UsageProfile::add(const ExpertCache& cache) {
  add(cache.shape(), cache.stats().uses, cache.stats().tokens);
}

void UsageProfile::add(const NearPlacement& placement) {
  add(placement.shape(), placement.uses(), placement.tokens());
}

Status UsageProfile::check(const ExpertShape& shape) const {
  size_t widest = 0;
  for (const auto& layer : layers) widest = std::max(widest, layer.size());
  if (layers.size() == static_cast<size_t>(shape.num_layers) &&
      widest <= static_cast<size_t>(shape.num_experts)) {
    return {};
  }
  return make_error(ErrorCode::kInvalidArgument,
                    "usage profile of {}: {} layers of {} experts, the model has {} of {}", model,
                    layers.size(), widest, shape.num_layers, shape.num_experts);
}

void UsageProfile::seed_layers(
    double seed_tokens,
    const std::function<void(LayerId, std::span<const double> uses)>& seed_layer) const {
  if (is_empty()) return;
  const double scale = seed_tokens / static_cast<double>(tokens);
  std::vector<double> uses;
  for (size_t l = 0; l < layers.size(); ++l) {
    if (layers[l].empty()) continue;
    uses.clear();
    for (const uint64_t count : layers[l]) uses.push_back(static_cast<double>(count) * scale);
    seed_layer(LayerId{static_cast<int32_t>(l)}, uses);
  }
}

void UsageProfile::seed(ExpertCache& cache) const {
  seed_layers(kSeedTokens, [&](LayerId layer, std::span<const double> uses) {
    cache.seed(layer, uses, kSeedTokens);
  });
}

void UsageProfile::seed(NearPlacement& placement) const {
  seed_layers(kNearSeedTokens,
              [&](LayerId layer, std::span<const double> uses) { placement.seed(layer, uses); });
}

}  // namespace moeflux
