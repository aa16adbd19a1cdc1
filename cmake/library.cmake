# libnarrowcast.so: the host code, the kernels and the static CUDA runtime behind the C ABI.
file(GLOB_RECURSE cuda_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/*.cu)
set(objects $<TARGET_OBJECTS:narrowcast_host>)
include(cmake/runtime_sources.cmake)
if(cuda_sources)
  add_library(narrowcast_cuda OBJECT ${cuda_sources})
  target_link_libraries(narrowcast_cuda PUBLIC narrowcast_flags)
  include_runtime(narrowcast_cuda)
  list(APPEND objects $<TARGET_OBJECTS:narrowcast_cuda>)
endif()

include(GNUInstallDirs)
set(exports ${PROJECT_SOURCE_DIR}/cmake/exports.map)
add_library(narrowcast SHARED ${objects})
add_library(Narrowcast::narrowcast ALIAS narrowcast)
target_include_directories(narrowcast INTERFACE
  $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
target_link_libraries(narrowcast PRIVATE Threads::Threads rt)
# nodelete: threads of the library may run until the process exits, so dlclose() must not unload their code.
target_link_options(narrowcast PRIVATE -Wl,--no-undefined -Wl,--version-script=${exports} -Wl,-z,nodelete)
set_target_properties(narrowcast PROPERTIES
  LINKER_LANGUAGE CUDA
  VERSION ${PROJECT_VERSION}
  SOVERSION ${PROJECT_VERSION_MAJOR}
  LINK_DEPENDS ${exports})
