#include "engine/sequence_file.h"

#include <memory>

#include "base/format.h"
#include "engine/snapshot.h"
#include "io/file.h"

namespace moeflux {

Status save_sequence(Engine& engine, const Sequence& sequence, const std::string& path,
                     std::span<const std::byte> extra) {
  MF_ASSIGN_OR_RETURN(const std::vector<std::byte> bytes, engine.save(sequence, extra));
  MF_ASSIGN_OR_RETURN(const std::unique_ptr<AtomicFileWriter> writer,
                      AtomicFileWriter::create(path, FileAccess::kPrivate));
  MF_RETURN_IF_ERROR(writer->write(bytes));
  return writer->commit();
}

Result<std::vector<std::byte>> load_sequence(Engine& engine, Sequence& sequence,
                                             const std::string& path) {
  MF_ASSIGN_OR_RETURN(const std::unique_ptr<File> file, open_file(path));
  const int64_t context = engine.memory_plan().context_length;
  const SnapshotHeader largest{.num_tokens = static_cast<uint64_t>(context),
                               .extra_bytes = kExtraBytesMax,
                               .layers = engine.loaded().states()};
  const uint64_t bytes_max = largest.total_bytes();
  if (file->size_bytes() > bytes_max) {
    return make_error(ErrorCode::kResourceExhausted,
                      "{} has {} bytes, expected at most {}: a snapshot of {} tokens, the context",
                      path, file->size_bytes(), bytes_max, context);
  }
  std::vector<std::byte> bytes(file->size_bytes());
  MF_RETURN_IF_ERROR(file->read_at(0, bytes));
  Result<std::vector<std::byte>> extra = engine.load(sequence, bytes);
  if (!extra.ok()) return extra.error().with_context(path);
  return extra;
}

}  // namespace moeflux
