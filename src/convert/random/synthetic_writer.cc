// Writing a synthetic checkpoint: while one window of a shard goes to the file, the other threads
// fill the next one.
#include <algorithm>
#include <functional>
#include <utility>

#include "base/check.h"
#include "base/format.h"
#include "base/json.h"
#include "base/thread_pool.h"
#include "base/units.h"
#include "checkpoint/safetensors_stream.h"
#include "convert/random/synthetic.h"
#include "io/file.h"

namespace moeflux {
namespace {

constexpr uint64_t kSyntheticWindowBytes = 32 * kMiB;
constexpr uint64_t kSyntheticTaskBytes = kMiB;

// Consecutive tensors that share a file.
struct Shard {
  std::string name;
  std::span<const SyntheticTensor> tensors;
  // Where each tensor and the zeros behind it end in the data section.
  std::vector<uint64_t> ends;

  uint64_t size_bytes() const { return ends.back(); }
};

using Sink = std::function<Status(std::span<const std::byte>)>;

std::vector<Shard> plan_shards(std::span<const SyntheticTensor> tensors, uint64_t bytes_max) {
  std::vector<Shard> shards;
  size_t first = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const uint64_t bytes = tensors[i].size_bytes();
    if (shards.empty() || shards.back().size_bytes() + bytes > bytes_max) {
      shards.emplace_back();
      first = i;
    }
    Shard& shard = shards.back();
    shard.tensors = tensors.subspan(first, i + 1 - first);
    shard.ends.push_back((shard.ends.empty() ? 0 : shard.ends.back()) + bytes);
  }
  for (size_t i = 0; i < shards.size(); ++i) {
    shards[i].name = formatted("model-{:05}-of-{:05}.safetensors", i + 1, shards.size());
  }
  return shards;
}

// Bytes of the data section from `offset` on, across the ends of tensors.
void fill_range(const Shard& shard, uint64_t seed, uint64_t offset, std::span<std::byte> out) {
  auto i = static_cast<size_t>(std::upper_bound(shard.ends.begin(), shard.ends.end(), offset) -
                               shard.ends.begin());
  while (!out.empty()) {
    const uint64_t begin = i == 0 ? 0 : shard.ends[i - 1];
    const uint64_t count = std::min<uint64_t>(out.size(), shard.ends[i] - offset);
    const uint64_t tensor_end = begin + shard.tensors[i].size_bytes();
    const uint64_t own = offset < tensor_end ? std::min(count, tensor_end - offset) : 0;
    fill_synthetic(shard.tensors[i], seed, offset - begin, out.first(own));
    std::ranges::fill(out.subspan(own, count - own), std::byte{0});
    offset += count;
    out = out.subspan(count);
    ++i;
  }
}

class ShardWriter {
 public:
  explicit ShardWriter(const SyntheticWriting& options)
      : options_(options), pool_(options.threads > 0 ? options.threads : usable_cores()) {
    for (std::vector<std::byte>& window : windows_) window.resize(kSyntheticWindowBytes);
  }

  /// The bytes of a shard's data section, in order.
  Status write(const Shard& shard, const Sink& sink) {
    std::span<const std::byte> filled;  // but not yet written
    for (uint64_t offset = 0; offset < shard.size_bytes() || !filled.empty();) {
      if (options_.stop.stop_requested()) return Error(ErrorCode::kCancelled, "stopped");
      std::swap(windows_[0], windows_[1]);
      const std::span<std::byte> next =
          std::span(windows_[0])
              .first(std::min<uint64_t>(kSyntheticWindowBytes, shard.size_bytes() - offset));
      MF_RETURN_IF_ERROR(advance(shard, sink, filled, offset, next));
      done_ += filled.size();
      if (options_.progress) options_.progress(done_);
      offset += next.size();
      filled = next;
    }
    return {};
  }

