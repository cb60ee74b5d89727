// Packs a model: experts into an expert pack, everything else beside it, in a folder that loads
// like the original and streams faster. docs/formats/expert_pack.md says what is written.
#pragma once

#include <functional>
#include <memory>
#include <set>
#include <stop_token>
#include <string>
#include <vector>

#include "backend/device.h"
#include "convert/pack/pack_plan.h"
#include "convert/written_folder.h"

namespace moeflux {

struct PackRun {
  std::string directory;
  int threads = 0;       // 0: one per usable core
  bool replace = false;  // earlier output of moeflux in the folder may go
  std::stop_token stop = {};
  std::function<void(uint64_t bytes_done)> progress = {};
};

/// A source with its plan.
class ModelPacker {
 public:
  static Result<std::unique_ptr<ModelPacker>> create(PackSource source, const PackFormat& format);

  uint64_t total_bytes() const { return plan_.total_bytes(); }
  const PackPlan& plan() const { return plan_; }
  /// True when the folder holds the pack that this plan would write.
  bool is_packed(const std::string& directory) const;

  /// Writes the folder, or what is missing of it when a run of the same plan was stopped or killed
  /// before. Until the last step the folder is no model, or the one that is to be replaced: see
  /// WrittenFolder, which says what is refused. Memory is a few blobs a thread. Fails with
  /// kResourceExhausted when the disk is too small and kCancelled when stopped.
  Status pack(const PackRun& run) const;

  /// Reads the folder's blobs and tensors and compares them with what this source gives. Fails with
  /// kCorruption naming the first difference in order of files.
  Status compare(const PackRun& run) const;

 private:
  ModelPacker() = default;

  std::set<std::string> files() const;
  std::vector<std::string> source_paths() const;
  Result<WritingProgress> progress_in(const std::string& directory) const;
  uint64_t finished_bytes(const class PackNotes& notes) const;
  Status check_space(const std::string& directory) const;
  Status write_folder(const PackRun& run) const;
  Status write_files(const PackRun& run, PackNotes& notes) const;

  PackSource source_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<LoadedModel> loaded_;
  PackPlan plan_;
};

/// Reads every blob of a packed folder and compares it with its checksum. Fails with kCorruption
/// naming the layer and expert.
Status verify_expert_pack(const TensorIndex& index, const PackRun& run);

}  // namespace moeflux
