# CUDA 13, its runtime linked statically: the library then needs no CUDA file to load, and finds the driver when it runs.
if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
  # Those of this machine's GPUs; where there is none, one, to compile everything at least once.
  execute_process(COMMAND nvidia-smi --query-gpu=compute_cap --format=csv,noheader
    OUTPUT_VARIABLE architectures RESULT_VARIABLE failed ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(failed OR NOT architectures MATCHES "^[0-9.\n]+$")
    set(architectures 9.0)
  endif()
  string(REPLACE "." "" architectures "${architectures}")
  string(REPLACE "\n" ";" architectures "${architectures}")
  list(REMOVE_DUPLICATES architectures)
  set(CMAKE_CUDA_ARCHITECTURES ${architectures} CACHE STRING "GPU architectures; a release has 80 86 89 90 100 120")
endif()
set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
enable_language(CUDA)
set(CMAKE_CUDA_VISIBILITY_PRESET hidden)
if(CMAKE_CUDA_COMPILER_VERSION VERSION_LESS 13.0)
  message(FATAL_ERROR "nvcc ${CMAKE_CUDA_COMPILER_VERSION} is too old: Narrowcast needs 13.0 or newer (set CUDACXX)")
endif()
