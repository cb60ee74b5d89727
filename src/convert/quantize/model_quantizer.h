// Quantises a model to MLX safetensors: a folder that mlx-lm opens, and so do we.
#pragma once

#include <functional>
#include <memory>
#include <set>
#include <stop_token>
#include <string>
#include <vector>

#include "backend/device.h"
#include "convert/pack_source.h"
#include "convert/quantize/quantize_plan.h"

namespace moeflux {

struct QuantizeRun {
  std::string directory;
  int threads = 0;       // 0: one per usable core, fewer where experts are large
  bool replace = false;  // earlier output of moeflux in the folder may go
  std::stop_token stop = {};
  std::function<void(uint64_t bytes_done)> progress = {};
};

struct QuantizeOptions {
  QuantizeType type;
  /// The largest file; a matrix that is larger gets one of its own.
  uint64_t shard_bytes_max = uint64_t{5} << 30;
};

class ModelQuantizer {
 public:
  /// `host` gives memory that the host addresses. It must outlive this.
  static Result<std::unique_ptr<ModelQuantizer>> create(PackSource source, Device& host,
                                                        const QuantizeOptions& options);

  uint64_t total_bytes() const { return plan_.total_bytes(); }
  const QuantizePlan& plan() const { return plan_; }

  /// Writes the folder. config.json comes last, so that until then the folder is no model, or the
  /// one that is to be replaced: see WrittenFolder, which says what is refused. Memory is the
  /// largest matrix beside the experts as it is stored, and some experts a thread. Fails with
  /// kResourceExhausted when the disk is too small and kCancelled when stopped.
  Status write(const QuantizeRun& run) const;

 private:
  explicit ModelQuantizer(Device& host) : host_(host) {}

  std::set<std::string> files() const;
  std::vector<std::string> source_paths() const;
  Status write_files(const QuantizeRun& run) const;

  Device& host_;
  PackSource source_;
  std::unique_ptr<Device> trace_;
  std::unique_ptr<LoadedModel> loaded_;
  QuantizePlan plan_;
};

}  // namespace moeflux
