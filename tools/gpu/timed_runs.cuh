// What the programs of this folder share: errors end them, and runs are timed.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <vector>

inline void check(cudaError_t error, int line) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "line %d: %s\n", line, cudaGetErrorString(error));
  std::exit(1);
}
#define CHECK_RESULT(call) check(call, __LINE__)

// The median time of `runs` runs on a stream, after one to warm up.
inline double seconds(cudaStream_t stream, int runs, const std::function<void()>& run) {
  cudaEvent_t begin, end;
  CHECK_RESULT(cudaEventCreate(&begin));
  CHECK_RESULT(cudaEventCreate(&end));
  std::vector<float> times;
  run();
  for (int i = 0; i < runs; ++i) {
    CHECK_RESULT(cudaEventRecord(begin, stream));
    run();
    CHECK_RESULT(cudaEventRecord(end, stream));
    CHECK_RESULT(cudaEventSynchronize(end));
    CHECK_RESULT(cudaEventElapsedTime(&times.emplace_back(), begin, end));
  }
  CHECK_RESULT(cudaEventDestroy(begin));
  CHECK_RESULT(cudaEventDestroy(end));
  std::ranges::sort(times);
  return times[times.size() / 2] / 1e3;
}
