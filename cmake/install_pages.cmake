# Installs what the program says of itself: manual pages and completions of shells. Run by `cmake --install`, with
# program (a command), man_folder and data_folder.
set(prefix "$ENV{DESTDIR}${CMAKE_INSTALL_PREFIX}")

function(moeflux_install_output file)
  get_filename_component(folder "${file}" DIRECTORY)
  file(MAKE_DIRECTORY "${folder}")
  execute_process(COMMAND ${program} ${ARGN} OUTPUT_FILE "${file}" RESULT_VARIABLE failed)
  if(failed)
    message(FATAL_ERROR "${program} ${ARGN}: ${failed}")
  endif()
  message(STATUS "Installing: ${file}")
endfunction()

execute_process(COMMAND ${program} man --list OUTPUT_VARIABLE pages OUTPUT_STRIP_TRAILING_WHITESPACE)
string(REPLACE "\n" ";" pages "${pages}")
foreach(page ${pages})
  moeflux_install_output("${prefix}/${man_folder}/man1/${page}.1" man ${page})
endforeach()
moeflux_install_output("${prefix}/${data_folder}/bash-completion/completions/moeflux" completion bash)
moeflux_install_output("${prefix}/${data_folder}/zsh/site-functions/_moeflux" completion zsh)
moeflux_install_output("${prefix}/${data_folder}/fish/vendor_completions.d/moeflux.fish" completion fish)
