# cmake -DROOT=... -DOUTPUT=... -P kernels_hash.cmake: writes the function that returns a hash of the kernels' sources.
# LIST=1: prints the sources instead.
cmake_minimum_required(VERSION 3.24)
include(${CMAKE_CURRENT_LIST_DIR}/included_sources.cmake)

file(GLOB_RECURSE sources RELATIVE ${ROOT}
  ${ROOT}/src/executor/cuda/*.cuh ${ROOT}/src/executor/cuda/blocks/*.cu ${ROOT}/src/executor/cuda/packets/*.cu
  ${ROOT}/src/channel/*.cuh ${ROOT}/src/codec/*.cuh ${ROOT}/src/device/*.cuh ${ROOT}/src/instances/*.cu)
# Generated kernels do not affect the times of the built-in ones.
list(FILTER sources EXCLUDE REGEX "/cuda/generated/")
# The headers that these include, directly or not. Other host code launches the kernels and hardly changes their times.
set(device_sources ${sources})
set(headers "^src/((channel|codec|device|executor/cuda)/.*|select/(block|packet)_shape)\\.h$")
add_included_sources(sources device_sources ${ROOT} ${headers} missing)
if(LIST)
  list(JOIN sources "\n" sources)
  message("${sources}")
  return()
endif()
set(hashes)
foreach(source ${sources})
  file(SHA256 ${ROOT}/${source} hash)
  string(APPEND hashes "${source} ${hash}\n")
endforeach()
string(SHA256 hash "${hashes}")
string(SUBSTRING ${hash} 0 16 hash)
set(text "// Written by cmake/kernels_hash.cmake.
#include \"select/cost_model.h\"

const char* narrowcast::select::kernels_hash() { return \"${hash}\"; }
")
write_if_different(${OUTPUT} "${text}")
