#include "convert/pack/pack_notes.h"

#include "base/format.h"
#include "base/json.h"
#include "checkpoint/checksum.h"
#include "io/output_folder.h"

namespace moeflux {

std::string PackNotes::path() const { return formatted("{}/{}", directory_, kExpertPackNotesName); }

Result<PackNotes> PackNotes::open(const std::string& directory, uint64_t recipe) {
  PackNotes notes(directory, recipe);
  MF_RETURN_IF_ERROR(path_exists(notes.path()) ? notes.read() : notes.write());
  return notes;
}

bool PackNotes::is_finished(const std::string& shard) const {
  return shards_.contains(shard) && path_exists(formatted("{}/{}", directory_, shard));
}

Status PackNotes::read() {
  MF_ASSIGN_OR_RETURN(const std::string text, read_text_file(path(), kExpertPackBytesMax));
  MF_ASSIGN_OR_RETURN(const Json json, parse_json(text, path()));
  const auto recipe = json.find("recipe");
  if (recipe == json.end() || *recipe != checksum_text(recipe_)) {
    return make_error(ErrorCode::kInvalidArgument,
                      "{}: a packing of another model, or with other options, was stopped here; "
                      "repeat that one, or empty the folder",
                      directory_);
  }
  const auto damaged = [&] {
    return make_error(ErrorCode::kCorruption, "{} is damaged; empty the folder and pack again",
                      path());
  };
  const auto shards = json.find("shards");
  const auto layers = json.find("layers");
  if (shards == json.end() || layers == json.end()) return damaged();
  for (const Json& shard : *shards) {
    if (!shard.is_string()) return damaged();
    shards_.insert(shard.get<std::string>());
  }
  for (const Json& entry : *layers) {
    MF_ASSIGN_OR_RETURN(PackedLayer layer, parse_packed_layer(entry, path()));
    layers_[layer.layer] = std::move(layer);
  }
  return {};
}

const PackedLayer* PackNotes::finished_layer(const PackedLayer& planned) const {
  const auto found = layers_.find(planned.layer);
  if (found == layers_.end()) return nullptr;
  PackedLayer expected = planned;
  expected.table_checksum = found->second.table_checksum;
  if (!(found->second == expected)) return nullptr;
  const Result<std::unique_ptr<File>> file = open_file(directory_ + "/" + planned.file);
  if (!file.ok() || !read_blob_checksums(**file, found->second).ok()) return nullptr;
  return &found->second;
}

Status PackNotes::add_layer(const PackedLayer& layer) {
  layers_[layer.layer] = layer;
  return write();
}

Status PackNotes::add_shard(const std::string& file) {
  shards_.insert(file);
  return write();
}

Status PackNotes::write() const {
  Json json;
  json["recipe"] = checksum_text(recipe_);
  json["shards"] = shards_;
  json["layers"] = Json::array();
  for (const auto& [number, layer] : layers_) json["layers"].push_back(packed_layer_json(layer));
  return write_text_file(path(), json.dump(1) + "\n");
}

Status PackNotes::remove() const { return remove_file(path()); }

}  // namespace moeflux
