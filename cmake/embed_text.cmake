# cmake -DOUT=file.cc -DFILE=text -DHEADER=a.h -DNAMESPACE=a::b -DFUNCTION=name -P embed_text.cmake
# A file's text as a function that returns it.
file(READ ${FILE} text)
file(WRITE ${OUT} "// Written by cmake/embed_text.cmake.
#include \"${HEADER}\"

namespace ${NAMESPACE} {

std::string_view ${FUNCTION}() { return R\"embedded(${text})embedded\"; }

}  // namespace ${NAMESPACE}
")
