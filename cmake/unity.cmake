# The build with sanitizers and clang-tidy compile several sources of a target at once, so that they parse headers and
# instantiate templates once for all of them. Names in the anonymous namespaces of neighbours must therefore differ. The
# other build compiles every source on its own, and so finds headers of src/ that are used but not included.
function(compile_together target)
  if(NARROWCAST_UNITY)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 12)
  endif()
endfunction()

# The coders of rows have the same names; three sources configure the headers that they include; the others are
# generated.
file(GLOB separate_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/store/rows/*.cc)
list(APPEND separate_sources ${PROJECT_SOURCE_DIR}/src/store/file/checksum.cc
  ${PROJECT_SOURCE_DIR}/tests/store/rows/avx512.cc
  ${PROJECT_SOURCE_DIR}/src/nccl/settings/file.cc ${PROJECT_BINARY_DIR}/shipped_costs.cc
  ${PROJECT_BINARY_DIR}/kernels_hash.cc ${PROJECT_BINARY_DIR}/kernel_sources.cc)
set_source_files_properties(${separate_sources} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
