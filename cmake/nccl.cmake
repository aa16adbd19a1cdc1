# libnarrowcast_nccl.so replaces libnccl.so.2. It may be preloaded into any process, so it links only libc and
# libm. It loads NCCL, the CUDA driver and libnarrowcast.so at run time.
# libnarrowcast_nccl_test.so is the same code on the host backend, for tests without GPUs. It is not installed.
enable_language(ASM)
file(GLOB_RECURSE nccl_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/nccl/*.cc ${PROJECT_SOURCE_DIR}/src/nccl/*.S)
set(nccl_cuda_backend ${PROJECT_SOURCE_DIR}/src/nccl/libraries/cuda_backend.cc)
set(nccl_host_backend ${PROJECT_SOURCE_DIR}/tests/nccl/libraries/host_backend.cc)
list(REMOVE_ITEM nccl_sources ${nccl_cuda_backend})
add_library(narrowcast_nccl_objects OBJECT ${nccl_sources})
target_link_libraries(narrowcast_nccl_objects PUBLIC narrowcast_flags)
reuse_precompiled_headers(narrowcast_nccl_objects)
compile_together(narrowcast_nccl_objects)
# NVTX is header-only; a profiler loads the implementation.
find_path(nvtx_include nvtx3/nvToolsExt.h HINTS ${CMAKE_CUDA_TOOLKIT_INCLUDE_DIRECTORIES} /usr/local/cuda/include)
if(nvtx_include)
  target_include_directories(narrowcast_nccl_objects SYSTEM PRIVATE ${nvtx_include})
elseif(NOT NARROWCAST_SANITIZE)
  message(WARNING "The drop-in is built without NVTX ranges: nvtx3/nvToolsExt.h was not found (set nvtx_include)")
endif()
file(GLOB_RECURSE nccl_included CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/nccl/*.inc ${PROJECT_SOURCE_DIR}/src/nccl/*.asm)
# CMake does not track the includes of assembly sources.
set_source_files_properties(${PROJECT_SOURCE_DIR}/src/nccl/entry/trampolines.S PROPERTIES
  OBJECT_DEPENDS "${nccl_included}")

if(NOT NARROWCAST_SANITIZE)
  set(nccl_exports_map ${PROJECT_SOURCE_DIR}/cmake/nccl_exports.map)
  add_library(narrowcast_nccl SHARED ${nccl_cuda_backend})
  add_library(narrowcast_nccl_test SHARED ${nccl_host_backend})
  foreach(library narrowcast_nccl narrowcast_nccl_test)
    foreach(shared digest/sha256 files/cache_folder files/owned_file files/read_file packages/python_packages)
      target_sources(${library} PRIVATE ${PROJECT_SOURCE_DIR}/src/${shared}.cc)
    endforeach()
    target_link_libraries(${library} PRIVATE narrowcast_nccl_objects)
    # nodelete: as libnarrowcast.so, it may have threads.
    target_link_options(${library} PRIVATE -static-libstdc++ -static-libgcc -Wl,--no-undefined -Wl,-z,nodelete
      -Wl,--version-script=${nccl_exports_map} -Wl,-soname,libnccl.so.2)
    set_target_properties(${library} PROPERTIES NO_SONAME ON LINK_DEPENDS ${nccl_exports_map})
  endforeach()
  install(TARGETS narrowcast_nccl LIBRARY DESTINATION narrowcast/lib COMPONENT python EXCLUDE_FROM_ALL)
  install(TARGETS narrowcast_nccl LIBRARY COMPONENT native)
endif()