 private:
  // The first task writes what is filled, the others fill what comes after it.
  Status advance(const Shard& shard, const Sink& sink, std::span<const std::byte> filled,
                 uint64_t offset, std::span<std::byte> next) {
    const uint64_t tasks = (next.size() + kSyntheticTaskBytes - 1) / kSyntheticTaskBytes;
    Status written;
    pool_.parallel_for(static_cast<int64_t>(tasks) + 1, [&](int64_t task) {
      if (task == 0) {
        written = sink(filled);
        return;
      }
      const uint64_t begin = static_cast<uint64_t>(task - 1) * kSyntheticTaskBytes;
      const uint64_t count = std::min<uint64_t>(kSyntheticTaskBytes, next.size() - begin);
      fill_range(shard, options_.seed, offset + begin, next.subspan(begin, count));
    });
    return written;
  }

  const SyntheticWriting& options_;
  ThreadPool pool_;
  std::array<std::vector<std::byte>, 2> windows_;
  uint64_t done_ = 0;
};

Status write_shard(ShardWriter& writer, const Shard& shard, const std::string& directory) {
  std::vector<safetensors::PlannedTensor> planned;
  for (const SyntheticTensor& tensor : shard.tensors) {
    planned.push_back({tensor.name, tensor.dtype, tensor.shape, tensor.size_bytes()});
  }
  MF_ASSIGN_OR_RETURN(const auto file,
                      safetensors::StreamWriter::create(directory + "/" + shard.name, planned,
                                                        {{"format", "mlx"}}));
  MF_RETURN_IF_ERROR(
      writer.write(shard, [&](std::span<const std::byte> bytes) { return file->write(bytes); }));
  return file->commit();
}

// Floats have the type of their numbers.
const GgmlType* type_of(const SyntheticTensor& tensor) {
  if (tensor.fill == SyntheticTensor::Fill::kBlocks) return tensor.type;
  return find_ggml_type(dtype_name(tensor.dtype));
}

constexpr std::string_view kSyntheticIndexName = "model.safetensors.index.json";
constexpr std::string_view kConfigName = "config.json";

}  // namespace

std::set<std::string> synthetic_files(const SyntheticCheckpoint& checkpoint,
                                      uint64_t shard_bytes_max) {
  std::set<std::string> names = {std::string(kSyntheticIndexName), std::string(kConfigName)};
  for (const Shard& shard : plan_shards(checkpoint.tensors, shard_bytes_max)) {
    names.insert(shard.name);
  }
  return names;
}

Status write_synthetic(const SyntheticCheckpoint& checkpoint, const SyntheticWriting& options) {
  const std::vector<Shard> shards = plan_shards(checkpoint.tensors, options.shard_bytes_max);
  SortedJson index;
  index["metadata"]["total_size"] = checkpoint.size_bytes();
  ShardWriter writer(options);
  for (const Shard& shard : shards) {
    MF_RETURN_IF_ERROR(write_shard(writer, shard, options.directory));
    for (const SyntheticTensor& tensor : shard.tensors)
      index["weight_map"][tensor.name] = shard.name;
  }
  MF_RETURN_IF_ERROR(write_text_file(formatted("{}/{}", options.directory, kSyntheticIndexName),
                                     index.dump(1) + "\n"));
  return write_text_file(formatted("{}/{}", options.directory, kConfigName),
                         checkpoint.config_json);
}

Status write_synthetic_gguf(const gguf::KeyWriter& keys, const SyntheticCheckpoint& checkpoint,
                            const std::string& name, const SyntheticWriting& options) {
  std::vector<gguf::PlannedTensor> planned;
  for (const SyntheticTensor& tensor : checkpoint.tensors) {
    planned.push_back({tensor.name, type_of(tensor), tensor.shape});
  }
  MF_CHECK(!planned.empty());
  const std::string path = formatted("{}/{}", options.directory, name);
  const Result<gguf::Layout> layout = gguf::lay_out_file(keys, planned);
  if (!layout.ok()) return layout.error().with_context(path);
  Shard shard{.name = name, .tensors = checkpoint.tensors};
  shard.ends.assign(layout->begins.begin() + 1, layout->begins.end());
  shard.ends.push_back(layout->data_bytes);
  MF_ASSIGN_OR_RETURN(const auto file, AtomicFileWriter::create(path));
  MF_RETURN_IF_ERROR(file->write(std::as_bytes(std::span(layout->header))));
  MF_RETURN_IF_ERROR(ShardWriter(options).write(
      shard, [&](std::span<const std::byte> bytes) { return file->write(bytes); }));
  return file->commit();
}

}  // namespace moeflux
