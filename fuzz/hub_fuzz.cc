// A hub's answer about a model: refused, or a list of files whose names, sizes and hashes are what
// the cache relies on. Before the first zero byte stands a model's name, as it is typed.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "hub/repository.h"
#include "hub/settings.h"

namespace {

using namespace std::string_view_literals;

void require(bool condition) {
  if (!condition) std::abort();
}

void check(const moeflux::hub::Repository& repository, std::string_view part) {
  require(repository.commit.size() == 40);
  for (const moeflux::hub::RemoteFile& file : repository.files) {
    require(!file.name.empty() && file.name.front() != '/' && file.name.back() != '/');
    require(("/" + file.name + "/").find("/../") == std::string::npos);
    require(file.name.find_first_of("\n\r\0\\"sv) == std::string::npos);
    require(file.hash.find_first_not_of("0123456789abcdef") == std::string::npos);
    require(file.hash.size() == (file.is_large() ? 64u : 40u));
  }
  const auto sets = moeflux::hub::choose_file_sets(repository, part);
  if (!sets.ok()) return;
  for (const moeflux::hub::FileSet& set : *sets) {
    require(!set.files.empty());
    uint64_t bytes = 0;
    for (const moeflux::hub::RemoteFile& file : set.files) bytes += file.size_bytes;
    require(bytes == set.bytes);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const std::string_view typed = text.substr(0, text.find('\0'));
  std::string_view json = text.substr(std::min(text.size(), typed.size() + 1));
  const auto name = moeflux::hub::parse_model_name(typed);
  if (name.ok()) require(name->repository.find("..") == std::string::npos);
  (void)moeflux::hub::parse_url(typed);
  (void)moeflux::hub::quant_label(typed);
  if (const auto found = moeflux::hub::parse_repository("org/model", json); found.ok()) {
    check(*found, name.ok() ? std::string_view(name->part) : "");
  }
  return 0;
}
