# A release for x86-64: the root that tools/release/root.sh makes, with an older C library and static libraries, and this
# system's compiler, whose own libraries become a part of what is built.
if(NOT release_triple)
  set(release_triple x86_64-linux-gnu)
  set(release_folder release-root)
endif()
set(release_root ${CMAKE_CURRENT_LIST_DIR}/../build/${release_folder})
get_filename_component(release_root ${release_root} ABSOLUTE)
set(CMAKE_SYSROOT ${release_root})
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(CMAKE_LIBRARY_ARCHITECTURE ${release_triple})
set(release_libraries ${release_root}/usr/lib/${release_triple})
set(ENV{PKG_CONFIG_LIBDIR} "${release_libraries}/pkgconfig:${release_root}/usr/share/pkgconfig")
set(ENV{PKG_CONFIG_SYSROOT_DIR} ${release_root})
# -B: the start files and libraries of the root come before the compiler's own folders, which are this system's.
string(CONCAT release_link_flags "-B${release_libraries} -L${release_root}/lib/${release_triple} "
  "-L${release_root}/lib/unwind -static-libstdc++ -static-libgcc ${release_root}/lib/libstdcxx.o")
foreach(kind EXE SHARED MODULE)
  set(CMAKE_${kind}_LINKER_FLAGS_INIT "${release_link_flags}")
endforeach()
# Parts of the C library that were libraries of their own.
set(CMAKE_CXX_STANDARD_LIBRARIES_INIT "-Wl,--as-needed -lpthread -ldl")
