// Chooses the .safetensors files of a folder that are its model, where no index says so or the
// index does not fit them.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "base/result.h"

namespace moeflux {

/// Names of the files, by what they are called: model.safetensors, else the one set
/// NAME-00001-of-0000N.safetensors that is whole, else the one file that is there. Fails with
/// kNotFound where there is none or where parts are missing, and with kInvalidArgument where
/// several could be meant; the message is without the folder.
Result<std::vector<std::string>> choose_shards(const std::vector<std::string>& names);

/// "a, b, c and 4 more", where three are shown at most.
std::string list_some(const std::vector<std::string>& names, size_t shown_max = 5);

}  // namespace moeflux
