#include "hub/repository.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "base/ascii.h"
#include "base/format.h"
#include "base/hub_name.h"
#include "base/json.h"
#include "base/units.h"
#include "checkpoint/foreign_file.h"
#include "checkpoint/shard_choice.h"

namespace moeflux::hub {
namespace {

constexpr size_t kFilesMax = 100'000;
constexpr int64_t kFileBytesMax = int64_t{1} << 50;
constexpr size_t kNameBytesMax = 1024;
constexpr size_t kPartBytesMax = 255;  // of a name in a file system
constexpr size_t kShownMax = 24;

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_word(char c) { return is_digit(c) || (lower_case(c) >= 'a' && lower_case(c) <= 'z'); }

bool is_hex(std::string_view text, size_t digits) {
  return text.size() == digits &&
         std::ranges::all_of(text, [](char c) { return is_digit(c) || (c >= 'a' && c <= 'f'); });
}

// As the hub has them: letters, digits, '-', '_' and '.', neither "--" nor "..".
bool is_name(std::string_view text) {
  return !text.empty() && text.size() <= 96 && is_word(text.front()) &&
         text.find("--") == std::string_view::npos && text.find("..") == std::string_view::npos &&
         std::ranges::all_of(text,
                             [](char c) { return is_word(c) || c == '-' || c == '_' || c == '.'; });
}

std::string_view base_name(std::string_view name) { return name.substr(name.rfind('/') + 1); }

// The part of a split and the number of parts: NAME-00002-of-00003.gguf.
struct Split {
  std::string stem;
  int index = 1;
  int count = 1;
};

std::optional<Split> split_of(std::string_view name) {
  constexpr std::string_view kShape = "-00001-of-00001.gguf";
  if (name.size() <= kShape.size()) return std::nullopt;
  const std::string_view tail = name.substr(name.size() - kShape.size());
  for (size_t i = 0; i < kShape.size(); ++i) {
    if (is_digit(kShape[i]) ? !is_digit(tail[i]) : tail[i] != kShape[i]) return std::nullopt;
  }
  Split split{.stem = std::string(name.substr(0, name.size() - kShape.size()))};
  std::from_chars(tail.data() + 1, tail.data() + 6, split.index);
  std::from_chars(tail.data() + 10, tail.data() + 15, split.count);
  return split;
}

std::string without_ending(std::string_view name) {
  if (const auto split = split_of(name)) return split->stem;
  return std::string(name.substr(0, name.rfind('.')));
}

// "1_Pooling/config.json": modules of sentence-transformers are numbered.
bool is_module_config(std::string_view name) {
  const size_t slash = name.find('/');
  if (slash == std::string_view::npos || name.substr(slash) != "/config.json") return false;
  const size_t digits = name.find_first_not_of("0123456789");
  return digits > 0 && name[digits] == '_';
}

// The files that a model of safetensors needs besides its weights.
bool is_beside_weights(std::string_view name) {
  if (name.starts_with("additional_chat_templates/")) return name.ends_with(".jinja");
  if (is_module_config(name)) return true;
  if (name.find('/') != std::string_view::npos) return false;
  constexpr std::array<std::string_view, 4> kBegins = {"tokenizer", "chat_template", "tiktoken",
                                                       "vocab"};
  constexpr std::array<std::string_view, 10> kNames = {
      "config.json",       "generation_config.json",
      "merges.txt",        "special_tokens_map.json",
      "added_tokens.json", "model.safetensors.index.json",
      "modules.json",      "config_sentence_transformers.json",
      "mtp.safetensors",   "hf_quant_config.json"};
  return std::ranges::find(kNames, name) != kNames.end() ||
         std::ranges::any_of(kBegins,
                             [&](std::string_view begin) { return name.starts_with(begin); });
}

void finish(FileSet& set) {
  for (const RemoteFile& file : set.files) set.bytes += file.size_bytes;
  set.bits = label_bits(set.label);
}

void add_gguf_sets(const Repository& repository, std::vector<FileSet>& sets) {
  std::map<std::string, std::vector<std::pair<int, const RemoteFile*>>> splits;
  for (const RemoteFile& file : repository.files) {
    if (!lower_case(file.name).ends_with(".gguf") || is_beside_model(base_name(file.name)))
      continue;
    const auto split = split_of(file.name);
    if (split) {
      splits[formatted("{}-{}", split->stem, split->count)].emplace_back(split->index, &file);
      continue;
    }
    sets.push_back({.label = quant_label(file.name), .files = {file}});
    finish(sets.back());
  }
  for (auto& [stem, parts] : splits) {
    std::ranges::sort(parts);
    const int count = split_of(parts.front().second->name)->count;
    bool is_whole = static_cast<int>(parts.size()) == count;
    FileSet set{.label = quant_label(parts.front().second->name)};
    for (size_t i = 0; i < parts.size(); ++i) {
      is_whole = is_whole && parts[i].first == static_cast<int>(i) + 1;
      set.files.push_back(*parts[i].second);
    }
    if (!is_whole) continue;  // an upload that has not finished
    finish(set);
    sets.push_back(std::move(set));
  }
}

void add_safetensors_set(const Repository& repository, std::vector<FileSet>& sets) {
  FileSet set{.label = "safetensors"};
  std::vector<std::string> weights;
  bool has_config = false;
  bool has_index = false;
  for (const RemoteFile& file : repository.files) {
    if (is_beside_weights(file.name)) {
      set.files.push_back(file);
      has_config = has_config || file.name == "config.json";
      has_index = has_index || file.name == "model.safetensors.index.json";
    } else if (file.name.ends_with(".safetensors") && file.name.find('/') == std::string::npos &&
               !file.name.starts_with("consolidated") && !is_beside_model(file.name)) {
      weights.push_back(file.name);
    }
  }
  if (weights.empty() || !has_config) return;
  if (const auto chosen = choose_shards(weights); !has_index && chosen.ok()) weights = *chosen;
  const std::set<std::string> wanted(weights.begin(), weights.end());
  for (const RemoteFile& file : repository.files) {
    if (wanted.contains(file.name)) set.files.push_back(file);
  }
  finish(set);
  sets.push_back(std::move(set));
}

std::string listed(const std::vector<FileSet>& sets) {
  std::vector<std::string> names;
  for (const FileSet& set : sets) {
    names.push_back(formatted("{} ({})", set.label.empty() ? set.files.front().name : set.label,
                              format_bytes(set.bytes)));
  }
  return list_some(names, kShownMax);
}

Result<std::string> text_at(const Json& json, const char* key, std::string_view what) {
  if (!json.is_object() || !json.contains(key) || !json[key].is_string()) {
    return make_error(ErrorCode::kCorruption, "{}: no text '{}'", what, key);
  }
  return json[key].get<std::string>();
}

Result<RemoteFile> parse_file(const Json& json, std::string_view what) {
  RemoteFile file;
  MF_ASSIGN_OR_RETURN(file.name, text_at(json, "rfilename", what));
  if (const Status name = check_file_name(file.name); !name.ok()) {
    return name.error().with_context(what);
  }
  if (!json.contains("size")) {
    return make_error(ErrorCode::kCorruption, "{}: '{}' has no size", what, file.name);
  }
  MF_ASSIGN_OR_RETURN(const int64_t size, json_int(json["size"], file.name));
  if (size < 0 || size > kFileBytesMax) {
    return make_error(ErrorCode::kCorruption, "{}: '{}' has {} bytes, expected 0 to {}", what,
                      file.name, size, kFileBytesMax);
  }
  file.size_bytes = static_cast<uint64_t>(size);
  const bool is_large = json.contains("lfs") && json["lfs"].is_object();
  MF_ASSIGN_OR_RETURN(file.hash, is_large ? text_at(json["lfs"], "sha256", file.name)
                                          : text_at(json, "blobId", file.name));
  if (!is_hex(file.hash, is_large ? 64 : 40)) {
    return make_error(ErrorCode::kCorruption, "{}: the hash of '{}' is {}, expected {} digits",
                      what, file.name, json_excerpt(file.hash), is_large ? 64 : 40);
  }
  return file;
}

}  // namespace

Result<ModelName> parse_model_name(std::string_view text) {
  const std::string_view own = without_hub_host(text);
  const size_t colon = own.find(':');
  const std::string_view repository = own.substr(0, colon);
  const size_t slash = repository.find('/');
  ModelName name{.repository = std::string(repository)};
  bool is_right = slash != std::string_view::npos && is_name(repository.substr(0, slash)) &&
                  is_name(repository.substr(slash + 1));
  if (colon != std::string_view::npos) {
    name.part = std::string(own.substr(colon + 1));
    is_right = is_right && check_file_name(name.part).ok();
    if (name.part == "latest") name.part.clear();  // of Ollama, which gives every name a tag
  }
  if (is_right) return name;
  return make_error(ErrorCode::kInvalidArgument,
                    "{}: expected ORG/NAME, ORG/NAME:QUANT or ORG/NAME:FILE, as in "
                    "unsloth/NAME-GGUF:Q4_K_M",
                    json_excerpt(std::string(text)));
}

Status check_file_name(std::string_view name) {
  const auto refuse = [&](std::string_view found) {
    return make_error(ErrorCode::kCorruption,
                      "a file name {}, expected one inside the repository: {}", found,
                      json_excerpt(std::string(name)));
  };
  if (name.empty()) return refuse("is empty");
  if (name.size() > kNameBytesMax) return refuse("is too long");
  for (const char c : name) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) return refuse("has a control character");
    if (c == '\\') return refuse("has a backslash");
  }
  while (true) {
    const size_t slash = name.find('/');
    const std::string_view part = name.substr(0, slash);
    if (part.empty()) return refuse("is absolute or has an empty part");
    if (part == "." || part == "..") return refuse("climbs");
    if (part.size() > kPartBytesMax) return refuse("has a part that is too long");
    if (slash == std::string_view::npos) return {};
    name.remove_prefix(slash + 1);
  }
}

