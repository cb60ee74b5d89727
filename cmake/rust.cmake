# The library of rust/ as the target moeflux_rust, where a toolchain and the crates of Cargo.lock are at hand: nothing is
# downloaded here, tools/fetch_crates.sh does that. Without it everything but chat templates and constrained decoding
# works. MOEFLUX_CONSTRAINTS says whether it has constrained decoding, whose crates need a newer compiler.
set(MOEFLUX_RUST "AUTO" CACHE STRING "Build chat templates and constrained decoding, which need Rust 1.85 and 1.87: ON, OFF or AUTO (where it is found)")
# The presets give one folder to all of theirs: the crates are the same, whatever the C++ is compiled for.
set(MOEFLUX_CARGO_FOLDER "${CMAKE_BINARY_DIR}/rust" CACHE PATH "Where cargo keeps what it builds")

function(moeflux_find_rust missing)
  if(MOEFLUX_RUST STREQUAL "OFF")
    set(${missing} "MOEFLUX_RUST=OFF" PARENT_SCOPE)
    return()
  endif()
  if(CMAKE_CROSSCOMPILING)
    set(${missing} "cross-compiling" PARENT_SCOPE)
    return()
  endif()
  find_program(MOEFLUX_CARGO cargo PATHS $ENV{HOME}/.cargo/bin)
  if(NOT MOEFLUX_CARGO)
    set(${missing} "no cargo (tools/install_deps.sh installs it)" PARENT_SCOPE)
    return()
  endif()
  execute_process(COMMAND ${MOEFLUX_CARGO} --version OUTPUT_VARIABLE version ERROR_QUIET RESULT_VARIABLE status)
  string(REGEX MATCH "[0-9]+\\.[0-9]+" version "${version}")
  if(NOT status EQUAL 0 OR version VERSION_LESS 1.85)
    set(${missing} "${MOEFLUX_CARGO} is of Rust ${version}, expected 1.85 or newer" PARENT_SCOPE)
    return()
  endif()
  execute_process(COMMAND ${MOEFLUX_CARGO} fetch --locked --offline --quiet --manifest-path
      ${CMAKE_SOURCE_DIR}/rust/Cargo.toml OUTPUT_QUIET ERROR_QUIET RESULT_VARIABLE status)
  if(NOT status EQUAL 0)
    set(${missing} "the crates of rust/Cargo.lock are not here (tools/fetch_crates.sh fetches them)" PARENT_SCOPE)
    return()
  endif()
  set(${missing} "" PARENT_SCOPE)
  set(rust_version ${version} PARENT_SCOPE)
endfunction()

moeflux_find_rust(rust_missing)
if(rust_missing)
  if(MOEFLUX_RUST STREQUAL "ON")
    message(FATAL_ERROR "MOEFLUX_RUST=ON: ${rust_missing}")
  endif()
  message(STATUS "No chat templates, no constrained decoding: ${rust_missing}")
else()
  if(rust_version VERSION_LESS 1.87)
    message(STATUS "No constrained decoding: ${MOEFLUX_CARGO} is of Rust ${rust_version}, expected 1.87 or newer")
  else()
    set(MOEFLUX_CONSTRAINTS ON)
    set(rust_features --features constraints)
  endif()
  set(rust_library ${MOEFLUX_CARGO_FOLDER}/release/libmoeflux_rust.a)
  file(GLOB rust_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/rust/src/*.rs)
  add_custom_command(OUTPUT ${rust_library}
    COMMAND ${CMAKE_COMMAND} -E env CARGO_TARGET_DIR=${MOEFLUX_CARGO_FOLDER}
      ${MOEFLUX_CARGO} build --release --locked --offline --quiet ${rust_features}
    WORKING_DIRECTORY ${CMAKE_SOURCE_DIR}/rust
    DEPENDS ${rust_sources} ${CMAKE_SOURCE_DIR}/rust/Cargo.toml ${CMAKE_SOURCE_DIR}/rust/Cargo.lock
    COMMENT "cargo build" VERBATIM)
  add_custom_target(moeflux_rust_build DEPENDS ${rust_library})
  add_library(moeflux_rust INTERFACE)
  add_dependencies(moeflux_rust moeflux_rust_build)
  target_link_libraries(moeflux_rust INTERFACE $<BUILD_INTERFACE:${rust_library}> Threads::Threads ${CMAKE_DL_LIBS})
endif()
