# Embeds the default cost model in the library, as a string.
set(shipped_costs_file ${PROJECT_SOURCE_DIR}/data/costs/h200.costs)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${shipped_costs_file})
file(READ ${shipped_costs_file} shipped_costs)
configure_file(src/select/shipped_costs.cc.in shipped_costs.cc @ONLY)
target_sources(narrowcast_host PRIVATE ${PROJECT_BINARY_DIR}/shipped_costs.cc)

# The hash that cost models are stamped with. The file is written again only when a kernel's source has changed.
add_custom_target(kernels_hash
  COMMAND ${CMAKE_COMMAND} -DROOT=${PROJECT_SOURCE_DIR} -DOUTPUT=${PROJECT_BINARY_DIR}/kernels_hash.cc
          -P ${PROJECT_SOURCE_DIR}/cmake/kernels_hash.cmake
  BYPRODUCTS ${PROJECT_BINARY_DIR}/kernels_hash.cc
  COMMENT "Hashing the kernels' sources")
target_sources(narrowcast_host PRIVATE ${PROJECT_BINARY_DIR}/kernels_hash.cc)
add_dependencies(narrowcast_host kernels_hash)
