#include "hub/preview.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "base/format.h"
#include "base/units.h"
#include "checkpoint/gguf.h"
#include "hub/download.h"
#include "io/file.h"
#include "io/output_folder.h"
#include "io/part_file.h"
#include "io/path_text.h"

namespace moeflux::hub {
namespace {

constexpr uint64_t kBlockBytes = kMiB;
constexpr uint64_t kBlocksAhead = 4;  // of one request, once a header has more than a block
constexpr uint64_t kHeadBytesMax = 256 * kMiB;  // of one file
constexpr uint64_t kSmallBytesMax = 64 * kMiB;
constexpr size_t kPreviewFilesMax = 48;

using Blocks = std::map<uint64_t, std::string>;  // by offset

/// A file of the hub of which blocks are fetched when they are read.
class HeadFile final : public File {
 public:
  HeadFile(Fetcher& fetcher, std::string url, const RemoteFile& file,
           std::shared_ptr<Blocks> blocks)
      : fetcher_(fetcher),
        url_(std::move(url)),
        name_(file.name),
        size_bytes_(file.size_bytes),
        blocks_(std::move(blocks)) {}

  const std::string& path() const override { return name_; }
  uint64_t size_bytes() const override { return size_bytes_; }

  Status read_at(uint64_t offset, std::span<std::byte> into) const override {
    if (offset > size_bytes_ || into.size() > size_bytes_ - offset) {
      return make_error(ErrorCode::kIo, "{}: reads past its {} bytes", name_, size_bytes_);
    }
    while (!into.empty()) {
      const uint64_t begin = offset / kBlockBytes * kBlockBytes;
      auto found = blocks_->find(begin);
      if (found == blocks_->end()) {
        if (blocks_->size() * kBlockBytes >= kHeadBytesMax) {
          return make_error(ErrorCode::kResourceExhausted, "{}: a header of more than {}", name_,
                            format_bytes(kHeadBytesMax));
        }
        MF_RETURN_IF_ERROR(fetch(begin));
        found = blocks_->find(begin);
      }
      const std::string& block = found->second;
      const size_t count = std::min<size_t>(into.size(), block.size() - (offset - begin));
      std::memcpy(into.data(), block.data() + (offset - begin), count);
      offset += count;
      into = into.subspan(count);
    }
    return {};
  }

 private:
  Status fetch(uint64_t begin) const {
    const uint64_t wanted = kBlockBytes * (begin == 0 ? 1 : kBlocksAhead);
    MF_ASSIGN_OR_RETURN(const std::string bytes,
                        fetcher_.bytes(url_, {begin, std::min(begin + wanted, size_bytes_)}));
    for (size_t at = 0; at < bytes.size(); at += kBlockBytes) {
      blocks_->emplace(begin + at, bytes.substr(at, kBlockBytes));
    }
    return {};
  }

  Fetcher& fetcher_;
  const std::string url_;
  const std::string name_;
  const uint64_t size_bytes_;
  const std::shared_ptr<Blocks> blocks_;
};

Status write_file(const std::string& path, uint64_t size_bytes, const Blocks& blocks) {
  MF_ASSIGN_OR_RETURN(const std::unique_ptr<PartFile> file, PartFile::open(path));
  MF_RETURN_IF_ERROR(file->resize(size_bytes));
  for (const auto& [offset, bytes] : blocks) {
    MF_RETURN_IF_ERROR(file->write_at(offset, std::as_bytes(std::span(bytes))));
  }
  return {};
}

// Reads what a header of safetensors has: its length in 8 bytes, then as many.
Status read_safetensors_header(const File& file) {
  uint64_t length = 0;
  MF_RETURN_IF_ERROR(file.read_at(0, std::as_writable_bytes(std::span(&length, 1))));
  if (length > kHeadBytesMax || length + 8 > file.size_bytes()) {
    return make_error(ErrorCode::kCorruption, "{}: a header of {} bytes in a file of {}",
                      file.path(), length, file.size_bytes());
  }
  std::vector<std::byte> header(length);
  return file.read_at(8, header);
}

}  // namespace

Preview::Preview(Preview&& other) noexcept
    : folder_(std::exchange(other.folder_, "")), path_(std::move(other.path_)) {}

Preview::~Preview() {
  if (folder_.empty()) return;
  const auto entries = list_folder(folder_);
  if (entries.ok()) {
    for (const FolderEntry& entry : *entries) {
      (void)remove_file(formatted("{}/{}", folder_, entry.name));
    }
  }
  (void)remove_empty_folder(folder_);
}

Result<Preview> Preview::make(Fetcher& fetcher, const Repository& repository, const FileSet& set,
                              std::string folder) {
  if (set.files.size() > kPreviewFilesMax) {
    return make_error(ErrorCode::kUnsupported, "{} files are too many to read their headers first",
                      set.files.size());
  }
  MF_RETURN_IF_ERROR(create_folders(folder));
  Preview preview(std::move(folder));
  std::vector<std::shared_ptr<Blocks>> blocks;
  std::vector<std::unique_ptr<File>> files;
  for (const RemoteFile& file : set.files) {
    blocks.push_back(std::make_shared<Blocks>());
    files.push_back(std::make_unique<HeadFile>(
        fetcher, file_url(fetcher.settings(), repository, file.name), file, blocks.back()));
  }
  if (set.is_gguf()) {
    const auto read = gguf::Container::read(std::move(files));
    if (!read.ok()) return read.error();
  } else {
    for (size_t i = 0; i < files.size(); ++i) {
      const RemoteFile& file = set.files[i];
      if (file.name.ends_with(".safetensors")) {
        MF_RETURN_IF_ERROR(read_safetensors_header(*files[i]));
      } else if (file.name.find('/') == std::string::npos &&
                 (file.name.ends_with("config.json") || file.name.ends_with(".index.json"))) {
        std::vector<std::byte> all(std::min(file.size_bytes, kSmallBytesMax));
        MF_RETURN_IF_ERROR(files[i]->read_at(0, all));
      }
    }
  }
  for (size_t i = 0; i < set.files.size(); ++i) {
    if (blocks[i]->empty()) continue;
    const std::string path = formatted("{}/{}", preview.folder_, file_name_of(set.files[i].name));
    MF_RETURN_IF_ERROR(write_file(path, set.files[i].size_bytes, *blocks[i]));
  }
  preview.path_ = set.is_gguf()
                      ? formatted("{}/{}", preview.folder_, file_name_of(set.files.front().name))
                      : preview.folder_;
  return preview;
}

}  // namespace moeflux::hub
