// Kept texts as files of a folder. The files alone are the truth: other servers and programs may
// write and remove some at any time.
#include <algorithm>
#include <atomic>
#include <span>
#include <utility>

#include "base/format.h"
#include "io/file.h"
#include "io/file_use.h"
#include "io/output_folder.h"
#include "serve/kept_texts.h"

namespace moeflux::serve {
namespace {

constexpr std::string_view kSuffix = ".json";
constexpr std::string_view kTemporary = ".json.tmp-";

/// The name of the text that a file holds; empty for others.
std::string text_name(std::string_view file) {
  if (!file.ends_with(kSuffix)) return {};
  const std::string_view name = file.substr(0, file.size() - kSuffix.size());
  return is_text_name(name) ? std::string(name) : std::string();
}

class FolderTexts : public KeptTexts {
 public:
  FolderTexts(std::string directory, const KeptLimits& limits)
      : directory_(std::move(directory)), limits_(limits) {}

  Result<std::string> find(const std::string& name) override {
    if (!is_text_name(name)) return unknown(name);
    const std::string path = place_of(name);
    MF_ASSIGN_OR_RETURN(std::string text, read_text_file(path, limits_.bytes_max));
    (void)note_file_use(path, next_use());  // one that is another user's is read all the same
    return text;
  }

  Status keep(const std::string& name, std::string_view text) override {
    if (!is_text_name(name)) {
      return make_error(ErrorCode::kInvalidArgument, "\"{}\" cannot be a text's name", name);
    }
    MF_ASSIGN_OR_RETURN(const std::vector<FileUse> files, text_files());
    MF_RETURN_IF_ERROR(check_room(name, text.size(), files));
    MF_ASSIGN_OR_RETURN(const auto file,
                        AtomicFileWriter::create(place_of(name), FileAccess::kPrivate));
    MF_RETURN_IF_ERROR(file->write(std::as_bytes(std::span(text))));
    MF_RETURN_IF_ERROR(file->commit());
    (void)note_file_use(place_of(name), next_use());
    return limits_.makes_room ? trim() : Status();
  }

  Status erase(const std::string& name) override {
    if (!is_text_name(name) || !path_exists(place_of(name))) return unknown(name);
    return remove_file(place_of(name));
  }

  Result<std::vector<KeptText>> list() override {
    MF_ASSIGN_OR_RETURN(const std::vector<FileUse> files, text_files());
    std::vector<KeptText> all;
    for (const FileUse& file : files) {
      all.push_back({text_name(file.name), file.size_bytes, file.used_ns});
    }
    return all;
  }

  std::string place_of(const std::string& name) const override {
    return formatted("{}/{}{}", directory_, name, kSuffix);
  }

  /// Removes what is too much, and what writers that died have left.
  Status trim() {
    MF_ASSIGN_OR_RETURN(std::vector<FileUse> files, text_files());
    remove_oldest_files(directory_, std::move(files),
                        {.bytes_max = limits_.bytes_max, .count_max = limits_.count_max});
    return {};
  }

 private:
  static Error unknown(const std::string& name) {
    return make_error(ErrorCode::kNotFound, "no text of the name {} is kept", name);
  }

  Result<std::vector<FileUse>> text_files() const {
    MF_ASSIGN_OR_RETURN(std::vector<FileUse> files, list_file_uses(directory_));
    for (const FileUse& file : files) {
      const size_t end = file.name.find(kTemporary);
      if (end == std::string::npos || !is_text_name(file.name.substr(0, end))) continue;
      (void)remove_abandoned_file(formatted("{}/{}", directory_, file.name));
    }
    std::erase_if(files, [](const FileUse& file) { return text_name(file.name).empty(); });
    return files;
  }

  Status check_room(const std::string& name, uint64_t bytes,
                    const std::vector<FileUse>& files) const {
    uint64_t others = 0;
    size_t count = 0;
    for (const FileUse& file : files) {
      if (text_name(file.name) == name) continue;
      others += file.size_bytes;
      ++count;
    }
    const bool has_room =
        limits_.makes_room || (others + bytes <= limits_.bytes_max && count < limits_.count_max);
    if (has_room && bytes <= limits_.bytes_max) return {};
    return make_error(ErrorCode::kResourceExhausted,
                      "{}: {} bytes have no room beside {} texts of {} bytes (at most {} of {})",
                      name, bytes, count, others, limits_.count_max, limits_.bytes_max);
  }

  // Later than all uses before here, however coarse the clock is.
  int64_t next_use() {
    int64_t last = last_use_ns_;
    int64_t next = 0;
    do {
      next = std::max(wall_clock_ns(), last + 1);
    } while (!last_use_ns_.compare_exchange_weak(last, next));
    return next;
  }

  const std::string directory_;
  const KeptLimits limits_;
  std::atomic<int64_t> last_use_ns_ = 0;
};

}  // namespace

Result<std::unique_ptr<KeptTexts>> keep_texts_in_folder(const std::string& directory,
                                                        const KeptLimits& limits) {
  MF_RETURN_IF_ERROR(create_folder(directory, FileAccess::kPrivate));
  auto texts = std::make_unique<FolderTexts>(directory, limits);
  if (limits.makes_room) MF_RETURN_IF_ERROR(texts->trim());
  return std::unique_ptr<KeptTexts>(std::move(texts));
}

}  // namespace moeflux::serve
