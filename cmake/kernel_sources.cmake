# cmake -DROOT=... -DOUTPUT=... -P kernel_sources.cmake: writes a C++ table of the sources that generated kernels
# include, so that the library can compile such kernels without files. Every codec is among them.
cmake_minimum_required(VERSION 3.24)
include(${CMAKE_CURRENT_LIST_DIR}/included_sources.cmake)

set(sources
  src/codec/user/kernel.cuh
  src/executor/cuda/blocks/move.cuh
  src/executor/cuda/blocks/reduce.cuh
  src/executor/cuda/generated/nvrtc_prelude.cuh
  src/executor/cuda/generated/plan_kernel.cuh
  src/executor/cuda/generated/plan_packets.cuh)
file(STRINGS ${ROOT}/include/narrowcast/codecs.def rows REGEX "^NCAST_CODEC_ROW\\(")
foreach(row IN LISTS rows)
  string(REGEX REPLACE "^[^,]*,[^,]*,[^,]*, *([a-z0-9_]+),.*" "\\1" code "${row}")
  list(APPEND sources src/codec/${code}/kernel.cuh)
endforeach()
list(REMOVE_DUPLICATES sources)
add_included_sources(sources sources ${ROOT} "" missing)
if(missing)
  message(FATAL_ERROR "sources of kernels include files that do not exist: ${missing}")
endif()
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
write_if_different(${OUTPUT} "${text}")