bool is_revision(std::string_view text) {
  return text.size() <= 200 && check_file_name(text).ok() && !text.starts_with('-') &&
         std::ranges::all_of(text, [](char c) {
           return is_word(c) || c == '-' || c == '_' || c == '.' || c == '/';
         });
}

Result<Repository> parse_repository(std::string name, std::string_view json) {
  const std::string what = formatted("the hub's answer about {}", name);
  // A file is an object of some eight values.
  MF_ASSIGN_OR_RETURN(const Json answer, parse_json(json, what, {.values = 16 * kFilesMax}));
  Repository repository{.name = std::move(name)};
  MF_ASSIGN_OR_RETURN(repository.commit, text_at(answer, "sha", what));
  if (!is_hex(repository.commit, 40)) {
    return make_error(ErrorCode::kCorruption, "{}: 'sha' is {}, expected 40 digits", what,
                      json_excerpt(repository.commit));
  }
  if (!answer.contains("siblings") || !answer["siblings"].is_array()) {
    return make_error(ErrorCode::kCorruption, "{}: no list 'siblings'", what);
  }
  const Json& files = answer["siblings"];
  if (files.size() > kFilesMax) {
    return make_error(ErrorCode::kResourceExhausted, "{}: {} files, at most {} are taken", what,
                      files.size(), kFilesMax);
  }
  std::set<std::string> names;
  for (const Json& entry : files) {
    MF_ASSIGN_OR_RETURN(RemoteFile file, parse_file(entry, what));
    if (!names.insert(file.name).second) {
      return make_error(ErrorCode::kCorruption, "{}: '{}' is there twice", what, file.name);
    }
    repository.files.push_back(std::move(file));
  }
  return repository;
}

