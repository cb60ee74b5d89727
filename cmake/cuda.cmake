# Finds nvcc with the static runtime beside it, wherever they were installed (a toolkit, a package, or the wheels that
# tools/install_cuda.sh brings), and compiles the kernels with it. The host code is ordinary C++.

# Machine code runs on GPUs of its own major version from its minor version on, PTX on all newer ones: 8.9's for 10.x and
# 11.x, 12.0's for what is to come. 90a has wgmma, its PTX runs nowhere else.
set(MOEFLUX_CUDA_ARCHITECTURES "80-real;86-real;89;90a-real;120" CACHE STRING
  "Compute capabilities to compile kernels for, as in CMAKE_CUDA_ARCHITECTURES: machine code and PTX, or one with -real or -virtual")

option(MOEFLUX_CUDA_QUICK "Compile CUDA's kernels in half the time, where no GPU will run them" OFF)

if(MOEFLUX_CUDA)
  file(GLOB wheel_folders "${CMAKE_SOURCE_DIR}/build/cuda-toolkit/lib/python3*/site-packages/nvidia/cu*/bin")
  find_program(MOEFLUX_NVCC nvcc
    HINTS ENV CUDA_HOME ENV CUDA_PATH PATH_SUFFIXES bin
    PATHS ${wheel_folders} /usr/local/cuda/bin)
  if(NOT MOEFLUX_NVCC)
    message(FATAL_ERROR "MOEFLUX_CUDA=ON, but there is no nvcc: run tools/install_cuda.sh, or set CUDA_HOME")
  endif()
  get_filename_component(nvcc_real ${MOEFLUX_NVCC} REALPATH)
  get_filename_component(nvcc_folder ${nvcc_real} DIRECTORY)
  get_filename_component(cuda_root ${nvcc_folder} DIRECTORY)
  # Outside of a toolchain's root, where that of a release has none.
  find_path(MOEFLUX_CUDA_INCLUDE cuda_runtime_api.h NO_DEFAULT_PATH NO_CMAKE_FIND_ROOT_PATH
    PATHS ${cuda_root}/include ${cuda_root}/targets/x86_64-linux/include ${cuda_root}/targets/sbsa-linux/include
    REQUIRED)
  find_library(MOEFLUX_CUDA_RUNTIME libcudart_static.a NO_DEFAULT_PATH NO_CMAKE_FIND_ROOT_PATH
    PATHS ${cuda_root}/lib64 ${cuda_root}/lib ${cuda_root}/targets/x86_64-linux/lib
    ${cuda_root}/targets/sbsa-linux/lib REQUIRED)
  execute_process(COMMAND ${MOEFLUX_NVCC} --version OUTPUT_VARIABLE nvcc_text COMMAND_ERROR_IS_FATAL ANY)
  string(REGEX MATCH "release ([0-9]+[.][0-9]+)" nvcc_text "${nvcc_text}")
  set(MOEFLUX_NVCC_VERSION ${CMAKE_MATCH_1})
  message(STATUS "CUDA kernels: ${MOEFLUX_NVCC}, compute capabilities ${MOEFLUX_CUDA_ARCHITECTURES}")
endif()

# moeflux_cuda_object(OUT file.cu): compiles a kernel file; OUT becomes the object.
function(moeflux_cuda_object out source)
  set(object ${CMAKE_CURRENT_BINARY_DIR}/${source}.o)
  get_filename_component(folder ${object} DIRECTORY)
  file(MAKE_DIRECTORY ${folder})
  set(flags -std=c++20 -O3 -fmad=false --threads 0 -Xcompiler=-fPIC)
  if(MOEFLUX_CUDA_QUICK)
    list(APPEND flags -Xcicc=-O1 -Xptxas=-O1)
  # Half the size. Drivers from 550 on unpack it. Programs of nvcc 13 need 580, those of 12 run on 525.
  elseif(MOEFLUX_NVCC_VERSION VERSION_GREATER_EQUAL 13)
    list(APPEND flags --compress-mode=size)
  endif()
  foreach(architecture ${MOEFLUX_CUDA_ARCHITECTURES})
    if(NOT architecture MATCHES "^([0-9]+[af]?)(-real|-virtual)?$")
      message(FATAL_ERROR "MOEFLUX_CUDA_ARCHITECTURES: ${architecture}, expected for example 89, 90a-real or 120-virtual")
    endif()
    set(virtual compute_${CMAKE_MATCH_1})
    set(code_-real sm_${CMAKE_MATCH_1})
    set(code_-virtual ${virtual})
    set(code_ [${virtual},sm_${CMAKE_MATCH_1}])
    list(APPEND flags -gencode=arch=${virtual},code=${code_${CMAKE_MATCH_2}})
  endforeach()
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    list(APPEND flags -ccbin=${CMAKE_CXX_COMPILER})
  endif()
  if(CMAKE_SYSROOT)
    list(APPEND flags -Xcompiler=--sysroot=${CMAKE_SYSROOT})
  endif()
  add_custom_command(OUTPUT ${object}
    COMMAND ${CMAKE_CXX_COMPILER_LAUNCHER} ${MOEFLUX_NVCC} ${flags} -I${CMAKE_SOURCE_DIR}/src -MD -MF ${object}.d -MT ${object}
      -c ${CMAKE_CURRENT_SOURCE_DIR}/${source} -o ${object}
    MAIN_DEPENDENCY ${CMAKE_CURRENT_SOURCE_DIR}/${source} DEPFILE ${object}.d VERBATIM
    COMMENT "nvcc ${source}")
  set_source_files_properties(${object} PROPERTIES EXTERNAL_OBJECT TRUE GENERATED TRUE)
  set(${out} ${object} PARENT_SCOPE)
endfunction()
