// The headers of a model that has not been downloaded, as files that a planner opens.
#pragma once

#include <string>

#include "base/result.h"
#include "hub/fetcher.h"
#include "hub/repository.h"

namespace moeflux::hub {

/// A folder that goes with its owner.
class Preview {
 public:
  /// Makes `folder` and in it the files of the set: with the sizes that they have, headers where
  /// they belong and holes where the weights would be. Fails as Fetcher::run() does, with
  /// kCorruption for headers that contradict themselves, and with kUnsupported where there are too
  /// many files to ask each for its header.
  static Result<Preview> make(Fetcher& fetcher, const Repository& repository, const FileSet& set,
                              std::string folder);
  Preview(Preview&& other) noexcept;
  Preview& operator=(Preview&&) = delete;
  ~Preview();

  /// The path to open.
  const std::string& path() const { return path_; }

 private:
  explicit Preview(std::string folder) : folder_(std::move(folder)) {}

  std::string folder_;
  std::string path_;
};

}  // namespace moeflux::hub
