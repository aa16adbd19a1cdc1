// Copies the pages of decoded arrays to where they belong.
#pragma once

#include <cstdint>

namespace narrowcast::codec::cuda {

// See ncast_cuda_scatter_pages. All arrays are in device memory.
struct ScatterArguments {
  const char* rows;
  const uint64_t* numbers;
  uint32_t row_count;
  uint32_t page_count;
  char* const* pages;
  const uint64_t* strides;
  const uint64_t* offsets;
};

inline constexpr uint32_t scatter_threads = 256;

// Both addresses are aligned to a Unit. The whole CTA calls it.
template <typename Unit>
__device__ void copy_page(const char* from, char* to, uint64_t bytes) {
  constexpr uint64_t at_a_time = 4;  // units that a thread loads before it stores them
  const uint64_t units = bytes / sizeof(Unit);
  for (uint64_t first = threadIdx.x; first < units; first += at_a_time * blockDim.x) {
    Unit held[at_a_time];
#pragma unroll
    for (uint64_t i = 0; i < at_a_time; ++i) {
      const uint64_t at = first + i * blockDim.x;
      held[i] = reinterpret_cast<const Unit*>(from)[at < units ? at : first];
    }
#pragma unroll
    for (uint64_t i = 0; i < at_a_time; ++i)
      if (const uint64_t at = first + i * blockDim.x; at < units) reinterpret_cast<Unit*>(to)[at] = held[i];
  }
}

// Any number of CTAs, which take turns over the pages.
__device__ inline void scatter_pages(const ScatterArguments& arguments) {
  const uint64_t row_bytes = arguments.offsets[arguments.page_count];
  const uint64_t items = uint64_t{arguments.row_count} * arguments.page_count;
  for (uint64_t item = blockIdx.x; item < items; item += gridDim.x) {
    const uint64_t page = item / arguments.row_count, row = item % arguments.row_count;
    const uint64_t begin = arguments.offsets[page], bytes = arguments.offsets[page + 1] - begin;
    const char* const from = arguments.rows + row * row_bytes + begin;
    char* const to = arguments.pages[page] + arguments.numbers[row] * arguments.strides[page];
    const uint64_t alignment = reinterpret_cast<uintptr_t>(from) | reinterpret_cast<uintptr_t>(to) | bytes;
    if (alignment % sizeof(uint4) == 0)
      copy_page<uint4>(from, to, bytes);
    else if (alignment % sizeof(uint32_t) == 0)
      copy_page<uint32_t>(from, to, bytes);
    else
      copy_page<uint8_t>(from, to, bytes);
  }
}

}  // namespace narrowcast::codec::cuda
