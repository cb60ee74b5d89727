# 64-bit Arm on another machine: Debian's cross compiler, the libraries that tools/install_arm64.sh unpacked, and
# qemu-aarch64 to run what was built.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
get_filename_component(arm64_root ${CMAKE_CURRENT_LIST_DIR}/../build/arm64-root ABSOLUTE)
set(arm64_libraries ${arm64_root}/usr/lib/aarch64-linux-gnu)
set(CMAKE_FIND_ROOT_PATH ${arm64_root})
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
set(ENV{PKG_CONFIG_LIBDIR} "${arm64_libraries}/pkgconfig:${arm64_root}/usr/share/pkgconfig")
set(ENV{PKG_CONFIG_SYSROOT_DIR} ${arm64_root})
# Like every user's processor here: dot products and 8-bit matrix products, so that all kernels run.
set(CMAKE_CROSSCOMPILING_EMULATOR
  "qemu-aarch64;-cpu;max;-L;/usr/aarch64-linux-gnu;-E;LD_LIBRARY_PATH=${arm64_libraries}")
