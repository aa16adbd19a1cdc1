# Embeds the default cost model in the library, as a string.
set(shipped_costs_file ${PROJECT_SOURCE_DIR}/data/costs/h200.costs)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${shipped_costs_file})
file(READ ${shipped_costs_file} shipped_costs)
configure_file(src/select/shipped_costs.cc.in shipped_costs.cc @ONLY)
target_sources(narrowcast_host PRIVATE ${PROJECT_BINARY_DIR}/shipped_costs.cc)
