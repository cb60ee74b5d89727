# Warnings, sanitizers and the two functions every module is declared with.

add_library(moeflux_options INTERFACE)
target_compile_options(moeflux_options INTERFACE
  -Wall -Wextra -Wconversion -Wno-sign-conversion -Wshadow -Wnon-virtual-dtor
  -Wno-missing-field-initializers  # designated initialisers leave out what has a default
  -fno-math-errno -ffp-contract=off
  -fmacro-prefix-map=${CMAKE_SOURCE_DIR}/=)
if(MOEFLUX_WERROR)
  target_compile_options(moeflux_options INTERFACE -Werror)
endif()
if(MOEFLUX_SANITIZE)
  target_compile_options(moeflux_options INTERFACE
    -fsanitize=${MOEFLUX_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_link_options(moeflux_options INTERFACE -fsanitize=${MOEFLUX_SANITIZE})
endif()
target_include_directories(moeflux_options INTERFACE ${CMAKE_SOURCE_DIR}/src)
if(CMAKE_SYSTEM_NAME STREQUAL "Linux")
  include(CheckPIESupported)
  check_pie_supported()
  target_link_options(moeflux_options INTERFACE LINKER:-z,relro LINKER:-z,now LINKER:-z,noexecstack)
endif()
# Checks of stack frames and of buffers' lengths, for modules that read what others wrote. Kernels (backend, quant) go
# without: theirs are the loops where a check would cost, over sizes that were checked before. A sanitizer has better ones.
# No -fcf-protection: the mark holds for a program only where all objects have it, and Rust's library has not. Under
# a sanitizer these modules compile at -Og in two thirds of the time of -O1, and no test waits for them.
add_library(moeflux_hardening INTERFACE)
if(MOEFLUX_SANITIZE)
  target_compile_options(moeflux_hardening INTERFACE -Og $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
else()
  target_compile_options(moeflux_hardening INTERFACE
    -fstack-protector-strong $<$<CONFIG:Release>:-U_FORTIFY_SOURCE> $<$<CONFIG:Release>:-D_FORTIFY_SOURCE=2>)
endif()

# moeflux_registry(PREFIX TYPE OBJECT files...)
# Every file defines `extern const TYPE OBJECT`, where @ stands for the file's name; sets PREFIX_DECLARATIONS and
# PREFIX_ADDRESSES for a list of them all. So adding one is adding a file, and the linker cannot drop it.
function(moeflux_registry prefix type object)
  set(declarations "")
  set(addresses "")
  foreach(source ${ARGN})
    get_filename_component(name ${source} NAME_WE)
    string(REPLACE "@" "${name}" path ${object})
    if(path MATCHES "^(.+)::(.+)$")
      string(APPEND declarations "namespace ${CMAKE_MATCH_1} { extern const ${type} ${CMAKE_MATCH_2}; }\n")
    else()
      string(APPEND declarations "extern const ${type} ${path};\n")
    endif()
    list(APPEND addresses "&${path}")
  endforeach()
  list(JOIN addresses ", " addresses)
  set(${prefix}_DECLARATIONS "${declarations}" PARENT_SCOPE)
  set(${prefix}_ADDRESSES "${addresses}" PARENT_SCOPE)
endfunction()

# moeflux_families(PREFIX TYPE ENDING list)
# Takes files that end in ENDING out of a list for moeflux_registry. Every one of them defines `std::span<const TYPE>
# <file>()` instead, several things at once; sets PREFIX_FAMILY_DECLARATIONS and PREFIX_FAMILY_CALLS.
function(moeflux_families prefix type ending list)
  set(declarations "")
  set(calls "")
  foreach(source ${${list}})
    if(source MATCHES "${ending}$")
      get_filename_component(name ${source} NAME_WE)
      string(APPEND declarations "std::span<const ${type}> ${name}();\n")
      list(APPEND calls "${name}()")
      list(REMOVE_ITEM ${list} ${source})
    endif()
  endforeach()
  list(JOIN calls ", " calls)
  set(${prefix}_FAMILY_DECLARATIONS "${declarations}" PARENT_SCOPE)
  set(${prefix}_FAMILY_CALLS "${calls}" PARENT_SCOPE)
  set(${list} "${${list}}" PARENT_SCOPE)
endfunction()

# moeflux_operations(PREFIX files...)
# Files named as operations are. Sets PREFIX_NAMES to the list of their structs (head_linear.cc: HeadLinear),
# PREFIX_INCLUDES to that of their headers, and PREFIX_DECLARATIONS to `void run(CONTEXT&, const ops::HeadLinear& op);` for
# each, where CONTEXT is ${PREFIX}_CONTEXT.
function(moeflux_operations prefix)
  set(names "")
  set(includes "")
  set(declarations "")
  foreach(source ${ARGN})
    get_filename_component(file ${source} NAME_WE)
    string(REPLACE "_" ";" words ${file})
    set(name "")
    foreach(word ${words})
      string(SUBSTRING ${word} 0 1 first)
      string(SUBSTRING ${word} 1 -1 rest)
      string(TOUPPER ${first} first)
      string(APPEND name "${first}${rest}")
    endforeach()
    list(APPEND names ${name})
    string(APPEND includes "#include \"backend/ops/${file}.h\"\n")
    string(APPEND declarations "void run(${${prefix}_CONTEXT}& context, const ops::${name}& op);\n")
  endforeach()
  list(TRANSFORM names PREPEND "ops::" OUTPUT_VARIABLE qualified)
  list(JOIN names ", " names)
  list(JOIN qualified ", " qualified)
  set(${prefix}_NAMES "${names}" PARENT_SCOPE)
  set(${prefix}_QUALIFIED "${qualified}" PARENT_SCOPE)
  set(${prefix}_INCLUDES "${includes}" PARENT_SCOPE)
  set(${prefix}_DECLARATIONS "${declarations}" PARENT_SCOPE)
endfunction()

# moeflux_precompile(TARGET)
# With MOEFLUX_PCH. Modules share what moeflux_base precompiles. Modules with kernels of several instruction sets are left
# alone: those share no compiled header. So are programs of tests, most of which are one joined file: a header of their
# own would take longer than it saves.
function(moeflux_precompile target)
  if(NOT MOEFLUX_PCH OR MOEFLUX_SANITIZED MATCHES "cpu|gpu")
    return()
  endif()
  if(target STREQUAL "moeflux_base")
    target_precompile_headers(${target} PRIVATE <algorithm> <functional> <map> <memory> <optional> <span> <string> <vector>
      ${CMAKE_SOURCE_DIR}/src/base/format.h ${CMAKE_SOURCE_DIR}/src/base/json.h)
  else()
    target_precompile_headers(${target} REUSE_FROM moeflux_base)
  endif()
endfunction()

# moeflux_join(TARGET)
# With MOEFLUX_UNITY the files of a target are compiled several at a time, so that they share what they include: four
# fifths of a file alone are headers. Names in anonymous namespaces therefore differ within a module and its tests.
# Files with flags of their own stay alone: kernels of several instruction sets must never share a function.
function(moeflux_join target)
  if(NOT MOEFLUX_UNITY)
    return()
  endif()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  get_target_property(sources ${target} SOURCES)
  # In equal parts: the headers of two files take as long as those of sixteen. Libraries have a part of many lines as two,
  # for whoever edits one of its files.
  get_target_property(type ${target} TYPE)
  list(LENGTH sources count)
  math(EXPR parts "(${count} + ${MOEFLUX_UNITY_FILES} - 1) / ${MOEFLUX_UNITY_FILES}")
  set(at 0)
  foreach(source ${sources})
    math(EXPR part "${at} * ${parts} / ${count}")
    math(EXPR half "${at} * 2 * ${parts} / ${count} % 2")
    math(EXPR at "${at} + 1")
    list(APPEND files_of_${part} ${source})
    list(APPEND half_${half}_of_${part} ${source})
    get_filename_component(source ${source} ABSOLUTE)
    string(FIND "${source}" "${CMAKE_SOURCE_DIR}/src/" found)
    if(found EQUAL 0 AND NOT type STREQUAL "EXECUTABLE")
      file(SIZE ${source} bytes)
      math(EXPR bytes_of_${part} "0${bytes_of_${part}} + ${bytes}")
    endif()
  endforeach()
  math(EXPR last "${parts} - 1")
  foreach(part RANGE ${last})
    if("0${bytes_of_${part}}" GREATER 160000)
      set_source_files_properties(${half_0_of_${part}} PROPERTIES UNITY_GROUP ${part})
      set_source_files_properties(${half_1_of_${part}} PROPERTIES UNITY_GROUP ${part}_1)
    else()
      set_source_files_properties(${files_of_${part}} PROPERTIES UNITY_GROUP ${part})
    endif()
  endforeach()
endfunction()

# moeflux_take_plain(TARGET LIST)
# With MOEFLUX_SANITIZED the objects of a target that no sanitizer is asked for are those of build/release, in the place of
# its sources. Three modules are compiled always: the shared library takes objects of the one, and CUDA changes the others.
function(moeflux_take_plain target list)
  set(part rest)
  if(target STREQUAL "moeflux_backend_cpu")
    set(part cpu)
  elseif(target MATCHES "^moeflux_(backend_gpu|emulator_kernels)$")
    set(part gpu)
  endif()
  if(NOT MOEFLUX_SANITIZED OR MOEFLUX_SANITIZED STREQUAL part OR target MATCHES "^moeflux_(library|backend_cuda|test_support)$")
    return()
  endif()
  set(plain ${CMAKE_SOURCE_DIR}/build/release)
  file(RELATIVE_PATH folder ${CMAKE_BINARY_DIR} ${CMAKE_CURRENT_BINARY_DIR})
  file(STRINGS ${plain}/build.ninja objects REGEX "^build ${folder}/CMakeFiles/${target}[.]dir/[^ ]+[.]o:")
  list(TRANSFORM objects REPLACE "^build ([^:]+):.*" "${plain}/\\1")
  set_source_files_properties(${objects} PROPERTIES EXTERNAL_OBJECT TRUE GENERATED TRUE)
  file(TOUCH ${CMAKE_BINARY_DIR}/empty.cc)  # what is made of objects alone has no language
  set(${list} ${objects} ${CMAKE_BINARY_DIR}/empty.cc PARENT_SCOPE)
endfunction()

# moeflux_own_files(LIST)
# Takes files of other modules out of a list: a folder below with a CMakeLists.txt is a module of its own.
function(moeflux_own_files list)
  foreach(file ${${list}})
    get_filename_component(folder ${file} DIRECTORY)
    while(NOT folder STREQUAL CMAKE_CURRENT_SOURCE_DIR)
      if(EXISTS ${folder}/CMakeLists.txt)
        list(REMOVE_ITEM ${list} ${file})
      endif()
      get_filename_component(folder ${folder} DIRECTORY)
    endwhile()
  endforeach()
  set(${list} "${${list}}" PARENT_SCOPE)
endfunction()

# moeflux_module(NAME [DEPENDS modules...] [PRIVATE libraries...])
# One folder, one static library: all *.cc of the folder and of its shelves, the folders below, but tests. Tests
# (*_test.cc) beside the sources join the module's test program.
function(moeflux_module name)
  cmake_parse_arguments(ARG "" "" "DEPENDS;PRIVATE;SOURCES" ${ARGN})
  if(NOT ARG_SOURCES)
    file(GLOB ARG_SOURCES CONFIGURE_DEPENDS *.cc */*.cc)
    list(FILTER ARG_SOURCES EXCLUDE REGEX "_test\\.cc$")
    moeflux_own_files(ARG_SOURCES)
  endif()
  moeflux_take_plain(moeflux_${name} ARG_SOURCES)
  add_library(moeflux_${name} STATIC ${ARG_SOURCES})
  set_property(GLOBAL APPEND PROPERTY MOEFLUX_MODULES ${name})
  list(TRANSFORM ARG_DEPENDS PREPEND moeflux_)
  target_link_libraries(moeflux_${name} PUBLIC moeflux_options ${ARG_DEPENDS} PRIVATE ${ARG_PRIVATE})
  if(NOT name MATCHES "^(backend|quant)")
    target_link_libraries(moeflux_${name} PRIVATE moeflux_hardening)
  endif()
  moeflux_join(moeflux_${name})
  # The public headers' names are those of others in what uses them; symbols of the library are hidden.
  if((name STREQUAL "base" OR "moeflux_base" IN_LIST ARG_DEPENDS) AND NOT name MATCHES "^(backend|quant|library)")
    moeflux_precompile(moeflux_${name})
  endif()
  file(GLOB_RECURSE tests CONFIGURE_DEPENDS *_test.cc)
  moeflux_own_files(tests)
  moeflux_tests(${name}_test DEPENDS ${name} SOURCES ${tests})
endfunction()

# moeflux_group(PROGRAM)
# Puts a program of tests into the group of its folder, MOEFLUX_TEST_GROUP: the target GROUP_tests builds a group's
# programs, and GROUP is a label of their cases. A sanitizer can so build and run one group alone.
function(moeflux_group program)
  if(NOT MOEFLUX_TEST_GROUP)
    message(FATAL_ERROR "${program}: no MOEFLUX_TEST_GROUP in ${CMAKE_CURRENT_SOURCE_DIR}")
  endif()
  if(NOT TARGET ${MOEFLUX_TEST_GROUP}_tests)
    add_custom_target(${MOEFLUX_TEST_GROUP}_tests)
  endif()
  add_dependencies(${MOEFLUX_TEST_GROUP}_tests ${program})
endfunction()

# moeflux_compile_fast(PROGRAM)
# For a program of tests. The tested code is in the modules, optimised as it ships: the program's own files compile at -Og
# in four fifths of the time that -O1 takes. g++ sees fewer paths there and suspects variables that all of them set. Gold
# links in half the time.
include(CheckLinkerFlag)
check_linker_flag(CXX -fuse-ld=gold MOEFLUX_HAS_GOLD)
function(moeflux_compile_fast program)
  if(MOEFLUX_HAS_GOLD)
    target_link_options(${program} PRIVATE -fuse-ld=gold)
  endif()
  if(MOEFLUX_SANITIZE OR CMAKE_BUILD_TYPE STREQUAL "Release")
    target_compile_options(${program} PRIVATE -Og $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
  endif()
endfunction()

# moeflux_tests(NAME DEPENDS modules... SOURCES files...)
# A gtest program whose cases become ctest cases.
function(moeflux_tests name)
  cmake_parse_arguments(ARG "" "" "DEPENDS;SOURCES" ${ARGN})
  if(NOT MOEFLUX_TESTS OR NOT ARG_SOURCES)
    return()
  endif()
  moeflux_take_plain(${name} ARG_SOURCES)
  add_executable(${name} ${ARG_SOURCES})
  moeflux_join(${name})
  list(TRANSFORM ARG_DEPENDS PREPEND moeflux_)
  target_link_libraries(${name} PRIVATE moeflux_options ${ARG_DEPENDS} GTest::gtest GTest::gtest_main)
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR})
  target_compile_definitions(${name} PRIVATE MOEFLUX_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
  moeflux_compile_fast(${name})
  # g++ 12 warns of strings that are joined by +, in a joined file more than alone (its bugs 105329 and 105651).
  target_compile_options(${name} PRIVATE
    $<$<CXX_COMPILER_ID:GNU>:-Wno-array-bounds -Wno-restrict -Wno-stringop-overflow -Wno-stringop-overread>)
  if(MOEFLUX_SANITIZE MATCHES "undefined")
    # Assertions expand to more checks than all of the modules have, and hold no arithmetic worth them.
    target_compile_options(${name} PRIVATE -fno-sanitize=undefined)
  endif()
  moeflux_group(${name})
  gtest_discover_tests(${name} DISCOVERY_TIMEOUT 60
    PROPERTIES LABELS ${MOEFLUX_TEST_GROUP} TIMEOUT ${MOEFLUX_CASE_SECONDS})
endfunction()

# moeflux_absent_test(NAME MISSING)
# Stands in for a test whose tool is missing here, so that it is listed as skipped; .ci/run lets nothing be skipped but
# for absent hardware.
function(moeflux_absent_test name missing)
  add_test(NAME ${name} COMMAND ${CMAKE_COMMAND} -E echo "skipped: ${missing}")
  set_tests_properties(${name} PROPERTIES SKIP_REGULAR_EXPRESSION "skipped:")
endfunction()