bool FileSet::is_gguf() const { return label != "safetensors"; }

std::string quant_label(std::string_view file_name) {
  const std::string stem = without_ending(file_name);
  constexpr std::array<std::string_view, 9> kBegins = {"IQ",   "Q",   "TQ",   "MXFP4", "NVFP4",
                                                       "BF16", "F16", "FP16", "F32"};
  std::string found;
  for (size_t i = 0; i < stem.size(); ++i) {
    if (i > 0 && (is_word(stem[i - 1]) || stem[i - 1] == '_')) continue;
    size_t end = i;
    while (end < stem.size() && (is_word(stem[end]) || stem[end] == '_')) ++end;
    const std::string_view word = std::string_view(stem).substr(i, end - i);
    const bool is_quant = std::ranges::any_of(kBegins, [&](std::string_view begin) {
      if (word.size() < begin.size() || !equal_without_case(word.substr(0, begin.size()), begin)) {
        return false;
      }
      if (!begin.ends_with('Q')) return word.size() == begin.size() || word[begin.size()] == '_';
      return word.size() > begin.size() && is_digit(word[begin.size()]) &&
             (word.size() == begin.size() + 1 || word[begin.size() + 1] == '_');
    });
    if (!is_quant) continue;
    const bool is_dynamic = i >= 3 && equal_without_case(stem.substr(i - 3, 3), "UD-");
    found = formatted("{}{}", is_dynamic ? "UD-" : "", word);
  }
  return found;
}

int label_bits(std::string_view label) {
  if (label.ends_with("F32")) return 32;
  for (size_t i = 0; i < label.size(); ++i) {
    if (!is_digit(label[i])) continue;
    int bits = 0;
    std::from_chars(label.data() + i, label.data() + label.size(), bits);
    return bits;
  }
  return 0;
}

std::vector<FileSet> find_file_sets(const Repository& repository) {
  std::vector<FileSet> sets;
  add_gguf_sets(repository, sets);
  add_safetensors_set(repository, sets);
  std::ranges::stable_sort(sets, {}, &FileSet::bytes);
  return sets;
}

Result<std::vector<FileSet>> choose_file_sets(const Repository& repository, std::string_view part) {
  std::vector<FileSet> sets = find_file_sets(repository);
  if (sets.empty()) {
    return make_error(ErrorCode::kNotFound,
                      "{} has neither a GGUF file nor safetensors files with a config.json",
                      repository.name);
  }
  if (part.empty()) return sets;
  std::vector<FileSet> exact;
  std::vector<FileSet> close;
  for (const FileSet& set : sets) {
    const bool is_file = std::ranges::any_of(
        set.files, [&](const RemoteFile& file) { return set.is_gguf() && file.name == part; });
    if (is_file) return std::vector<FileSet>{set};
    if (equal_without_case(set.label, part)) exact.push_back(set);
    if (lower_case(set.label).ends_with("-" + lower_case(part))) close.push_back(set);
  }
  std::vector<FileSet>& found = exact.empty() ? close : exact;
  if (found.empty()) {
    return make_error(ErrorCode::kNotFound, "{} has no '{}', but: {}", repository.name, part,
                      listed(sets));
  }
  if (found.size() > 1) {
    std::string names;
    for (const FileSet& set : found) names += formatted(" {}", set.files.front().name);
    return make_error(ErrorCode::kInvalidArgument, "{} has {} models with '{}'; name a file:{}",
                      repository.name, found.size(), part, names);
  }
  return std::move(found);
}

}  // namespace moeflux::hub
