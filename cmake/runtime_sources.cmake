# Sources in CUDA that neither have nor include kernels or device functions: they only call the runtime. The host
# compiler compiles them as C++, which takes a third of the time: nvcc parses every source four times. A new source
# need not be listed, and one that gets a kernel must not be.
set(runtime_sources
  channel/peer/failure.cu
  channel/peer/memory_offer.cu
  channel/peer/peer_memory.cu
  channel/peer/registered_memory.cu
  channel/peer/zeroed_memory.cu
  channel/port/copy_engines.cu
  channel/port/port_channel.cu
  codec/frame/cuda/api.cu
  device/device_guard.cu
  executor/cuda/backend.cu
  executor/cuda/channels.cu
  executor/cuda/communicator.cu
  executor/cuda/generated/launch_plan.cu
  executor/cuda/generated/loaded_kernels.cu
  executor/cuda/generated/plans.cu
  executor/cuda/launch.cu
  executor/cuda/ports.cu
  executor/cuda/registration.cu
  status/cuda_error.cu
  store/builder_api.cu
  store/cuda/copy_ring.cu
  store/cuda/frame_reader.cu
  store/cuda/index_copies.cu
  store/cuda/launch.cu
  store/cuda/reader.cu
  store/cuda/reader_cache.cu
  store/cuda/registered_memory.cu
  store/cuda/table_reader.cu
  store/reader_api.cu)
list(TRANSFORM runtime_sources PREPEND ${PROJECT_SOURCE_DIR}/src/)
set(runtime_tests
  codec/conformance.cu
  device/device_guard.cu
  executor/cuda/bounded_codecs.cu
  executor/cuda/mismatch.cu
  executor/cuda/packets.cu
  executor/cuda/packets_latency.cu
  gpu_test_main.cu
  store/cuda/frame_reader.cu
  store/cuda/reader.cu)
list(TRANSFORM runtime_tests PREPEND ${PROJECT_SOURCE_DIR}/tests/)
set_source_files_properties(${runtime_sources} ${runtime_tests} PROPERTIES LANGUAGE CXX)

# For targets with such sources.
function(include_runtime target)
  target_include_directories(${target} SYSTEM PRIVATE
    "$<$<COMPILE_LANGUAGE:CXX>:${CMAKE_CUDA_TOOLKIT_INCLUDE_DIRECTORIES}>")
  set_target_properties(${target} PROPERTIES LINKER_LANGUAGE CUDA)
endfunction()
