# cmake -DROOT=... -DOUTPUT=... -P kernels_hash.cmake: writes the function that returns a hash of the kernels' sources.
file(GLOB_RECURSE sources RELATIVE ${ROOT}
  ${ROOT}/src/executor/cuda/*.cu ${ROOT}/src/executor/cuda/*.cuh ${ROOT}/src/executor/cuda/*.h
  ${ROOT}/src/channel/*.cu ${ROOT}/src/channel/*.cuh
  ${ROOT}/src/codec/*.cu ${ROOT}/src/codec/*.cuh
  ${ROOT}/src/device/* ${ROOT}/src/instances/*.cu)
list(SORT sources)
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
set(before "")
if(EXISTS ${OUTPUT})
  file(READ ${OUTPUT} before)
endif()
if(NOT before STREQUAL text)
  file(WRITE ${OUTPUT} "${text}")
endif()
