# cmake -DROOT=... -DOUTPUT=... -P kernel_sources.cmake: writes a C++ table of the sources that generated kernels
# include, so that the library can compile such kernels without files.
cmake_minimum_required(VERSION 3.24)

set(pending
  src/executor/cuda/generated/nvrtc_prelude.cuh
  src/executor/cuda/generated/plan_kernel.cuh
  src/executor/cuda/generated/plan_packets.cuh
  src/codec/raw/kernel.cuh
  src/codec/window/kernel.cuh)
set(sources ${pending})
while(pending)
  list(POP_FRONT pending source)
  get_filename_component(folder ${source} DIRECTORY)
  file(STRINGS ${ROOT}/${source} lines REGEX "^#include \"")
  foreach(line IN LISTS lines)
    string(REGEX REPLACE "^#include \"(.*)\".*" "\\1" name ${line})
    set(found FALSE)
    foreach(candidate ${folder}/${name} src/${name} include/${name})
      cmake_path(NORMAL_PATH candidate)
      if(EXISTS ${ROOT}/${candidate})
        set(found TRUE)
        if(NOT candidate IN_LIST sources)
          list(APPEND sources ${candidate})
          list(APPEND pending ${candidate})
        endif()
        break()
      endif()
    endforeach()
    if(NOT found AND NOT name STREQUAL "narrowcast_test_codecs.def")
      message(FATAL_ERROR "${source} includes ${name}, which does not exist")
    endif()
  endforeach()
endwhile()
list(SORT sources)
set(text "// Written by cmake/kernel_sources.cmake.
#include \"executor/cuda/generated/kernel_sources.h\"

const narrowcast::executor::cuda::generated::KernelSource
    narrowcast::executor::cuda::generated::kernel_sources[] = {
")
foreach(source ${sources})
  file(READ ${ROOT}/${source} content)
  string(APPEND text "{\"${source}\", R\"kernel(${content})kernel\"},\n")
endforeach()
string(APPEND text "};
const size_t narrowcast::executor::cuda::generated::kernel_source_count =
    sizeof kernel_sources / sizeof kernel_sources[0];
")
set(before "")
if(EXISTS ${OUTPUT})
  file(READ ${OUTPUT} before)
endif()
if(NOT before STREQUAL text)
  file(WRITE ${OUTPUT} "${text}")
endif()
