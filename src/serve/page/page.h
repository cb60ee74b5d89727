// The web page that the build embedded: files made from web/ by web/build.mjs.
#pragma once

#include <span>
#include <string_view>

namespace moeflux::serve {

struct PageFile {
  std::string_view name;  // "index.html", or with a hash of its bytes: "app-1a2b3c4d.js"
  std::string_view type;  // its Content-Type, of UTF-8
  std::string_view gzip;  // its compressed bytes
};

/// All files of the page; none where it was not built. Generated; see cmake/embed_page.cmake.
std::span<const PageFile> page_files();

}  // namespace moeflux::serve
