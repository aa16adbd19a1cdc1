# tests/<area>/**.cc: one doctest executable per area, linked with the host code.
# tests/<area>/**.cu: one per area, linked with the host code and the kernels. Always built; without a GPU it exits with
#                     status 77, which means skipped.
# tests/fuzz/*.cc:    one executable per file, each with an LLVMFuzzerTestOneInput.
set(tests ${PROJECT_SOURCE_DIR}/tests)
set(test_seconds 300)
set(NARROWCAST_FUZZ_RUNS 20000 CACHE STRING "Mutated inputs per fuzz target in a replay")

# doctest itself: no code of the library, and slow to compile with optimization and sanitizers.
add_library(test_main OBJECT ${tests}/test_main.cc)
target_link_libraries(test_main PUBLIC narrowcast_flags)
set_source_files_properties(${tests}/test_main.cc ${tests}/gpu_test_main.cu PROPERTIES
  COMPILE_OPTIONS "-O1;$<$<BOOL:${NARROWCAST_SANITIZE}>:-fno-sanitize=all>")
if(NOT NARROWCAST_SANITIZE)
  file(GLOB gpu_support_sources CONFIGURE_DEPENDS ${tests}/support/*.cu)
  add_library(gpu_test_main OBJECT ${tests}/gpu_test_main.cu ${gpu_support_sources})
  target_link_libraries(gpu_test_main PUBLIC narrowcast_flags)
  target_include_directories(gpu_test_main PRIVATE ${tests})
  include_runtime(gpu_test_main)
endif()

# What tests of several areas use.
file(GLOB support_sources CONFIGURE_DEPENDS ${tests}/support/*.cc)
add_library(test_support STATIC ${support_sources})
target_link_libraries(test_support PUBLIC narrowcast_flags)
target_include_directories(test_support PRIVATE ${tests})
reuse_precompiled_headers(test_support)
compile_together(test_support)

# A network plugin of NCCL, in every version of its interface that is supported.
foreach(version RANGE 6 12)
  set(plugin net_plugin_v${version})
  add_library(${plugin} MODULE ${tests}/support/net_plugin/net_plugin.cc)
  target_link_libraries(${plugin} PRIVATE narrowcast_flags)
  target_compile_definitions(${plugin} PRIVATE VERSION=${version})
  target_compile_options(${plugin} PRIVATE -O1)
  set_target_properties(${plugin} PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests
    OUTPUT_NAME nccl-net-test_v${version})
  list(APPEND net_plugins ${plugin})
endforeach()

# The code of the tests themselves does little, except for the kernels that simt_test executes.
set(test_options)
if(NARROWCAST_UNOPTIMIZED_KERNELS)
  set(test_options "$<$<COMPILE_LANGUAGE:CXX>:-O1>")
endif()
# CTest begins with the tests that take longest (the numbers are seconds on two cores).
set(costs executor_test 50 store_test 35 simt_test 30 plan_test 25 comm_test 18 codec_test 14 bootstrap_test 9)

function(add_area_test name)
  add_executable(${name} ${ARGN})
  target_compile_options(${name} PRIVATE ${test_options})
  target_link_libraries(${name} PRIVATE narrowcast_host)
  target_include_directories(${name} PRIVATE ${tests})
  # The same for all, because they share a precompiled header.
  target_compile_definitions(${name} PRIVATE NARROWCAST_TEST_DATA="${tests}"
    NARROWCAST_TEST_LIBRARIES="${PROJECT_BINARY_DIR}/tests")
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  add_test(NAME ${name} COMMAND ${name} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
  set_tests_properties(${name} PROPERTIES TIMEOUT ${test_seconds} SKIP_RETURN_CODE 77)
  list(FIND costs ${name} place)
  if(NOT place EQUAL -1)
    math(EXPR place "${place} + 1")
    list(GET costs ${place} cost)
    set_tests_properties(${name} PROPERTIES COST ${cost})
  endif()
endfunction()

file(GLOB areas CONFIGURE_DEPENDS LIST_DIRECTORIES true ${tests}/*)
foreach(folder IN LISTS areas)
  get_filename_component(area ${folder} NAME)
  if(NOT IS_DIRECTORY ${folder} OR area MATCHES "^(fuzz|python|support|tools)$" OR (area STREQUAL nccl AND NOT TARGET narrowcast_nccl_objects))
    continue()
  endif()
  file(GLOB_RECURSE host_tests CONFIGURE_DEPENDS ${folder}/*.cc)
  list(FILTER host_tests EXCLUDE REGEX "/simt/")  # cmake/generated_samples.cmake
  if(host_tests)
    add_area_test(${area}_test ${host_tests})
    target_link_libraries(${area}_test PRIVATE test_main test_support)
    compile_together(${area}_test)
    if(NARROWCAST_PRECOMPILED AND precompiled_test)
      target_precompile_headers(${area}_test REUSE_FROM ${precompiled_test})
    elseif(NARROWCAST_PRECOMPILED)
      target_precompile_headers(${area}_test PRIVATE ${precompiled_headers} <doctest/doctest.h>)
      set(precompiled_test ${area}_test)
    endif()
    if(area STREQUAL nccl)
      target_link_libraries(nccl_test PRIVATE narrowcast_nccl_objects)
    endif()
  endif()
  file(GLOB_RECURSE gpu_tests CONFIGURE_DEPENDS ${folder}/*.cu)
  if(gpu_tests AND NOT NARROWCAST_SANITIZE)
    add_area_test(${area}_gpu_test ${gpu_tests})
    target_link_libraries(${area}_gpu_test PRIVATE gpu_test_main)
    include_runtime(${area}_gpu_test)
    if(TARGET narrowcast_cuda)
      target_link_libraries(${area}_gpu_test PRIVATE narrowcast_cuda)
    endif()
    set_tests_properties(${area}_gpu_test PROPERTIES LABELS gpu)
  endif()
endforeach()

add_dependencies(channel_test ${net_plugins})
# Over network plugins, except for a test whose strangers they would accept.
foreach(plugin net_plugin_v6 net_plugin_v9 net_plugin_v12)
  add_test(NAME channel_${plugin}
    COMMAND channel_test -sf=*/channel/network/* -sfe=*/net_plugin_test.cc -tce=strangers*
    WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
  set_tests_properties(channel_${plugin} PROPERTIES TIMEOUT ${test_seconds}
    ENVIRONMENT "NARROWCAST_NET=plugin;NCCL_NET_PLUGIN=$<TARGET_FILE:${plugin}>")
endforeach()

if(NOT NARROWCAST_SANITIZE)
  include(cmake/generated_samples.cmake)
endif()

if(NOT NARROWCAST_FUZZ)
  add_library(fuzz_replay OBJECT ${tests}/fuzz/replay_main.inc)
  set_source_files_properties(${tests}/fuzz/replay_main.inc PROPERTIES LANGUAGE CXX)
  target_link_libraries(fuzz_replay PUBLIC narrowcast_flags)
endif()
file(GLOB fuzz_targets CONFIGURE_DEPENDS ${tests}/fuzz/*.cc)
foreach(source IN LISTS fuzz_targets)
  get_filename_component(name ${source} NAME_WE)
  add_executable(fuzz_${name} ${source})
  target_link_libraries(fuzz_${name} PRIVATE narrowcast_host)
  set_target_properties(fuzz_${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  if(NARROWCAST_FUZZ)
    target_compile_options(fuzz_${name} PRIVATE -fsanitize=fuzzer)
    target_link_options(fuzz_${name} PRIVATE -fsanitize=fuzzer)
  else()
    target_link_libraries(fuzz_${name} PRIVATE fuzz_replay)
  endif()
  file(GLOB corpus CONFIGURE_DEPENDS LIST_DIRECTORIES true ${tests}/fuzz/corpus/${name})
  add_test(NAME fuzz_${name} COMMAND fuzz_${name} -runs=${NARROWCAST_FUZZ_RUNS} -seed=1 ${corpus})
  set_tests_properties(fuzz_${name} PROPERTIES TIMEOUT ${test_seconds})
endforeach()
