#include "store/table/memory.h"

#include <sys/mman.h>

#include <cerrno>
#include <cinttypes>
#include <cstring>

#include "status/error.h"

namespace narrowcast::store {

ncast_status Mapping::allocate(uint64_t bytes) {
  reset();
  void* const data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) {
    return fail(NCAST_SYSTEM_ERROR, "cannot allocate %" PRIu64 " bytes for the table: %s", bytes, std::strerror(errno));
  }
  data_ = static_cast<uint8_t*>(data);
  bytes_ = bytes;
  // Rows are read in random order. An error only means small pages.
  madvise(data, bytes, MADV_HUGEPAGE);
  return NCAST_OK;
}

ncast_status Mapping::map_file(int file, uint64_t bytes) {
  reset();
  void* const data = mmap(nullptr, bytes, PROT_READ, MAP_SHARED, file, 0);
  if (data == MAP_FAILED) {
    return fail(NCAST_SYSTEM_ERROR, "cannot map %" PRIu64 " bytes of the table file: %s", bytes, std::strerror(errno));
  }
  data_ = static_cast<uint8_t*>(data);
  bytes_ = bytes;
  return NCAST_OK;
}

void Mapping::reset() {
  if (data_ != nullptr) munmap(data_, bytes_);
  data_ = nullptr;
  bytes_ = 0;
}

}  // namespace narrowcast::store
