#include <cuda_runtime.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <string>

#include "bootstrap/numa.h"
#include "bootstrap/outcome.h"
#include "channel/peer/peer_memory.h"
#include "channel/peer/zeroed_memory.h"
#include "status/error.h"

namespace narrowcast::channel {
namespace {

// What a rank tells the others to determine which GPUs can access each other.
struct GpuAccess {
  RankGpu gpu;
  int wants_host;
};

// Host memory that other ranks can map.
struct SegmentOffer {
  uint64_t bytes;
  char name[64];
};

// The first page of a segment holds its owners; the ranks' memory follows.
constexpr size_t segment_header_bytes = 4096;
static_assert(sizeof(bootstrap::SegmentOwners) <= segment_header_bytes);

// Has the pages of this rank's memory allocated on the NUMA node of its GPU, if possible. A GPU reads and polls its own
// rank's segment and only writes to those of others: it waits for what it reads, but not for its writes.
void place_near_gpu(void* memory, size_t bytes) {
  int device = 0, node = -1;
  if (cudaGetDevice(&device) != cudaSuccess ||
      cudaDeviceGetAttribute(&node, cudaDevAttrHostNumaId, device) != cudaSuccess) {
    cudaGetLastError();  // clear the error: the memory can be anywhere
    return;
  }
  if (node >= 0) bootstrap::place_on_node(memory, bytes, node, bootstrap::NodePolicy::preferred);
}

// Checks that every rank offers as many bytes as this one.
template <typename Offer>
ncast_status check_bytes(const std::vector<Offer>& offers, size_t bytes) {
  for (size_t rank = 0; rank < offers.size(); ++rank) {
    if (offers[rank].bytes == bytes) continue;
    return fail(NCAST_MISMATCH, "rank %zu shares %" PRIu64 " bytes of memory, but this rank shares %zu", rank,
                offers[rank].bytes, bytes);
  }
  return NCAST_OK;
}

}  // namespace

ncast_status PeerMemory::find_topology(bootstrap::Rendezvous& rendezvous, bool wants_host, Topology* topology) {
  GpuAccess own{{}, wants_host};
  if (ncast_status status = RankGpu::find(&own.gpu)) return status;
  std::vector<GpuAccess> all(static_cast<size_t>(rendezvous.ranks()));
  if (ncast_status status = rendezvous.all_gather(&own, sizeof own, all.data())) return status;
  struct Restrictions {
    bool needs_host, lacks_nvlink;
  };
  Restrictions found{};
  for (const GpuAccess& other : all) {
    if (other.wants_host != 0 || !own.gpu.may_access(other.gpu)) found.needs_host = true;
    if (!own.gpu.has_nvlink_to(other.gpu)) found.lacks_nvlink = true;
  }
  std::vector<Restrictions> by_rank(all.size());
  if (ncast_status status = rendezvous.all_gather(&found, sizeof found, by_rank.data())) return status;
  *topology = {Place::device, true, false};
  for (size_t rank = 1; rank < all.size(); ++rank) {
    const auto is_same = [&](const GpuAccess& other) { return other.gpu.is(all[rank].gpu); };
    if (std::any_of(all.begin(), all.begin() + static_cast<ptrdiff_t>(rank), is_same)) topology->shares_gpu = true;
  }
  for (const Restrictions& other : by_rank) {
    if (other.needs_host) topology->place = Place::host;
    if (other.lacks_nvlink) topology->nvlink = false;
  }
  return NCAST_OK;
}

ncast_status PeerMemory::create(bootstrap::Rendezvous& rendezvous, Place place, size_t bytes, const Mirrors& mirrors,
                                std::unique_ptr<PeerMemory>* result) {
  std::unique_ptr<PeerMemory> memory(new PeerMemory(rendezvous));
  if (ncast_status status =
          place == Place::device ? memory->map_device_memory(bytes) : memory->map_host_memory(bytes, mirrors)) {
    const std::string message = ncast_last_error();
    memory.reset();
    return fail(status, "%s", message.c_str());
  }
  *result = std::move(memory);
  return NCAST_OK;
}

ncast_status PeerMemory::map_device_memory(size_t bytes) {
  if (const cudaError_t error = allocate_zeroed(&own_, bytes); error != cudaSuccess)
    return cuda_failure("allocating scratch memory", error);
  MemoryOffer own;
  if (ncast_status status = MemoryOffer::make(own_, bytes, &own)) return status;

  const auto ranks = static_cast<size_t>(rendezvous_.ranks());
  std::vector<MemoryOffer> offers(ranks);
  if (ncast_status status = rendezvous_.all_gather(&own, sizeof own, offers.data())) return status;
  shared_ = true;
  ncast_status status = check_bytes(offers, bytes);
  for (size_t rank = 0; status == NCAST_OK && rank < ranks; ++rank) {
    if (static_cast<int>(rank) == rendezvous_.rank()) {
      addresses_[rank] = own_;
      continue;
    }
    status = mapped_[rank].map(own.gpu, offers[rank]);
    addresses_[rank] = mapped_[rank].address();
  }
  // If one rank fails, all ranks must fail: their destructors wait for each other.
  return bootstrap::agree_on_outcome(rendezvous_, status);
}

ncast_status PeerMemory::map_host_memory(size_t bytes, const Mirrors& mirrors) {
  const auto rank = static_cast<size_t>(rendezvous_.rank());
  bootstrap::SharedMemory& segment = segments_[rank];
  SegmentOffer own = {};
  own.bytes = bytes;
  uint64_t number[2];
  if (ncast_status status = bootstrap::random_bytes(&number, sizeof number)) return status;
  std::snprintf(own.name, sizeof own.name, "%s%016" PRIx64 "%016" PRIx64, bootstrap::segment_prefix, number[0],
                number[1]);
  if (ncast_status status = segment.create(segment_header_bytes + bytes)) return status;
  place_near_gpu(segment.data(), segment.bytes());
  if (ncast_status status = segment.allocate(0, segment_header_bytes + bytes)) return status;
  // Record the owner, so that the segment can be found and removed if this process is killed before it unlinks the
  // name.
  auto* owners = reinterpret_cast<bootstrap::SegmentOwners*>(segment.data());
  owners->magic = bootstrap::segment_magic;
  owners->owner[0].process = bootstrap::current_process();
  owners->owner[0].state.store(bootstrap::SegmentOwners::joined, std::memory_order_release);
  bool taken = false;
  if (ncast_status status = segment.publish(own.name, &taken)) return status;

  std::vector<SegmentOffer> offers(static_cast<size_t>(rendezvous_.ranks()));
  ncast_status status = rendezvous_.all_gather(&own, sizeof own, offers.data());
  if (status == NCAST_OK) status = check_bytes(offers, bytes);
  for (size_t peer = 0; status == NCAST_OK && peer < offers.size(); ++peer) {
    offers[peer].name[sizeof offers[peer].name - 1] = 0;
    status = (mirrors.ranks >> peer & 1) != 0 ? make_mirror(peer, bytes, mirrors.parts)
                                              : map_segment(peer, offers[peer].name, bytes);
  }
  if (status == NCAST_OK) status = rendezvous_.barrier();
  const std::string message = ncast_last_error();
  bootstrap::unlink_segment(own.name);
  shared_ = status == NCAST_OK;
  return status == NCAST_OK ? NCAST_OK : fail(status, "%s", message.c_str());
}

ncast_status PeerMemory::map_segment(size_t rank, const char* name, size_t bytes) {
  bootstrap::SharedMemory& segment = segments_[rank];
  bool found = true;
  if (rank != static_cast<size_t>(rendezvous_.rank())) {
    if (ncast_status status = segment.open(name, &found)) return status;
  }
  if (!found || segment.bytes() != segment_header_bytes + bytes)
    return fail(NCAST_SYSTEM_ERROR,
                "the shared memory of rank %zu is not visible to rank %d: do they share /dev/shm? If not, set "
                "NARROWCAST_HOSTID to a name of its own for each of them",
                rank, rendezvous_.rank());
  on_host_[rank] = reinterpret_cast<char*>(segment.data()) + segment_header_bytes;
  return pin(on_host_[rank], bytes, &addresses_[rank]);
}

// The parts that are not pinned are not touched, and so take no memory.
ncast_status PeerMemory::make_mirror(size_t rank, size_t bytes, const std::vector<Mirrors::Part>& parts) {
  // Shared, because forks make the writer of a private page get another one. Zeroed.
  void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return fail(NCAST_SYSTEM_ERROR, "out of memory: %zu bytes", bytes);
  auto* const base = static_cast<char*>(memory);
  mirrors_.emplace_back(base, bytes);
  place_near_gpu(memory, bytes);
  addresses_[rank] = on_host_[rank] = base;
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  size_t end = 0;  // of what is pinned
  for (const Mirrors::Part& part : parts) {
    const size_t begin = std::max(end, part.begin / page * page);
    end = std::max(end, (part.begin + part.bytes + page - 1) / page * page);
    char* address = nullptr;
    if (begin == end) continue;
    if (ncast_status status = pin(base + begin, end - begin, &address)) return status;
    if (address != base + begin)
      return fail(NCAST_UNSUPPORTED, "GPUs of this system have other addresses for host memory than CPUs");
  }
  return NCAST_OK;
}

size_t PeerMemory::Mirrors::bytes() const {
  size_t all = 0;
  for (const Part& part : parts) all += part.bytes;
  return all;
}

ncast_status PeerMemory::pin(void* memory, size_t bytes, char** address) {
  cudaError_t error = cudaHostRegister(memory, bytes, cudaHostRegisterPortable | cudaHostRegisterMapped);
  if (error == cudaSuccess) {
    registered_.push_back(memory);
    error = cudaHostGetDevicePointer(reinterpret_cast<void**>(address), memory, 0);
  }
  return error == cudaSuccess ? NCAST_OK : cuda_failure("pinning host memory", error);
}

PeerMemory::~PeerMemory() {
  // After the first barrier no rank writes to the memory; after the second no rank has it mapped.
  bool is_unused = !shared_ || rendezvous_.barrier() == NCAST_OK;
  for (MappedMemory& mapped : mapped_) mapped.unmap();
  for (void* data : registered_) cudaHostUnregister(data);
  for (const std::span<char> mirror : mirrors_) munmap(mirror.data(), mirror.size());
  is_unused = is_unused && (!shared_ || rendezvous_.barrier() == NCAST_OK);
  if (is_unused && own_ != nullptr) cudaFree(own_);
}

}  // namespace narrowcast::channel
