// Memory limits of Linux. A container's limit is set on any cgroup between ours and the root, in
// either of the two cgroup versions, so all of them are looked at.
#include "io/linux_memory.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <string_view>
#include <vector>

#include "base/units.h"
#include "io/file.h"

namespace moeflux {
namespace {

constexpr uint64_t kProcFileBytesMax = 4 * kMiB;

std::string read_or_empty(const std::string& path) {
  Result<std::string> text = read_text_file(path, kProcFileBytesMax);
  return text.ok() ? std::move(text).value() : std::string();
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const size_t end = text.find(separator);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

/// The number `text` begins with after spaces; nullopt for "max" and anything else.
std::optional<uint64_t> leading_number(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(" \t"), text.size()));
  uint64_t value = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
  if (parsed.ec != std::errc()) return std::nullopt;
  return value;
}

/// The number in the line that begins with `key` (a whole word, ':' or ' ' included).
std::optional<uint64_t> find_number(std::string_view text, std::string_view key) {
  for (const std::string_view line : split(text, '\n')) {
    if (line.substr(0, key.size()) == key) return leading_number(line.substr(key.size()));
  }
  return std::nullopt;
}

std::optional<uint64_t> read_number(const std::string& path) {
  return leading_number(read_or_empty(path));
}

struct CgroupVersion {
  std::string_view file_system;
  std::string_view controller;  // in /proc/self/cgroup; empty in version 2
  std::string_view usual_mount;
  std::array<std::string_view, 2> limit_files;  // an empty name is skipped
  std::string_view usage_file;
  std::string_view reclaimable_key;
};

// memory.high is no hard limit, but beyond it the kernel throttles the process to a crawl.
// Only inactive page cache counts as reclaimable: the kernel gives the active list up late and at
// the price of the reads that are hot.
constexpr std::array<CgroupVersion, 2> kCgroupVersions = {{
    {"cgroup2",
     "",
     "/sys/fs/cgroup",
     {"memory.max", "memory.high"},
     "memory.current",
     "inactive_file "},
    {"cgroup",
     "memory",
     "/sys/fs/cgroup/memory",
     {"memory.limit_in_bytes", ""},
     "memory.usage_in_bytes",
     "total_inactive_file "},
}};

bool contains(std::string_view comma_list, std::string_view word) {
  const auto words = split(comma_list, ',');
  return std::find(words.begin(), words.end(), word) != words.end();
}

struct CgroupMount {
  std::string point;  // where it is mounted
  std::string root;   // the cgroup that is visible there
};

/// From /proc/self/mountinfo: "31 23 0:28 ROOT POINT options - TYPE source super-options".
CgroupMount find_mount(const std::string& root, const CgroupVersion& version) {
  const std::string mounts = read_or_empty(root + "/proc/self/mountinfo");
  for (const std::string_view line : split(mounts, '\n')) {
    const size_t dash = line.find(" - ");
    if (dash == std::string_view::npos) continue;
    const auto place = split(line.substr(0, dash), ' ');
    const auto kind = split(line.substr(dash + 3), ' ');
    if (place.size() < 5 || kind.size() < 3 || kind[0] != version.file_system) continue;
    if (!version.controller.empty() && !contains(kind[2], version.controller)) continue;
    return {std::string(place[4]), std::string(place[3])};
  }
  return {std::string(version.usual_mount), "/"};
}

/// Our cgroup from /proc/self/cgroup ("4:memory:/a/b", "0::/a/b"), nullopt when we have none.
std::optional<std::string> find_own_cgroup(const std::string& root, const CgroupVersion& version) {
  const std::string text = read_or_empty(root + "/proc/self/cgroup");
  for (const std::string_view line : split(text, '\n')) {
    const size_t first = line.find(':');
    if (first == std::string_view::npos) continue;
    const size_t second = line.find(':', first + 1);
    if (second == std::string_view::npos) continue;
    const std::string_view controllers = line.substr(first + 1, second - first - 1);
    const bool ours = version.controller.empty() ? line.substr(0, first) == "0"
                                                 : contains(controllers, version.controller);
    if (ours) return std::string(line.substr(second + 1));
  }
  return std::nullopt;
}

/// The cgroup as a path below the mount point. A container may see its own cgroup as the mount's
/// root while /proc names it from the host's root.
std::string path_below_mount(const std::string& cgroup, const CgroupMount& mount) {
  if (cgroup.find("/..") != std::string::npos) return "";  // outside of our cgroup namespace
  std::string path = cgroup;
  if (mount.root != "/") {
    const bool below = path.compare(0, mount.root.size(), mount.root) == 0 &&
                       (path.size() == mount.root.size() || path[mount.root.size()] == '/');
    path = below ? path.substr(mount.root.size()) : "";
  }
  while (!path.empty() && path.back() == '/') path.pop_back();
  return path;
}

/// Lowers `memory` to what one cgroup folder leaves.
void apply_cgroup(const std::string& folder, const CgroupVersion& version, HostMemory& memory) {
  std::optional<uint64_t> limit;
  for (const std::string_view name : version.limit_files) {
    if (name.empty()) continue;
    const auto found = read_number(folder + "/" + std::string(name));
    if (found) limit = std::min(*found, limit.value_or(UINT64_MAX));
  }
  if (!limit) return;
  memory.total_bytes = std::min(memory.total_bytes, *limit);
  const uint64_t usage = read_number(folder + "/" + std::string(version.usage_file)).value_or(0);
  const uint64_t reclaimable =
      find_number(read_or_empty(folder + "/memory.stat"), version.reclaimable_key).value_or(0);
  const uint64_t held = usage - std::min(usage, reclaimable);
  memory.available_bytes = std::min(memory.available_bytes, *limit - std::min(*limit, held));
}

void apply_cgroups(const std::string& root, const CgroupVersion& version, HostMemory& memory) {
  const auto cgroup = find_own_cgroup(root, version);
  if (!cgroup) return;
  const CgroupMount mount = find_mount(root, version);
  std::string below = path_below_mount(*cgroup, mount);
  while (true) {
    apply_cgroup(root + mount.point + below, version, memory);
    if (below.empty()) return;
    below.resize(below.rfind('/'));
  }
}

uint64_t kib_to_bytes(std::optional<uint64_t> kib) {
  return std::min(kib.value_or(0), UINT64_MAX / kKiB) * kKiB;
}

}  // namespace

HostMemory query_linux_memory(const std::string& root) {
  const std::string meminfo = read_or_empty(root + "/proc/meminfo");
  HostMemory memory;
  memory.total_bytes = kib_to_bytes(find_number(meminfo, "MemTotal:"));
  memory.available_bytes = kib_to_bytes(find_number(meminfo, "MemAvailable:"));
  for (const CgroupVersion& version : kCgroupVersions) apply_cgroups(root, version, memory);
  return memory;
}

uint64_t linux_peak_resident_bytes(const std::string& root) {
  return kib_to_bytes(find_number(read_or_empty(root + "/proc/self/status"), "VmHWM:"));
}

}  // namespace moeflux
