# moeflux_find_python(OUT): the first python3 of the PATH, then of the system's folders, that has NumPy and its own
# headers; nothing if none has. A version manager's python3, first on the PATH, often has no NumPy when the system's has.
function(moeflux_find_python out)
  string(REPLACE ":" ";" folders "$ENV{PATH}:/usr/local/bin:/usr/bin:/opt/homebrew/bin")
  foreach(folder ${folders})
    if(EXISTS "${folder}/python3")
      execute_process(RESULT_VARIABLE status OUTPUT_QUIET ERROR_QUIET COMMAND "${folder}/python3" -c
        "import numpy, os, sysconfig; os.stat(os.path.join(sysconfig.get_path('include'), 'Python.h'))")
      if(status STREQUAL "0")
        set(${out} "${folder}/python3" PARENT_SCOPE)
        return()
      endif()
    endif()
  endforeach()
endfunction()
