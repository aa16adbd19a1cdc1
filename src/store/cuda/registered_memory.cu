#include <cuda_runtime_api.h>

#include <algorithm>
#include <atomic>
#include <cinttypes>
#include <map>
#include <mutex>

#include "device/device_guard.h"
#include "status/cuda_driver.h"
#include "status/error.h"
#include "store/cuda/registered_memory.h"
#include "threads/parallel.h"

namespace narrowcast::store::cuda {
namespace {

std::mutex mutex;
// With the GPU that was current when the table was registered.
std::map<const Table*, int>& registered() {
  static std::map<const Table*, int> tables;
  return tables;
}

// Whether the checksums of all rows are right.
bool is_undamaged(Table& table) {
  std::atomic<bool> is_good{true};
  for (const uint32_t section : {file::data, file::entries}) {
    const uint64_t bytes = table.header.sections[section].bytes;
    threads::for_each(static_cast<size_t>(file::segments_of(bytes)), threads::count_of(0), [&](size_t segment) {
      const uint64_t begin = segment * file::segment_bytes;
      if (!table.checks.are_good(section, begin, std::min(bytes, begin + file::segment_bytes))) is_good = false;
    });
  }
  return is_good;
}

void unregister_memory(const Table& table) {
  const std::lock_guard lock(mutex);
  const auto found = registered().find(&table);
  if (found == registered().end()) return;
  const device::DeviceGuard device_guard(found->second);
  cudaHostUnregister(table.view.memory);
  registered().erase(found);
}

}  // namespace

ncast_status register_memory(const char* function, Table& table) {
  const std::lock_guard lock(mutex);
  if (registered().contains(&table)) return NCAST_OK;
  if (!is_undamaged(table)) {
    return fail(NCAST_CORRUPT,
                "%s: %s is damaged: GPUs do not read damaged files (`narrowcast store verify` lists the "
                "rows)",
                function, table.name.c_str());
  }
  const TableView& view = table.view;
  unsigned flags = cudaHostRegisterMapped | cudaHostRegisterPortable;
  if (table.host == NCAST_STORE_MMAP) flags |= cudaHostRegisterReadOnly;
  if (const cudaError_t error = cudaHostRegister(view.memory, view.memory_bytes, flags); error != cudaSuccess) {
    return fail(NCAST_CUDA_ERROR, "%s: CUDA cannot register the %" PRIu64 " bytes of %s%s: %s (%s)", function,
                view.memory_bytes, table.name.c_str(),
                table.host == NCAST_STORE_MMAP ? ", which are pages of its file (other stores are in memory)" : "",
                cuda_error_text(error).c_str(), cudaGetErrorName(error));
  }
  int device = 0;
  cudaGetDevice(&device);
  registered().emplace(&table, device);
  table.before_unmap.emplace_back([&table] { unregister_memory(table); });
  return NCAST_OK;
}

}  // namespace narrowcast::store::cuda
