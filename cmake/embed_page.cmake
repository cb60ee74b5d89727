# cmake -DOUT=file.cc -DFOLDER=build/web -P embed_page.cmake
# The page's files as bytes. FOLDER/files.txt lists them, "NAME TYPE" a line, and FOLDER/NAME.gz has each; without it
# the page is empty.
set(arrays "")
set(rows "")
set(files "")
if(EXISTS ${FOLDER}/files.txt)
  file(STRINGS ${FOLDER}/files.txt files)
endif()
set(number 0)
foreach(line IN LISTS files)
  string(REGEX MATCH "^([^ ]+) (.+)$" found "${line}")
  set(name ${CMAKE_MATCH_1})
  set(type ${CMAKE_MATCH_2})
  file(READ ${FOLDER}/${name}.gz bytes HEX)
  string(REGEX REPLACE "(................................................................)" "\\1\n" bytes "${bytes}")
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
  string(APPEND arrays "constexpr unsigned char kFile${number}[] = {\n${bytes}};\n")
  string(APPEND rows "      {\"${name}\", \"${type}\", text_of(kFile${number})},\n")
  math(EXPR number "${number} + 1")
endforeach()
if(number GREATER 0)
  set(body "template <size_t n>
std::string_view text_of(const unsigned char (&bytes)[n]) {
  return {reinterpret_cast<const char*>(bytes), n};
}

}  // namespace

std::span<const PageFile> page_files() {
  static const PageFile kFiles[] = {\n${rows}  };
  return kFiles;
}
")
else()
  set(body "}  // namespace\n\nstd::span<const PageFile> page_files() { return {}; }\n")
endif()
file(WRITE ${OUT} "// Written by cmake/embed_page.cmake.
#include \"serve/page/page.h\"

namespace moeflux::serve {
namespace {

${arrays}
${body}
}  // namespace moeflux::serve
")
