// A shelf whose entries are files of a folder.
#pragma once

#include <memory>

#include "store/shelf.h"

namespace moeflux {

Result<std::unique_ptr<Shelf>> open_folder_shelf(ShelfOptions options);

}  // namespace moeflux
