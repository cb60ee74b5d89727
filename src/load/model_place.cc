#include "load/model_place.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/format.h"
#include "base/json.h"
#include "base/units.h"
#include "checkpoint/foreign_file.h"
#include "checkpoint/gguf.h"
#include "checkpoint/shard_choice.h"
#include "io/file.h"
#include "io/folder_list.h"
#include "io/output_folder.h"
#include "io/path_text.h"

namespace moeflux {
namespace {

constexpr int kDepthMax = 3;         // LM Studio has models in models/PUBLISHER/MODEL
constexpr size_t kFoldersMax = 512;  // that are looked at
constexpr size_t kShownMax = 12;
constexpr uint64_t kManifestBytesMax = kMiB;
constexpr uint64_t kRefBytesMax = 4096;
constexpr std::string_view kOllamaModel = "application/vnd.ollama.image.model";

std::string place_inside(const std::string& folder, std::string_view name) {
  return formatted("{}{}{}", folder, folder.ends_with('/') ? "" : "/", name);
}

std::string without_slashes(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

std::vector<std::string> names_in(const std::string& folder, bool files) {
  const auto names = files ? list_files(folder) : list_folders(folder);
  return names.ok() ? *names : std::vector<std::string>();
}

bool is_model_file(const std::string& name) {
  return (name.ends_with(".gguf") || name.ends_with(".safetensors")) && !is_beside_model(name);
}

/// True of folders that are opened as they are.
bool holds_model(const std::string& folder) {
  const std::vector<std::string> names = names_in(folder, true);
  return std::any_of(names.begin(), names.end(), [](const std::string& name) {
    return name == "config.json" || is_model_file(name);
  });
}

std::string listed(std::vector<std::string> places, const std::string& below) {
  const std::string begin = place_inside(below, "");
  for (std::string& place : places) {
    if (place.starts_with(begin)) place.erase(0, begin.size());
  }
  return list_some(places, kShownMax);
}

/// The snapshot of a model in Hugging Face's cache: MODEL/snapshots/COMMIT. Nullopt: no such
/// folder.
std::optional<Result<std::string>> find_snapshot(const std::string& root) {
  const std::string snapshots = place_inside(root, "snapshots");
  const bool is_cached = file_name_of(root).starts_with("models--");
  if (!is_directory(snapshots)) {
    if (!is_cached) return std::nullopt;
    return Result<std::string>(make_error(
        ErrorCode::kNotFound,
        "{} is a model of Hugging Face's cache without a snapshot: a download that has not begun",
        root));
  }
  const auto main = read_text_file(place_inside(root, "refs/main"), kRefBytesMax);
  if (main.ok()) {
    const std::string commit = main->substr(0, main->find_first_of(" \r\n"));
    const Result<std::string> place = join_inside(snapshots, commit);
    if (place.ok() && is_directory(*place)) return *place;
  }
  std::vector<std::string> found;
  for (const std::string& name : names_in(snapshots, false)) {
    found.push_back(place_inside(snapshots, name));
  }
  if (found.size() == 1) return Result<std::string>(found.front());
  return Result<std::string>(make_error(
      found.empty() ? ErrorCode::kNotFound : ErrorCode::kInvalidArgument,
      "{} is a model of Hugging Face's cache with {} snapshots, of which refs/main names none{}{}",
      root, found.size(), found.empty() ? "" : "; name one of them: ", listed(found, root)));
}

/// The GGUF file that a manifest of Ollama's names. Nullopt: no manifest.
std::optional<Result<std::string>> read_manifest(const std::string& path) {
  const auto text = read_text_file(path, kManifestBytesMax);
  if (!text.ok() || !text->starts_with('{')) return std::nullopt;
  const auto json = parse_json(*text, path);
  if (!json.ok() || !json->is_object() || !json->contains("layers")) return std::nullopt;
  std::vector<std::string> digests;
  for (const Json& layer : (*json)["layers"]) {
    const auto text_of = [&](const char* key) {
      const bool is_there = layer.is_object() && layer.contains(key) && layer[key].is_string();
      return is_there ? layer[key].get<std::string>() : std::string();
    };
    if (text_of("mediaType") == kOllamaModel) digests.push_back(text_of("digest"));
  }
  std::string root = folder_of(path);
  for (int i = 0; i < 6 && !is_directory(place_inside(root, "blobs")); ++i) root = folder_of(root);
  if (digests.size() != 1 || !is_directory(place_inside(root, "blobs"))) {
    return Result<std::string>(make_error(
        ErrorCode::kUnsupported,
        "{} is an Ollama manifest with {} GGUF files{}, expected one in its folder of blobs", path,
        digests.size(), is_directory(place_inside(root, "blobs")) ? "" : " and no blobs above it"));
  }
  std::string name = digests.front();
  std::replace(name.begin(), name.end(), ':', '-');
  const Result<std::string> blob = join_inside(place_inside(root, "blobs"), name);
  if (!blob.ok()) return Result<std::string>(blob.error().with_context(path));
  if (path_exists(*blob)) return *blob;
  return Result<std::string>(make_error(
      ErrorCode::kNotFound,
      "{} names the blob {}, which is not there: a download that has not finished", path, *blob));
}

void collect_files(const std::string& folder, int depth, std::vector<std::string>& found) {
  for (const std::string& name : names_in(folder, true)) {
    if (!name.starts_with('.')) found.push_back(place_inside(folder, name));
  }
  if (depth == 0 || found.size() > kFoldersMax) return;
  for (const std::string& name : names_in(folder, false)) {
    collect_files(place_inside(folder, name), depth - 1, found);
  }
}

/// A folder of Ollama's: manifests/HOST/NAMESPACE/MODEL/TAG beside blobs.
std::optional<Result<std::string>> find_in_ollama(const std::string& root) {
  const std::string manifests = place_inside(root, "manifests");
  if (!is_directory(manifests) || !is_directory(place_inside(root, "blobs"))) return std::nullopt;
  std::vector<std::string> found;
  collect_files(manifests, 4, found);
  if (found.size() == 1) {
    auto only = read_manifest(found.front());
    if (only) return only;
  }
  if (found.empty()) {
    return Result<std::string>(
        make_error(ErrorCode::kNotFound, "{} is Ollama's folder of models and has no model", root));
  }
  return Result<std::string>(
      make_error(ErrorCode::kInvalidArgument,
                 "{} is Ollama's folder of models and has {}; name the manifest of one: {}", root,
                 found.size(), listed(found, root)));
}

/// Ollama's blobs by themselves: the only one that is a model.
std::optional<Result<std::string>> find_in_blobs(const std::string& folder) {
  std::vector<std::string> found;
  for (const std::string& name : names_in(folder, true)) {
    if (!name.starts_with("sha256")) return std::nullopt;
    if (gguf::begins_with_magic(place_inside(folder, name)))
      found.push_back(place_inside(folder, name));
  }
  if (found.empty()) return std::nullopt;
  if (found.size() == 1) return Result<std::string>(found.front());
  return Result<std::string>(
      make_error(ErrorCode::kInvalidArgument,
                 "{} holds Ollama's blobs, {} of them GGUF files; name one, or its manifest "
                 "in the folder manifests beside it: {}",
                 folder, found.size(), listed(found, folder)));
}

/// The folders below that hold a model, and files that stand for one.
void collect_models(const std::string& folder, int depth, size_t& seen,
                    std::vector<std::string>& found) {
  if (++seen > kFoldersMax) return;
  if (holds_model(folder)) return found.push_back(folder);
  if (const auto snapshot = find_snapshot(folder)) {
    if (snapshot->ok()) collect_models(**snapshot, depth, seen, found);
    return;
  }
  if (depth == 0) return;
  for (const std::string& name : names_in(folder, false)) {
    if (name.starts_with('.') || name.starts_with("datasets--")) continue;
    collect_models(place_inside(folder, name), depth - 1, seen, found);
  }
}

Result<std::string> find_in_folder(const std::string& path) {
  if (holds_model(path)) return path;
  for (const std::string& root : {path, place_inside(path, "models")}) {
    if (auto place = find_in_ollama(root)) return std::move(*place);
  }
  if (auto place = find_snapshot(path)) {
    return place->ok() ? find_in_folder(**place) : std::move(*place);
  }
  if (auto place = find_in_blobs(path)) return std::move(*place);
  const std::vector<std::string> files = names_in(path, true);
  const bool has_text = std::any_of(files.begin(), files.end(), [](const std::string& name) {
    return name.starts_with("tokenizer");
  });
  if (has_text) return path;
  std::vector<std::string> found;
  size_t seen = 0;
  collect_models(path, kDepthMax, seen, found);
  if (found.empty() || (found.size() == 1 && found.front() == path)) return path;
  if (found.size() == 1) return find_in_folder(found.front());
  return make_error(ErrorCode::kInvalidArgument,
                    "{} holds folders with {} models, expected one; name one of them: {}", path,
                    found.size(), listed(found, path));
}

/// The name of a blob of Hugging Face's cache in a snapshot, which says what it is a part of.
std::optional<std::string> find_link(const std::string& blob) {
  const std::string blobs = folder_of(blob);
  if (file_name_of(blobs) != "blobs") return std::nullopt;
  const auto real = real_path(blob);
  const std::string snapshots = place_inside(folder_of(blobs), "snapshots");
  if (!real.ok() || !is_directory(snapshots)) return std::nullopt;
  for (const std::string& commit : names_in(snapshots, false)) {
    std::vector<std::string> files;
    collect_files(place_inside(snapshots, commit), 2, files);
    for (std::string& file : files) {
      const auto own = real_path(file);
      if (own.ok() && *own == *real) return std::move(file);
    }
  }
  return std::nullopt;
}

bool is_part_of_folder(std::string_view name) {
  return name == "config.json" || name.ends_with(".safetensors.index.json") ||
         (name.ends_with(".safetensors") && !is_beside_model(name));
}

Result<std::string> find_from_file(const std::string& path) {
  if (gguf::begins_with_magic(path)) return find_link(path).value_or(path);
  const std::string folder = folder_of(path);
  if (is_part_of_folder(file_name_of(path)) && path_exists(place_inside(folder, "config.json"))) {
    return folder;
  }
  if (const auto link = find_link(path); link && is_part_of_folder(file_name_of(*link))) {
    return find_from_file(*link);
  }
  if (auto place = read_manifest(path)) return std::move(*place);
  const auto file = open_file(path);
  if (!file.ok()) return file.error();
  std::string kind = foreign_kind(**file);
  if (kind.empty() && file_name_of(path).ends_with(".safetensors")) {
    kind = "a safetensors file without the model's config.json beside it: take the whole folder";
  }
  if (kind.empty()) kind = "not a folder with config.json and weights, nor a GGUF file";
  return make_error(ErrorCode::kNotFound, "{} is {}", path, kind);
}

}  // namespace

Result<std::string> find_model_place(const std::string& path) {
  if (is_directory(path)) return find_in_folder(without_slashes(path));
  if (path_exists(path)) return find_from_file(path);
  return make_error(ErrorCode::kNotFound, "{}: no such folder or file", path);
}

std::string describe_folder(const std::string& path) {
  struct Known {
    std::string_view file;
    std::string_view text;
  };
  constexpr std::array<Known, 6> kKnown = {{
      {"adapter_config.json", "an adapter, not a model: merge it into its base model"},
      {"model_index.json", "a pipeline of image models, not a language model"},
      {"params.json",
       "a model in its publisher's own format: take the folder with config.json and "
       "safetensors files, which Hugging Face has"},
      {"pytorch_model.bin", "a PyTorch checkpoint without config.json"},
      {"preprocessor_config.json", "files of a processor without config.json"},
      {"generation_config.json", "files of a model without config.json: an unfinished download?"},
  }};
  for (const Known& known : kKnown) {
    if (path_exists(place_inside(path, known.file))) return std::string(known.text);
  }
  std::vector<std::string> names = names_in(path, true);
  const bool only_beside =
      !names.empty() && std::all_of(names.begin(), names.end(), is_beside_model);
  if (only_beside) {
    return formatted("files that accompany a model, without a model: {}", listed(names, path));
  }
  if (names.empty() && names_in(path, false).empty()) return "an empty folder";
  return {};
}

}  // namespace moeflux
