# cmake -DROOT=... -DOUTPUT=... -P kernels_hash.cmake: writes the function that returns a hash of the kernels' sources.
# LIST=1: prints the sources instead.
cmake_minimum_required(VERSION 3.24)

file(GLOB_RECURSE sources RELATIVE ${ROOT}
  ${ROOT}/src/executor/cuda/*.cu ${ROOT}/src/executor/cuda/*.cuh ${ROOT}/src/executor/cuda/*.h
  ${ROOT}/src/channel/*.cu ${ROOT}/src/channel/*.cuh
  ${ROOT}/src/codec/*.cu ${ROOT}/src/codec/*.cuh
  ${ROOT}/src/device/* ${ROOT}/src/instances/*.cu)
# Generated kernels do not affect the times of the built-in ones.
list(FILTER sources EXCLUDE REGEX "/cuda/generated/")
# The headers of channels, codecs and shapes that device code includes, directly or not.
set(pending ${sources})
list(FILTER pending INCLUDE REGEX "\\.cuh$|/instances/|/cuda/(blocks|packets)/")
while(pending)
  list(POP_FRONT pending source)
  get_filename_component(folder ${source} DIRECTORY)
  file(STRINGS ${ROOT}/${source} lines REGEX "^#include \"")
  foreach(line IN LISTS lines)
    string(REGEX REPLACE "^#include \"(.*)\".*" "\\1" name ${line})
    foreach(candidate src/${name} ${folder}/${name})
      cmake_path(NORMAL_PATH candidate)
      if(candidate MATCHES "^src/((channel|codec)/.*|select/(block|packet)_shape)\\.h$" AND EXISTS ${ROOT}/${candidate}
         AND NOT candidate IN_LIST sources)
        list(APPEND sources ${candidate})
        list(APPEND pending ${candidate})
      endif()
    endforeach()
  endforeach()
endwhile()
list(SORT sources)
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
set(before "")
if(EXISTS ${OUTPUT})
  file(READ ${OUTPUT} before)
endif()
if(NOT before STREQUAL text)
  file(WRITE ${OUTPUT} "${text}")
endif()
