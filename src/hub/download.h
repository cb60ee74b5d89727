// Files of a repository into the cache: ranges in parallel, what is there already kept, nothing
// visible before its hash is right.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <stop_token>
#include <string_view>

#include "base/result.h"
#include "base/units.h"
#include "hub/fetcher.h"
#include "hub/hub_cache.h"
#include "hub/repository.h"

namespace moeflux::hub {

struct DownloadOptions {
  uint64_t piece_bytes = 64 * kMiB;  // that a request asks for
  std::stop_token stop;
  /// Called with the bytes of all files that are there.
  std::function<void(uint64_t done_bytes)> progress;
  /// Called once while another process downloads one of the files.
  std::function<void()> waits;
};

/// The answer of the hub's API.
Result<Repository> ask_repository(Fetcher& fetcher, const std::string& name,
                                  std::string_view revision);
std::string file_url(const HubSettings& settings, const Repository& repository,
                     std::string_view file);

uint64_t missing_bytes(const HubCache& cache, const Repository& repository,
                       std::span<const RemoteFile> files);

/// Downloads what is missing and makes all of the files visible together. Fails with
/// kResourceExhausted where the drive has no room, with kCorruption where the bytes do not have the
/// hash that the hub says, and as Fetcher::run() does. Finished pieces stay for the next time.
Status download(Fetcher& fetcher, const HubCache& cache, const Repository& repository,
                std::string_view revision, std::span<const RemoteFile> files,
                const DownloadOptions& options);

}  // namespace moeflux::hub
