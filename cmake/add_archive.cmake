# moeflux_add_archive(TARGET ARCHIVE): the objects of an archive become a part of a static library, when that is linked.
function(moeflux_add_archive target archive)
  if(APPLE)
    add_custom_command(TARGET ${target} POST_BUILD VERBATIM
      COMMAND libtool -static -o $<TARGET_FILE:${target}>.all $<TARGET_FILE:${target}> ${archive}
      COMMAND ${CMAKE_COMMAND} -E rename $<TARGET_FILE:${target}>.all $<TARGET_FILE:${target}>)
    return()
  endif()
  # Objects of Rust's own libraries carry bitcode beside their code. Where LLVM has left a plugin to GNU ar, that reads the
  # bitcode and lists none of their symbols: it goes first. ar's scripts take no name with a space, so it is given names
  # alone, in the folder of the library.
  get_filename_component(plain ${archive} NAME_WE)
  string(PREPEND plain plain_)
  set(script ${CMAKE_CURRENT_BINARY_DIR}/${plain}.mri)
  file(GENERATE OUTPUT ${script} CONTENT
    "open $<TARGET_FILE_NAME:${target}>\naddlib ${plain}.a\nsave\nend\n" TARGET ${target})
  add_custom_command(TARGET ${target} POST_BUILD VERBATIM WORKING_DIRECTORY $<TARGET_FILE_DIR:${target}>
    COMMAND ${CMAKE_OBJCOPY} --remove-section=.llvmbc --remove-section=.llvmcmd ${archive} ${plain}.a
    COMMAND sh -c "\"$1\" -M < \"$2\"" add_archive ${CMAKE_AR} ${script})
endfunction()
