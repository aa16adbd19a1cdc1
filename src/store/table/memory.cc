#include "store/table/memory.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cinttypes>
#include <climits>
#include <cstring>

#include "status/error.h"

namespace narrowcast::store {
namespace {
constexpr int bind_policy = 2;  // MPOL_BIND of the kernel, whose header belongs to libnuma
constexpr int max_nodes = 1024;
}  // namespace

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

ncast_status place_on_node(uint8_t* data, uint64_t bytes, int node) {
  if (node < 0 || node >= max_nodes) return fail(NCAST_INVALID_ARGUMENT, "numa: there is no node %d", node);
  constexpr int word_bits = sizeof(unsigned long) * CHAR_BIT;
  std::array<unsigned long, max_nodes / word_bits> nodes = {};
  nodes[static_cast<size_t>(node / word_bits)] |= 1ul << (node % word_bits);
  if (syscall(SYS_mbind, data, bytes, bind_policy, nodes.data(), max_nodes + 1, 0) == 0) return NCAST_OK;
  if (errno == EINVAL) return fail(NCAST_INVALID_ARGUMENT, "numa: there is no node %d with memory", node);
  return fail(NCAST_SYSTEM_ERROR, "cannot place the table on NUMA node %d: %s", node, std::strerror(errno));
}

}  // namespace narrowcast::store
