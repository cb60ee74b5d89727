# A release for 64-bit Arm: release_toolchain.cmake with Debian's cross compiler and the root of `tools/release/root.sh
# arm64`.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(release_triple aarch64-linux-gnu)
set(release_folder release-root-arm64)
set(CMAKE_C_COMPILER ${release_triple}-gcc)
set(CMAKE_CXX_COMPILER ${release_triple}-g++)
include(${CMAKE_CURRENT_LIST_DIR}/release_toolchain.cmake)
# The cross compiler's own folder of headers has this system's C library, so that all folders are named here.
string(CONCAT CMAKE_CXX_FLAGS_INIT "-nostdinc -nostdinc++ -isystem /usr/${release_triple}/include/c++/12 "
  "-isystem /usr/${release_triple}/include/c++/12/${release_triple} "
  "-isystem /usr/lib/gcc-cross/${release_triple}/12/include "
  "-isystem ${release_root}/usr/include/${release_triple} -isystem ${release_root}/usr/include")
set(MOEFLUX_SYSTEM_HEADERS ${release_root}/usr/include/${release_triple} ${release_root}/usr/include)
set(CMAKE_CROSSCOMPILING_EMULATOR "qemu-aarch64;-L;${release_root}")
