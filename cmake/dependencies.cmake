# Third-party libraries, from the system's packages; nothing is downloaded.
# A toolchain that names all folders of headers has the system's last: libraries' packages must not name it before.
list(APPEND CMAKE_CXX_IMPLICIT_INCLUDE_DIRECTORIES ${MOEFLUX_SYSTEM_HEADERS})
find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)
find_package(fmt REQUIRED)
find_package(nlohmann_json REQUIRED)
pkg_check_modules(PCRE2 REQUIRED IMPORTED_TARGET libpcre2-8)
pkg_check_modules(UTF8PROC REQUIRED IMPORTED_TARGET libutf8proc)
pkg_check_modules(XXHASH REQUIRED IMPORTED_TARGET libxxhash)  # its header alone
# Optional: without it, files are read by threads.
option(MOEFLUX_URING "Read with io_uring where liburing is found (Linux)" ON)
if(MOEFLUX_URING AND CMAKE_SYSTEM_NAME STREQUAL "Linux")
  pkg_check_modules(URING IMPORTED_TARGET liburing>=2.0)
endif()
# Optional: without its headers there is no HTTP server.
option(MOEFLUX_HTTP "Build the HTTP server where Boost is found" ON)
if(MOEFLUX_HTTP)
  if(POLICY CMP0167)
    cmake_policy(SET CMP0167 NEW)  # Boost's own package instead of CMake's list of versions
  endif()
  find_package(Boost 1.74 QUIET)
endif()
# Optional: without it nothing is downloaded.
option(MOEFLUX_PULL "Download models where libcurl is found" ON)
if(MOEFLUX_PULL)
  pkg_check_modules(CURL IMPORTED_TARGET libcurl>=7.66)
endif()
if(NOT TARGET PkgConfig::CURL)
  message(STATUS "moeflux pull is left out: no libcurl (tools/install_deps.sh run)")
endif()
# Optional: without it lines of conversations at a terminal are not edited.
option(MOEFLUX_LIBEDIT "Edit lines of conversations where libedit is found" ON)
if(MOEFLUX_LIBEDIT)
  pkg_check_modules(LIBEDIT IMPORTED_TARGET libedit)
endif()
if(MOEFLUX_TESTS)
  find_package(GTest REQUIRED)
  include(GoogleTest)
endif()
if(MOEFLUX_BENCHMARKS)
  find_package(benchmark REQUIRED)
endif()
