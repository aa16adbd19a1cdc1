# libnarrowcast_nccl.so stands in for libnccl.so.2. It may be preloaded into every process, so it links nothing but libc and
# libm, and finds NCCL, the CUDA driver and libnarrowcast.so when it runs.
enable_language(ASM)
file(GLOB_RECURSE nccl_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/nccl/*.cc ${PROJECT_SOURCE_DIR}/src/nccl/*.S)
add_library(narrowcast_nccl_objects OBJECT ${nccl_sources})
target_link_libraries(narrowcast_nccl_objects PUBLIC narrowcast_flags)
# For NVTX, which is these headers alone; a profiler brings the rest.
find_path(nvtx_include nvtx3/nvToolsExt.h HINTS ${CMAKE_CUDA_TOOLKIT_INCLUDE_DIRECTORIES} /usr/local/cuda/include)
if(nvtx_include)
  target_include_directories(narrowcast_nccl_objects SYSTEM PRIVATE ${nvtx_include})
elseif(NOT NARROWCAST_SANITIZE)
  message(WARNING "profilers will see nothing of the drop-in: the CUDA toolkit has no nvtx3/nvToolsExt.h (set nvtx_include)")
endif()
file(GLOB_RECURSE nccl_included CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/nccl/*.inc ${PROJECT_SOURCE_DIR}/src/nccl/*.asm)
# CMake does not track the includes of assembly sources.
set_source_files_properties(${PROJECT_SOURCE_DIR}/src/nccl/entry/trampolines.S PROPERTIES
  OBJECT_DEPENDS "${nccl_included}")

if(NOT NARROWCAST_SANITIZE)
  set(nccl_exports_map ${PROJECT_SOURCE_DIR}/cmake/nccl_exports.map)
  add_library(narrowcast_nccl SHARED $<TARGET_OBJECTS:narrowcast_nccl_objects>)
  target_link_options(narrowcast_nccl PRIVATE -static-libstdc++ -static-libgcc -Wl,--no-undefined
    -Wl,--version-script=${nccl_exports_map} -Wl,-soname,libnccl.so.2)
  set_target_properties(narrowcast_nccl PROPERTIES
    LINKER_LANGUAGE CXX
    NO_SONAME ON
    LINK_DEPENDS ${nccl_exports_map})
  install(TARGETS narrowcast_nccl LIBRARY DESTINATION narrowcast/lib COMPONENT python EXCLUDE_FROM_ALL)
  install(TARGETS narrowcast_nccl LIBRARY COMPONENT native)
endif()
