# Samples of generated kernels (tests/executor/cuda/generated/simt/samples.h). nvcc compiles three of them, as NVRTC
# compiles them at run time. The host compiler compiles all, for simt_test, which executes them without a GPU.
set(generated_tests ${tests}/executor/cuda/generated)
set(simt ${generated_tests}/simt)
set_source_files_properties(${generated_tests}/write_samples.inc ${simt}/generated_kernels.inc PROPERTIES LANGUAGE CXX)
add_executable(write_generated_samples ${generated_tests}/write_samples.inc)
target_link_libraries(write_generated_samples PRIVATE narrowcast_host)
target_include_directories(write_generated_samples PRIVATE ${tests})

set(samples ${PROJECT_BINARY_DIR}/generated_samples)
file(MAKE_DIRECTORY ${samples})
set(cuda_samples ${samples}/generated_blocks.cu ${samples}/generated_packets.cu ${samples}/generated_phases.cu)
set(host_samples)
file(STRINGS ${simt}/samples.def rows REGEX "^[A-Z_]*SAMPLE\\(")
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${simt}/samples.def)
foreach(row IN LISTS rows)
  string(REGEX REPLACE ".*\\((.*)\\).*" "\\1" name ${row})
  list(APPEND host_samples ${samples}/simt_${name}_blocks.cc)
  if(row MATCHES "^PACKET")
    list(APPEND host_samples ${samples}/simt_${name}_packets.cc ${samples}/simt_${name}_phases.cc)
  endif()
endforeach()
# The example of a user's codec, with its CUDA header beside it.
set(example ${PROJECT_SOURCE_DIR}/examples/codec/uniform)
add_custom_command(OUTPUT ${samples}/uniform.so
  COMMAND ${CMAKE_CXX_COMPILER} -x c -std=c11 -O2 -shared -fPIC -I ${PROJECT_SOURCE_DIR}/include ${example}.c -lm
          -o ${samples}/uniform.so
  COMMAND ${CMAKE_COMMAND} -E copy ${example}.cuh ${samples}/uniform.cuh
  DEPENDS ${example}.c ${example}.cuh VERBATIM)
target_compile_definitions(write_generated_samples PRIVATE NARROWCAST_EXAMPLE_CODEC="${samples}/uniform.so")
add_custom_command(OUTPUT ${cuda_samples} ${host_samples} COMMAND write_generated_samples ${samples}
  DEPENDS write_generated_samples ${samples}/uniform.so VERBATIM)

add_library(generated_samples OBJECT ${cuda_samples})
target_link_libraries(generated_samples PRIVATE narrowcast_flags)

# The kernels of the store are compiled by the host compiler, too: from a copy of their headers in which those with
# inline assembly are replaced by simt/cuda.h.
set(simt_headers ${PROJECT_BINARY_DIR}/simt_headers)
file(GLOB store_headers RELATIVE ${PROJECT_SOURCE_DIR}/src CONFIGURE_DEPENDS
  ${PROJECT_SOURCE_DIR}/src/store/cuda/*.cuh ${PROJECT_SOURCE_DIR}/src/store/cuda/*.h
  ${PROJECT_SOURCE_DIR}/src/store/cuda/build/*.cuh ${PROJECT_SOURCE_DIR}/src/store/cuda/build/encode_arguments.h)
foreach(header IN LISTS store_headers ITEMS codec/frame/cuda/header_check.cuh codec/frame/layout.h codec/window/block.cuh
    codec/window/escapes.cuh codec/window/format.h codec/window/packing.cuh codec/window/parts.cuh codec/window/placement.cuh
    codec/dense/bit_moves.cuh codec/dense/block.cuh codec/dense/choice.cuh codec/dense/format.h codec/dense/kernel.cuh
    codec/dense/parts.cuh codec/grouped/codes.cuh codec/grouped/decode.cuh codec/grouped/elements.cuh
    codec/grouped/encode.cuh codec/grouped/format.h codec/grouped/kernel.cuh codec/grouped/random.h
    codec/grouped/run.cuh codec/absolute/block.cuh codec/absolute/format.h codec/absolute/kernel.cuh
    codec/rate/block.cuh codec/rate/format.h codec/rate/kernel.cuh
    codec/parameter.h device/block_context.h device/copy.cuh store/rows/format.h
    device/coder_codec.cuh device/lane_values.cuh
    store/rows/window_layout.h store/table/control.h)
  configure_file(${PROJECT_SOURCE_DIR}/src/${header} ${simt_headers}/${header} COPYONLY)
endforeach()
foreach(header device/warp.cuh device/ptx/async_copy.cuh device/ptx/bulk_copy.cuh device/ptx/bulk_load.cuh device/ptx/floats.cuh
    device/ptx/named_barrier.cuh device/ptx/stream_order.cuh device/ptx/system_memory.cuh)
  file(CONFIGURE OUTPUT ${simt_headers}/${header} CONTENT "#include \"executor/cuda/generated/simt/cuda.h\"\n")
endforeach()
set(host_kernels ${tests}/store/cuda/simt/gather_test.inc ${tests}/store/cuda/simt/cache_test.inc
  ${tests}/store/cuda/simt/order_test.inc ${tests}/store/cuda/simt/encode_test.inc
  ${tests}/store/cuda/simt/frame_read_test.inc ${tests}/codec/simt/window_block_test.inc
  ${tests}/codec/simt/dense_test.inc ${tests}/codec/simt/grouped_test.inc
  ${tests}/codec/simt/fields_test.inc ${tests}/codec/simt/user_test.inc)

# A precompiled header would have to be included before cuda.h.
set_source_files_properties(${host_kernels} PROPERTIES LANGUAGE CXX SKIP_PRECOMPILE_HEADERS ON COMPILE_OPTIONS
  "-iquote${simt_headers};-include;executor/cuda/generated/simt/cuda.h;-w")
set_source_files_properties(${host_samples} PROPERTIES COMPILE_OPTIONS "-w")
add_area_test(simt_test ${simt}/machine.cc ${simt}/generated_kernels.inc ${host_samples} ${host_kernels})
target_link_libraries(simt_test PRIVATE test_main)
if(NARROWCAST_PRECOMPILED)
  target_precompile_headers(simt_test REUSE_FROM ${precompiled_test})
endif()
target_compile_definitions(simt_test PRIVATE NARROWCAST_EXAMPLE_CODEC="${samples}/uniform.so")

# The batch kernels of codecs, with the same machine. Headers with inline assembly are replaced.
set(batch_test ${tests}/codec/simt/batch_test.cc)
set_source_files_properties(${batch_test} PROPERTIES
  INCLUDE_DIRECTORIES ${tests}/codec/simt/on_host COMPILE_OPTIONS "-Wno-unknown-pragmas")
target_sources(simt_test PRIVATE ${batch_test})
