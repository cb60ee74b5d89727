// Opens a checkpoint folder: finds its files, reads their headers, and holds the index file to its
// word.
#include "checkpoint/tensor_index.h"

#include <algorithm>
#include <set>

#include "base/format.h"
#include "base/json.h"
#include "checkpoint/checksum.h"
#include "checkpoint/foreign_file.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/shard_choice.h"
#include "quant/format_traits.h"

namespace moeflux {
namespace {

constexpr std::string_view kShardIndexName = "model.safetensors.index.json";
constexpr std::string_view kSingleFileName = "model.safetensors";
/// The largest known indexes have 20 MB.
constexpr uint64_t kIndexBytesMax = safetensors::kHeaderBytesMax;
constexpr std::string_view kSupported =
    "model.safetensors.index.json with its shards, or one .safetensors file";

/// Shard names by tensor name, from the index file.
using WeightMap = std::map<std::string, std::string>;

struct Contents {
  std::vector<std::unique_ptr<File>> files;
  std::map<std::string, TensorEntry, std::less<>> entries;
  bool has_canonical_names = false;
};

/// As text of a message: plain ASCII, whatever the file called it.
std::string in_quotes(std::string_view name) {
  return SortedJson(name).dump(-1, ' ', true, SortedJson::error_handler_t::replace);
}

bool ends_with(std::string_view name, std::string_view suffix) {
  return name.size() >= suffix.size() && name.substr(name.size() - suffix.size()) == suffix;
}

std::vector<std::string> with_suffix(const std::vector<std::string>& names,
                                     std::string_view suffix) {
  std::vector<std::string> found;
  for (const std::string& name : names) {
    if (ends_with(name, suffix)) found.push_back(name);
  }
  return found;
}

/// Gives a tensor of U8 rows the format that the metadata names.
Status read_block_format(const safetensors::Header& header, const std::string& name,
                         TensorEntry& entry) {
  const auto stated = header.metadata.find(block_format_key(name));
  if (stated == header.metadata.end()) return {};
  const FormatTraits* format = find_format(stated->second);
  if (format == nullptr || format->block.elements == 0) {
    return make_error(ErrorCode::kUnsupported, "tensor {} has blocks of {}, which is not known",
                      in_quotes(name), in_quotes(stated->second));
  }
  const int rank = entry.shape.rank();
  const int64_t row_bytes = rank == 0 ? 0 : entry.shape.back();
  if (entry.dtype != DType::kU8 || row_bytes % format->block.bytes != 0 ||
      row_bytes / format->block.bytes > INT64_MAX / format->block.elements) {
    return make_error(ErrorCode::kCorruption,
                      "tensor {} is {} {}, expected U8 rows of whole blocks of {} bytes ({})",
                      in_quotes(name), dtype_name(entry.dtype), entry.shape.to_string(),
                      format->block.bytes, format->name);
  }
  entry.shape.set(rank - 1, row_bytes / format->block.bytes * format->block.elements);
  entry.format = QuantFormat::of(*format);
  return {};
}

Result<TensorEntry> to_tensor_entry(const safetensors::Header& header,
                                    const safetensors::HeaderEntry& entry, int32_t file) {
  TensorEntry made{.file = file,
                   .offset_bytes = header.data_offset + entry.begin,
                   .size_bytes = entry.end - entry.begin,
                   .dtype = entry.dtype,
                   .shape = entry.shape};
  MF_RETURN_IF_ERROR(read_block_format(header, entry.name, made));
  return made;
}

/// Adds the tensors of a file's header.
Status add_entries(const safetensors::Header& header, const File& file, int32_t number,
                   Contents& contents) {
  for (const safetensors::HeaderEntry& entry : header.entries) {
    Result<TensorEntry> made = to_tensor_entry(header, entry, number);
    if (!made.ok()) return made.error().with_context(file.path());
    contents.entries.emplace(entry.name, std::move(made).value());
  }
  if (header.metadata.contains(std::string(kCanonicalNamesKey))) {
    contents.has_canonical_names = true;
  }
  return {};
}

Result<WeightMap> read_weight_map(const std::string& index_path) {
  MF_ASSIGN_OR_RETURN(const std::string text, read_text_file(index_path, kIndexBytesMax));
  if (is_lfs_pointer(text)) {
    return make_error(ErrorCode::kCorruption, "{} is {}", index_path, kLfsPointerText);
  }
  MF_ASSIGN_OR_RETURN(const SortedJson index, parse_sorted_json(text, index_path));
  const auto map = index.is_object() ? index.find("weight_map") : index.end();
  if (map == index.end() || !map->is_object() || map->empty()) {
    return make_error(ErrorCode::kCorruption,
                      "{} has no weight_map, expected an object of tensor names and file names",
                      index_path);
  }
  WeightMap shards;
  for (const auto& [tensor, shard] : map->items()) {
    if (!shard.is_string()) {
      return make_error(ErrorCode::kCorruption, "{}: tensor {} lies in {}, expected a file name",
                        index_path, in_quotes(tensor), json_excerpt(Json(shard)));
    }
    shards.emplace(tensor, shard.get_ref<const std::string&>());
  }
  return shards;
}

size_t count_shards(const WeightMap& weight_map) {
  std::set<std::string_view> names;
  for (const auto& [tensor, shard] : weight_map) names.insert(shard);
  return names.size();
}

/// The shards that the index names, as far as they are there.
struct NamedShards {
  std::vector<std::string> there;
  std::string missing;  // the first that is not, or empty
};

Result<NamedShards> find_named(const std::string& directory, const std::string& index_path,
                               const WeightMap& weight_map) {
  std::set<std::string> names;
  for (const auto& [tensor, shard] : weight_map) names.insert(shard);
  NamedShards shards;
  for (const std::string& name : names) {
    const Result<std::string> path = join_inside(directory, name);
    if (!path.ok()) return path.error().with_context(index_path);
    if (path_exists(*path)) {
      shards.there.push_back(name);
    } else if (shards.missing.empty()) {
      shards.missing = name;
    }
  }
  return shards;
}

/// Adds the tensors of one file. One that an earlier file has, too, is that of the file where the
/// index has it.
Status add_shard(const std::string& directory, const std::string& shard,
                 const WeightMap& weight_map, Contents& contents) {
  MF_ASSIGN_OR_RETURN(const std::string path, join_inside(directory, shard));
  MF_ASSIGN_OR_RETURN(std::unique_ptr<File> file, open_file(path));
  MF_ASSIGN_OR_RETURN(safetensors::Header header, safetensors::read_header(*file));
  const auto number = static_cast<int32_t>(contents.files.size());
  for (const safetensors::HeaderEntry& entry : header.entries) {
    const auto other = contents.entries.find(entry.name);
    if (other == contents.entries.end()) continue;
    const std::string& other_path = contents.files[static_cast<size_t>(other->second.file)]->path();
    const auto listed = weight_map.find(entry.name);
    if (listed == weight_map.end()) {
      return make_error(ErrorCode::kCorruption,
                        "tensor {} is in {} and in {}, and no index says which one counts",
                        in_quotes(entry.name), other_path, path);
    }
    if (listed->second == shard) contents.entries.erase(other);
  }
  MF_RETURN_IF_ERROR(add_entries(header, *file, number, contents));
  contents.files.push_back(std::move(file));
  return {};
}

/// The contents of files count, not the index: indexes outlive a conversion, and list tensors that
/// are tied, fused or left out since.
Result<Contents> open_files(const std::string& directory, const std::vector<std::string>& files,
                            const WeightMap& weight_map) {
  Contents contents;
  for (const std::string& file : files) {
    MF_RETURN_IF_ERROR(add_shard(directory, file, weight_map, contents));
  }
  return contents;
}

Result<Contents> open_sharded(const std::string& directory, const std::string& index_path) {
  MF_ASSIGN_OR_RETURN(const WeightMap weight_map, read_weight_map(index_path));
  MF_ASSIGN_OR_RETURN(const NamedShards named, find_named(directory, index_path, weight_map));
  if (named.missing.empty()) return open_files(directory, named.there, weight_map);
  // An index of other files: whole by its names is what counts.
  MF_ASSIGN_OR_RETURN(const std::vector<std::string> names, list_files(directory));
  const Result<std::vector<std::string>> chosen = choose_shards(names);
  if (chosen.ok() && named.there.empty()) return open_files(directory, *chosen, weight_map);
  const auto is_set = [&] { return chosen->size() > 1 || chosen->front() == kSingleFileName; };
  if (chosen.ok() && is_set()) return open_files(directory, *chosen, weight_map);
  return make_error(ErrorCode::kNotFound,
                    "{} names the shard {}, which is not there ({} of {} are): a download that has "
                    "not finished, or an index of other files",
                    index_path, in_quotes(named.missing), named.there.size(),
                    count_shards(weight_map));
}

/// Why a folder without any .safetensors file cannot be opened.
Error no_checkpoint(const std::string& directory, const std::vector<std::string>& names) {
  const auto adapter = std::find_if(names.begin(), names.end(), [](const std::string& name) {
    return name.starts_with("adapter_model") || name == "adapter_config.json";
  });
  if (adapter != names.end()) {
    return make_error(
        ErrorCode::kUnsupported,
        "{} has an adapter ({}) and no model: adapters are not read, merge it into its "
        "base model",
        directory, *adapter);
  }
  for (const std::string_view suffix : {".gguf", ".bin", ".pt", ".pth"}) {
    const std::vector<std::string> found = with_suffix(names, suffix);
    if (found.empty()) continue;
    const std::string_view kind = suffix == ".gguf" ? "GGUF" : "PyTorch";
    return make_error(ErrorCode::kUnsupported,
                      "{} has no safetensors checkpoint; found {}, and {} files are not "
                      "supported, expected {}",
                      directory, list_some(found), kind, kSupported);
  }
  return make_error(ErrorCode::kNotFound, "{} has no checkpoint, expected {}", directory,
                    kSupported);
}

Result<Contents> open_folder(const std::string& directory) {
  if (!path_exists(directory)) {
    return make_error(ErrorCode::kNotFound, "{} does not exist, expected a folder with {}",
                      directory, kSupported);
  }
  if (!is_directory(directory)) {
    return make_error(ErrorCode::kInvalidArgument, "{} is not a folder, expected a folder with {}",
                      directory, kSupported);
  }
  MF_ASSIGN_OR_RETURN(const std::string index_path, join_inside(directory, kShardIndexName));
  if (path_exists(index_path)) return open_sharded(directory, index_path);
  MF_ASSIGN_OR_RETURN(const std::vector<std::string> names, list_files(directory));
  const std::vector<std::string> found = with_suffix(names, ".safetensors");
  if (std::all_of(found.begin(), found.end(), is_beside_model)) {
    return no_checkpoint(directory, names);
  }
  const Result<std::vector<std::string>> chosen = choose_shards(names);
  if (!chosen.ok()) return chosen.error().with_context(directory);
  return open_files(directory, *chosen, {});
}

/// Adds a file that is not of the model's set, unless it is not there or has been read.
Status add_beside(const std::string& directory, const std::string& name, Contents& contents) {
  MF_ASSIGN_OR_RETURN(const std::string path, join_inside(directory, name));
  const auto is_read = [&](const auto& file) { return file->path() == path; };
  if (!path_exists(path) || std::ranges::any_of(contents.files, is_read)) return {};
  return add_shard(directory, name, {}, contents);
}

}  // namespace

Result<TensorIndex> TensorIndex::open(const std::string& directory, std::string_view beside) {
  MF_ASSIGN_OR_RETURN(Contents contents, open_folder(directory));
  if (!beside.empty()) MF_RETURN_IF_ERROR(add_beside(directory, std::string(beside), contents));
  TensorIndex index;
  index.files_ = std::move(contents.files);
  index.entries_ = std::move(contents.entries);
  index.has_canonical_names_ = contents.has_canonical_names;
  MF_RETURN_IF_ERROR(index.open_expert_pack(directory));
  return index;
}

TensorIndex TensorIndex::from_parts(std::vector<std::unique_ptr<File>> files, Entries entries) {
  TensorIndex index;
  index.files_ = std::move(files);
  index.entries_ = std::move(entries);
  return index;
}

TensorIndex TensorIndex::canonical(std::vector<std::unique_ptr<File>> files, Entries entries) {
  TensorIndex index = from_parts(std::move(files), std::move(entries));
  index.has_canonical_names_ = true;
  return index;
}

Status TensorIndex::open_expert_pack(const std::string& directory) {
  MF_ASSIGN_OR_RETURN(const std::string path, join_inside(directory, kExpertPackName));
  if (!path_exists(path)) return {};
  MF_ASSIGN_OR_RETURN(const std::string text, read_text_file(path, kExpertPackBytesMax));
  MF_ASSIGN_OR_RETURN(ExpertPackManifest manifest, parse_expert_pack(text, path));
  packed_model_ = manifest.model;
  for (PackedLayer& layer : manifest.layers) {
    const Result<std::string> file_path = join_inside(directory, layer.file);
    if (!file_path.ok()) return file_path.error().with_context(path);
    Result<std::unique_ptr<File>> file = open_file(*file_path);
    if (!file.ok()) {
      return file.error().with_context(
          formatted("{} names the file of layer {}", path, layer.layer));
    }
    MF_ASSIGN_OR_RETURN(std::vector<uint64_t> checksums, read_blob_checksums(**file, layer));
    const int32_t number = layer.layer;
    packed_[number] = {std::move(layer), num_files(), std::move(checksums)};
    files_.push_back(std::move(file).value());
  }
  return {};
}

std::string TensorEntry::type_name() const {
  return format ? format->to_string() : std::string(dtype_name(dtype));
}

std::string block_format_key(std::string_view tensor) {
  return formatted("moeflux.blocks.{}", tensor);
}

const TensorEntry* TensorIndex::find(std::string_view name) const {
  const auto found = entries_.find(name);
  return found == entries_.end() ? nullptr : &found->second;
}

Status read_tensor(const TensorIndex& index, const TensorEntry& entry, std::span<std::byte> into) {
  MF_CHECK(into.size() == entry.size_bytes);
  return index.file(entry.file).read_at(entry.offset_bytes, into);
}

namespace {

Result<std::string> fingerprint_text(const TensorIndex& index, std::string_view config_json) {
  MF_ASSIGN_OR_RETURN(const SortedJson config, parse_sorted_json(config_json, "config.json"));
  std::string text = config.dump() + "\n";
  for (const auto& [name, entry] : index.entries()) {
    text += formatted("{} {} {} {}\n", in_quotes(name), entry.type_name(), entry.shape.to_string(),
                      entry.size_bytes);
  }
  return text;
}

}  // namespace

Result<uint64_t> dense_fingerprint(const TensorIndex& index, std::string_view config_json) {
  MF_ASSIGN_OR_RETURN(const std::string text, fingerprint_text(index, config_json));
  return checksum64(text);
}

Result<uint64_t> checkpoint_fingerprint(const TensorIndex& index, std::string_view config_json) {
  MF_ASSIGN_OR_RETURN(std::string text, fingerprint_text(index, config_json));
  for (const auto& [number, packed] : index.packed_layers()) {
    text += packed_layer_json(packed.layout).dump() + "\n";
  }
  return checksum64(text);
}

}  // namespace moeflux
