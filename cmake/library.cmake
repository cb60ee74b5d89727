# The library as others use it: shared, with the symbols of moeflux.h and no others, and static; headers, CMake package
# and pkg-config files. Both hold every module but the program's: cli, conversion, the laboratory,
# downloads.
include(CMakePackageConfigHelpers)
include(add_archive)

# moeflux_public_library(TARGET EXPORT_NAME): what shared and static have in common.
function(moeflux_public_library target export_name)
  set_target_properties(${target} PROPERTIES OUTPUT_NAME moeflux EXPORT_NAME ${export_name} LINKER_LANGUAGE CXX)
  target_compile_features(${target} INTERFACE cxx_std_20)  # moeflux.hpp
  target_include_directories(${target} INTERFACE
    $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  if(MOEFLUX_PORTABLE AND export_name STREQUAL "static")
    return()  # it would need this system's libraries
  endif()
  install(TARGETS ${target} EXPORT moeflux-${export_name}
    LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT library)
  install(EXPORT moeflux-${export_name} NAMESPACE moeflux:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/moeflux
    COMPONENT library)
endfunction()

add_library(moeflux_shared SHARED $<TARGET_OBJECTS:moeflux_library>)
target_link_libraries(moeflux_shared PRIVATE moeflux_library)
# Below 1.0 the interface changes with the minor version.
set_target_properties(moeflux_shared PROPERTIES VERSION ${PROJECT_VERSION}
  SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
if(APPLE)
  target_link_options(moeflux_shared PRIVATE "LINKER:-exported_symbol,_mf_*")
else()
  set(script ${CMAKE_CURRENT_SOURCE_DIR}/cmake/exported_symbols.map)
  target_link_options(moeflux_shared PRIVATE "LINKER:--version-script=${script}")
  set_target_properties(moeflux_shared PROPERTIES LINK_DEPENDS ${script})
  if(NOT MOEFLUX_SANITIZE)
    target_link_options(moeflux_shared PRIVATE "LINKER:-z,defs")
  endif()
endif()
moeflux_public_library(moeflux_shared moeflux)

get_property(modules GLOBAL PROPERTY MOEFLUX_MODULES)
list(REMOVE_ITEM modules cli convert lab hub)
list(TRANSFORM modules REPLACE "(.+)" "$<TARGET_OBJECTS:moeflux_\\1>" OUTPUT_VARIABLE objects)
# Kernels come from nvcc as an object that TARGET_OBJECTS leaves out.
if(MOEFLUX_CUDA)
  get_property(kernels GLOBAL PROPERTY MOEFLUX_CUDA_KERNELS)
  set_source_files_properties(${kernels} PROPERTIES EXTERNAL_OBJECT TRUE GENERATED TRUE)
  list(APPEND objects ${kernels})
  set(cuda_libraries ${CMAKE_DL_LIBS} rt)
endif()
add_library(moeflux_static STATIC ${objects})
# The libraries of CUDA and Rust become a part of the archive, so that programs that link it need nothing more.
if(MOEFLUX_CUDA)
  add_dependencies(moeflux_static moeflux_backend_cuda)  # makes the kernels
  moeflux_add_archive(moeflux_static ${MOEFLUX_CUDA_RUNTIME})
endif()
if(TARGET moeflux_rust)
  add_dependencies(moeflux_static moeflux_rust_build)
  moeflux_add_archive(moeflux_static ${rust_library})
endif()
set(requires fmt libpcre2-8 libutf8proc)
target_link_libraries(moeflux_static
  PRIVATE fmt::fmt PkgConfig::PCRE2 PkgConfig::UTF8PROC Threads::Threads ${cuda_libraries})
if(TARGET PkgConfig::URING)
  target_link_libraries(moeflux_static PRIVATE PkgConfig::URING)
  list(APPEND requires liburing)
endif()
moeflux_public_library(moeflux_static static)
list(JOIN requires " " MOEFLUX_REQUIRES)
if(APPLE)
  set(frameworks "-framework Metal" "-framework Foundation" "-framework CoreGraphics")
  target_link_libraries(moeflux_static PRIVATE ${frameworks})
  list(JOIN frameworks " " MOEFLUX_CXX_RUNTIME)
  string(PREPEND MOEFLUX_CXX_RUNTIME "-lc++ ")
else()
  set(MOEFLUX_CXX_RUNTIME "-lstdc++ -lm -pthread")
  if(MOEFLUX_CUDA)
    string(APPEND MOEFLUX_CXX_RUNTIME " -ldl -lrt")
  endif()
endif()

install(DIRECTORY include/moeflux DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT library)
configure_package_config_file(cmake/moefluxConfig.cmake.in ${CMAKE_CURRENT_BINARY_DIR}/moefluxConfig.cmake
  INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/moeflux)
write_basic_package_version_file(${CMAKE_CURRENT_BINARY_DIR}/moefluxConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/moefluxConfig.cmake ${CMAKE_CURRENT_BINARY_DIR}/moefluxConfigVersion.cmake
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/moeflux COMPONENT library)

# Found from the files themselves, so that the prefix may be moved.
file(RELATIVE_PATH MOEFLUX_PREFIX_FROM_PC "/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/")
set(packages moeflux)
if(NOT MOEFLUX_PORTABLE)
  list(APPEND packages moeflux-static)
endif()
foreach(package ${packages})
  configure_file(cmake/${package}.pc.in ${package}.pc @ONLY)
  install(FILES ${CMAKE_CURRENT_BINARY_DIR}/${package}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig
    COMPONENT library)
endforeach()
