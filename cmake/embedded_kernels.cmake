# Embeds the sources that generated kernels include (src/executor/cuda/generated/kernel_sources.h). The file is written
# again only when one of them has changed.
set(kernel_sources ${PROJECT_BINARY_DIR}/kernel_sources.cc)
add_custom_target(kernel_sources
  COMMAND ${CMAKE_COMMAND} -DROOT=${PROJECT_SOURCE_DIR} -DOUTPUT=${kernel_sources}
          -P ${PROJECT_SOURCE_DIR}/cmake/kernel_sources.cmake
  BYPRODUCTS ${kernel_sources}
  COMMENT "Embedding the sources of generated kernels")
target_sources(narrowcast_host PRIVATE ${kernel_sources})
add_dependencies(narrowcast_host kernel_sources)
