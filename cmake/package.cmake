# Installation. The component `native` is for C and C++ programs, `python` for the wheel. nccl.cmake adds the drop-in to
# both.
include(CMakePackageConfigHelpers)
include(cmake/device_headers.cmake)

# --- native: the library, the headers, find_package(Narrowcast) and pkg-config ---------------------------------------

install(TARGETS narrowcast EXPORT NarrowcastTargets LIBRARY COMPONENT native NAMELINK_COMPONENT native)
install_headers(${CMAKE_INSTALL_INCLUDEDIR} COMPONENT native)

set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/Narrowcast)
install(EXPORT NarrowcastTargets NAMESPACE Narrowcast:: DESTINATION ${package_folder} COMPONENT native)
# Before 1.0 every minor version may change the ABI.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/NarrowcastConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_SOURCE_DIR}/cmake/NarrowcastConfig.cmake ${PROJECT_BINARY_DIR}/NarrowcastConfigVersion.cmake
        DESTINATION ${package_folder} COMPONENT native)

# The .pc file derives the prefix from its own path, so that an installed tree can be moved.
set(pkg_config_folder ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
file(RELATIVE_PATH prefix_from_pkg_config /prefix/${pkg_config_folder} /prefix)
configure_file(cmake/narrowcast.pc.in narrowcast.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/narrowcast.pc DESTINATION ${pkg_config_folder} COMPONENT native)

# --- python ----------------------------------------------------------------------------------------------------------

# A wheel cannot contain links. The library has the name that programs load it by, its SONAME; the name that programs
# link with is a linker script, because a second copy of the library could be loaded beside the first.
install(FILES $<TARGET_FILE:narrowcast> RENAME libnarrowcast.so.${PROJECT_VERSION_MAJOR} DESTINATION narrowcast/lib
        COMPONENT python EXCLUDE_FROM_ALL)
file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/wheel/libnarrowcast.so
     CONTENT "/* GNU ld script */\nINPUT(libnarrowcast.so.@PROJECT_VERSION_MAJOR@)\n" @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/wheel/libnarrowcast.so DESTINATION narrowcast/lib
        COMPONENT python EXCLUDE_FROM_ALL)
install_headers(narrowcast/include COMPONENT python EXCLUDE_FROM_ALL)
