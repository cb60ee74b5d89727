#include "engine/prefix_folder.h"

#include <algorithm>
#include <array>
#include <memory>
#include <utility>

#include "base/format.h"
#include "checkpoint/checksum.h"
#include "engine/snapshot.h"
#include "io/file.h"
#include "io/output_folder.h"

namespace moeflux {
namespace {

// OWNER-TOKENS.snapshot, both of 16 hexadecimal digits.
constexpr std::string_view kSuffix = ".snapshot";
constexpr size_t kDigits = 16;
constexpr size_t kNameBytes = kDigits + 1 + kDigits + kSuffix.size();
constexpr std::string_view kTemporary = ".tmp-";
// Clocks of machines that share a folder differ by less. A time beyond it says nothing, and what
// has it must not stay for ever.
constexpr int64_t kClockSlackNs = int64_t{3600} * 1'000'000'000;

bool is_state_name(std::string_view name) {
  if (name.size() != kNameBytes || name[kDigits] != '-' || !name.ends_with(kSuffix)) return false;
  const auto are_hex = [](std::string_view text) {
    return text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
  };
  return are_hex(name.substr(0, kDigits)) && are_hex(name.substr(kDigits + 1, kDigits));
}

// The name that an AtomicFileWriter gives a state that is not whole.
bool is_temporary_name(std::string_view name) {
  return is_state_name(name.substr(0, kNameBytes)) &&
         name.substr(std::min(kNameBytes, name.size())).starts_with(kTemporary);
}

}  // namespace

PrefixFolder::PrefixFolder(std::string directory, uint64_t owner)
    : directory_(std::move(directory)), own_prefix_(checksum_text(owner) + "-") {}

Status PrefixFolder::create() const { return create_folder(directory_, FileAccess::kPrivate); }

std::string PrefixFolder::path_of(uint64_t tokens) const {
  return path_of(formatted("{}{}{}", own_prefix_, checksum_text(tokens), kSuffix));
}

std::string PrefixFolder::path_of(const std::string& name) const {
  return formatted("{}/{}", directory_, name);
}

bool PrefixFolder::is_own(std::string_view name) const { return name.starts_with(own_prefix_); }

// Another owner's file counts as a state if it begins as one of this version; nothing else in it is
// trusted.
bool PrefixFolder::is_state(const FileUse& file) const {
  if (!is_state_name(file.name)) return false;
  if (is_own(file.name)) return true;
  const Result<std::unique_ptr<File>> opened = open_file(path_of(file.name));
  std::array<std::byte, kSnapshotBeginningBytes> begin = {};
  return opened.ok() && (*opened)->read_at(0, begin).ok() && begins_as_snapshot(begin);
}

Result<std::vector<FileUse>> PrefixFolder::list() const {
  MF_ASSIGN_OR_RETURN(const std::vector<FileUse> files, list_file_uses(directory_));
  const int64_t latest = wall_clock_ns() + kClockSlackNs;
  std::vector<FileUse> states;
  for (const FileUse& file : files) {
    if (is_temporary_name(file.name)) (void)remove_abandoned_file(path_of(file.name));
    if (!is_state(file)) continue;
    states.push_back({file.name, file.size_bytes, file.used_ns > latest ? 0 : file.used_ns});
  }
  return states;
}

Result<std::vector<FileUse>> PrefixFolder::trim(uint64_t capacity_bytes) const {
  MF_ASSIGN_OR_RETURN(std::vector<FileUse> states, list());
  return remove_oldest_files(directory_, std::move(states), {.bytes_max = capacity_bytes});
}

// A state whose time cannot be set, such as another user's, is used all the same.
void PrefixFolder::note_use(const std::string& path) {
  last_use_ns_ = std::max(wall_clock_ns(), last_use_ns_ + 1);
  (void)note_file_use(path, last_use_ns_);
}

}  // namespace moeflux
