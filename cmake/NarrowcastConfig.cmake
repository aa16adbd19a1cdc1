# find_package(Narrowcast) defines the target Narrowcast::narrowcast. It has no dependencies: the library contains the
# CUDA runtime. Kernels that include narrowcast/device.cuh need nvcc 13.0 or newer and C++20.
include(${CMAKE_CURRENT_LIST_DIR}/NarrowcastTargets.cmake)
