# cmake -DROOT=... -DOUTPUT=... [-DTEST_CODECS=tests/codecs] -P kernel_sources.cmake: writes a C++ table of the sources
# that generated kernels include, so that the library can compile such kernels without files. Every codec is among them;
# the tests' codecs have the paths that they would have in src/codec.
cmake_minimum_required(VERSION 3.24)
include(${CMAKE_CURRENT_LIST_DIR}/included_sources.cmake)

set(sources
  src/executor/cuda/blocks/move.cuh
  src/executor/cuda/blocks/reduce.cuh
  src/executor/cuda/generated/nvrtc_prelude.cuh
  src/executor/cuda/generated/plan_kernel.cuh
  src/executor/cuda/generated/plan_packets.cuh)
function(add_codecs rows folder)
  file(STRINGS ${ROOT}/${rows} lines REGEX "^NCAST_CODEC_ROW\\(")
  foreach(line IN LISTS lines)
    string(REGEX REPLACE "^[^,]*,[^,]*,[^,]*, *([a-z0-9_]+),.*" "\\1" code "${line}")
    list(APPEND sources ${folder}/${code}/kernel.cuh)
  endforeach()
  list(REMOVE_DUPLICATES sources)
  set(sources ${sources} PARENT_SCOPE)
endfunction()
add_codecs(include/narrowcast/codecs.def src/codec)
if(TEST_CODECS)
  add_codecs(${TEST_CODECS}/narrowcast_test_codecs.def ${TEST_CODECS})
endif()
add_included_sources(sources sources ${ROOT} "" missing)
list(FILTER missing EXCLUDE REGEX "^narrowcast_test_codecs\\.def ")  # only in builds for tests
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
  set(path ${source})
  if(TEST_CODECS)
    string(REPLACE "${TEST_CODECS}/" src/codec/ path ${source})
  endif()
  string(APPEND text "{\"${path}\", R\"kernel(${content})kernel\"},\n")
endforeach()
string(APPEND text "};
const size_t narrowcast::executor::cuda::generated::kernel_source_count =
    sizeof kernel_sources / sizeof kernel_sources[0];
")
write_if_different(${OUTPUT} "${text}")
