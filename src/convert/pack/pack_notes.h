// Notes of a packing in the output folder: which files are complete. A packing that was stopped or
// killed goes on from there. The notes' presence marks the folder as unfinished.
#pragma once

#include <map>
#include <set>
#include <string>

#include "base/result.h"
#include "checkpoint/expert_pack.h"

namespace moeflux {

class PackNotes {
 public:
  /// Reads the folder's notes, or begins new ones. Fails with kInvalidArgument when they are of
  /// another recipe.
  static Result<PackNotes> open(const std::string& directory, uint64_t recipe);

  /// The layer as noted, if its file is there and has the size and the table that go with it.
  const PackedLayer* finished_layer(const PackedLayer& planned) const;
  bool is_finished(const std::string& shard) const;

  /// Writes the notes anew; what they say is on the disk before.
  Status add_layer(const PackedLayer& layer);
  Status add_shard(const std::string& file);
  /// The packing is complete.
  Status remove() const;

 private:
  PackNotes(std::string directory, uint64_t recipe)
      : directory_(std::move(directory)), recipe_(recipe) {}
  std::string path() const;
  Status read();
  Status write() const;

  std::string directory_;
  uint64_t recipe_;
  std::map<int32_t, PackedLayer> layers_;
  std::set<std::string> shards_;
};

}  // namespace moeflux
