#include "convert/pack_source.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "base/units.h"
#include "convert/written_folder.h"
#include "io/file.h"
#include "io/folder_list.h"
#include "io/output_folder.h"
#include "load/model_source.h"

namespace moeflux {
namespace {

constexpr uint64_t kSideFileBytesMax = 256 * kMiB;  // the largest tokenizers have 40
constexpr size_t kModuleFoldersMax = 16;
constexpr std::array<std::string_view, 7> kSideEndings = {".json",     ".jinja", ".txt", ".model",
                                                          ".tiktoken", ".md",    ".bpe"};

bool is_side_file(const std::string& name) {
  if (name == "config.json" || name.ends_with(".safetensors.index.json")) return false;
  if (name == kExpertPackName || name == kExpertPackNotesName || name == kWrittenFilesName) {
    return false;
  }
  if (name.starts_with("LICENSE") || name.starts_with("NOTICE")) return true;
  return std::any_of(kSideEndings.begin(), kSideEndings.end(),
                     [&](std::string_view ending) { return name.ends_with(ending); });
}

// Each module of sentence-transformers may have a folder with a config.
Status add_module_configs(PackSource& source) {
  if (!path_exists(source.directory + "/modules.json")) return {};
  MF_ASSIGN_OR_RETURN(const std::vector<std::string> folders, list_folders(source.directory));
  size_t added = 0;
  for (const std::string& folder : folders) {
    const std::string name = folder + "/config.json";
    const std::string path = source.directory + "/" + name;
    if (folder.starts_with('.') || !path_exists(path) || added == kModuleFoldersMax) continue;
    MF_ASSIGN_OR_RETURN(std::string contents, read_text_file(path, kSideFileBytesMax));
    source.side_files.push_back({name, std::move(contents)});
    ++added;
  }
  return {};
}

}  // namespace

Result<PackSource> open_pack_source(const std::string& directory) {
  PackSource source;
  source.name = directory;
  MF_ASSIGN_OR_RETURN(const auto model, open_model_source(directory));
  source.directory = model->place();
  MF_ASSIGN_OR_RETURN(source.config_json, model->config());
  MF_ASSIGN_OR_RETURN(source.index, model->tensors());
  MF_ASSIGN_OR_RETURN(std::optional<std::string> keys, model->keys_without_tensors());
  if (keys) {
    source.side_files.push_back({std::string(kGgufKeysName), std::move(*keys)});
    return source;
  }
  MF_ASSIGN_OR_RETURN(const std::vector<std::string> names, list_files(source.directory));
  for (const std::string& name : names) {
    if (!is_side_file(name) || name.starts_with('.')) continue;
    MF_ASSIGN_OR_RETURN(std::string contents,
                        read_text_file(source.directory + "/" + name, kSideFileBytesMax));
    source.side_files.push_back({name, std::move(contents)});
  }
  MF_RETURN_IF_ERROR(add_module_configs(source));
  return source;
}

Status write_side_files(const std::string& directory, std::span<const SideFile> files) {
  for (const SideFile& file : files) {
    const size_t slash = file.name.rfind('/');
    if (slash != std::string::npos) {
      MF_RETURN_IF_ERROR(create_folder(directory + "/" + file.name.substr(0, slash)));
    }
    MF_RETURN_IF_ERROR(write_text_file(directory + "/" + file.name, file.contents));
  }
  return {};
}

}  // namespace moeflux
