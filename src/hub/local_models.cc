#include "hub/local_models.h"

#include <algorithm>
#include <utility>

#include "base/format.h"
#include "base/json.h"
#include "base/units.h"
#include "hub/repository.h"
#include "io/file.h"
#include "io/folder_list.h"
#include "io/part_file.h"

namespace moeflux::hub {
namespace {

constexpr std::string_view kBlobKind = "application/vnd.ollama.image.model";
constexpr std::string_view kLibrary = "registry.ollama.ai/library/";
constexpr uint64_t kManifestBytesMax = kMiB;
constexpr size_t kModelsMax = 4096;
constexpr int kManifestDepth = 4;

std::vector<std::string> folders_in(const std::string& path) {
  auto names = list_folders(path);
  return names.ok() ? std::move(names).value() : std::vector<std::string>();
}

std::string value_of(const Variables& variable, const char* name) {
  const char* const value = variable(name);
  return value == nullptr ? "" : value;
}

void add_sets(const Repository& repository, const std::string& folder, const std::string& source,
              std::vector<LocalModel>& models) {
  for (const FileSet& set : find_file_sets(repository)) {
    if (models.size() >= kModelsMax) return;
    LocalModel model{.source = source, .bytes = set.bytes};
    const std::string& file = set.files.front().name;
    if (set.is_gguf()) {
      model.format = set.label.empty() ? "GGUF" : formatted("GGUF {}", set.label);
      model.name = repository.name.empty()
                       ? file
                       : formatted("{}:{}", repository.name, set.label.empty() ? file : set.label);
      model.path = formatted("{}/{}", folder, file);
    } else {
      model.format = set.label;
      model.name = repository.name;
      model.path = folder;
    }
    models.push_back(std::move(model));
  }
}

// A folder of files as if a hub had them.
void add_folder(const std::string& name, const std::string& folder, const std::string& source,
                std::vector<LocalModel>& models) {
  const auto files = list_files(folder);
  if (!files.ok()) return;
  Repository repository{.name = name};
  for (const std::string& file : *files) {
    const auto opened = open_file(formatted("{}/{}", folder, file));
    if (opened.ok()) repository.files.push_back({file, (*opened)->size_bytes(), ""});
  }
  add_sets(repository, folder, source, models);
}

void add_publishers(const std::string& root, std::vector<LocalModel>& models) {
  for (const std::string& publisher : folders_in(root)) {
    const std::string folder = formatted("{}/{}", root, publisher);
    for (const std::string& model : folders_in(folder)) {
      add_folder(formatted("{}/{}", publisher, model), formatted("{}/{}", folder, model),
                 "LM Studio", models);
    }
  }
}

// manifests/HOST/NAMESPACE/MODEL/TAG name blobs by their digests.
void add_manifests(const std::string& root, const std::string& below, int depth,
                   std::vector<LocalModel>& models) {
  const std::string folder = formatted("{}/manifests{}{}", root, below.empty() ? "" : "/", below);
  const auto entries = list_folder(folder);
  if (!entries.ok()) return;
  for (const FolderEntry& entry : *entries) {
    const std::string place = below.empty() ? entry.name : formatted("{}/{}", below, entry.name);
    if (entry.kind == FolderEntry::Kind::kFolder && depth < kManifestDepth) {
      add_manifests(root, place, depth + 1, models);
    }
    if (entry.kind != FolderEntry::Kind::kFile || models.size() >= kModelsMax) continue;
    const std::string path = formatted("{}/{}", folder, entry.name);
    const auto text = read_text_file(path, kManifestBytesMax);
    if (!text.ok()) continue;
    const auto json = parse_json(*text, path);
    if (!json.ok() || !json->is_object() || !json->contains("layers")) continue;
    for (const Json& layer : (*json)["layers"]) {
      if (!layer.is_object() || layer.value("mediaType", Json()) != kBlobKind) continue;
      const auto bytes = json_int(layer.value("size", Json()), "size");
      LocalModel model{.path = path, .source = "Ollama", .format = "GGUF"};
      model.name = place.starts_with(kLibrary) ? place.substr(kLibrary.size()) : place;
      if (const size_t slash = model.name.rfind('/'); slash != std::string::npos) {
        model.name[slash] = ':';
      }
      model.bytes = bytes.ok() && *bytes > 0 ? static_cast<uint64_t>(*bytes) : 0;
      models.push_back(std::move(model));
      break;
    }
  }
}

}  // namespace

std::vector<LocalModel> find_local_models(const HubCache& cache, const Variables& variable) {
  std::vector<LocalModel> models;
  for (const std::string& name : cache.repositories()) {
    auto found = cache.snapshot(name, "main");
    if (!found.ok()) {
      const auto commits = folders_in(cache.snapshot_folder(name, ""));
      if (commits.size() == 1) found = cache.snapshot(name, commits.front());
    }
    if (!found.ok()) continue;
    add_sets(*found, cache.snapshot_folder(name, found->commit), "hub", models);
  }
  const std::string home = value_of(variable, "HOME");
  for (const std::string root : {"/.lmstudio/models", "/.cache/lm-studio/models"}) {
    add_publishers(home + root, models);
  }
  const std::string ollama = value_of(variable, "OLLAMA_MODELS");
  if (!ollama.empty()) {
    add_manifests(ollama, "", 0, models);
  } else {
    add_manifests(home + "/.ollama/models", "", 0, models);
    add_manifests("/usr/share/ollama/.ollama/models", "", 0, models);
  }
  std::string flat = value_of(variable, "LLAMA_CACHE");
  if (flat.empty()) {
    const std::string caches = value_of(variable, "XDG_CACHE_HOME");
    flat = (caches.empty() ? home + "/.cache" : caches) + "/llama.cpp";
  }
  add_folder("", flat, "llama.cpp", models);
  return models;
}

}  // namespace moeflux::hub
