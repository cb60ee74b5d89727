# cmake -DOUT=file.cc -DROOT=folder -DFILES=a.h;b.h -P embed_headers.cmake
# Kernel headers as strings: backend/metal/metal_text.h has them.
set(entries "")
foreach(file ${FILES})
  file(READ ${ROOT}/${file} text)
  string(APPEND entries "    {\"${file}\", R\"embedded(${text})embedded\"},\n")
endforeach()
file(WRITE ${OUT} "// Written by cmake/embed_headers.cmake.
#include \"backend/metal/metal_text.h\"

namespace moeflux::gpu {

std::span<const SourceFile> kernel_headers() {
  static const SourceFile kFiles[] = {
${entries}  };
  return kFiles;
}

}  // namespace moeflux::gpu
")
