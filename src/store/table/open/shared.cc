#include "store/table/open/shared.h"

#include <sys/statvfs.h>

#include <algorithm>
#include <atomic>
#include <cinttypes>
#include <cstring>

#include "bootstrap/numa.h"
#include "digest/sha256.h"
#include "status/error.h"
#include "store/table/open/load.h"
#include "store/table/open/open_lock.h"
#include "store/table/open/places.h"

namespace narrowcast::store {
namespace {

// Behind the list of owners in a shared segment: of which file it is, and what its creator has reserved.
struct Reserved {
  digest::Sha256 file;
  uint64_t capacity, entry_count;
};
constexpr uint64_t reserved_offset = owners_bytes - sizeof(Reserved);
static_assert(sizeof(bootstrap::SegmentOwners) <= reserved_offset);

constexpr uint64_t allocated_bytes = uint64_t{1} << 30;  // at a time

bool has_living_owner(const bootstrap::SegmentOwners& owners) {
  return std::ranges::any_of(owners.owner, [](const auto& owner) {
    return owner.state.load() == bootstrap::SegmentOwners::joined && bootstrap::is_alive(owner.process);
  });
}

// Takes a place in the list of owners; 0 if there is none.
uint64_t join(bootstrap::SegmentOwners& owners) {
  using Owners = bootstrap::SegmentOwners;
  for (int i = 0; i < Owners::capacity; ++i) {
    Owners::Owner& owner = owners.owner[i];
    uint64_t state = owner.state.load();
    const bool free = state == Owners::absent || state == Owners::left ||
                      (state == Owners::joined && !bootstrap::is_alive(owner.process));
    if (!free || !owner.state.compare_exchange_strong(state, Owners::claimed)) continue;
    owner.process = bootstrap::current_process();
    owner.state = Owners::joined;
    return static_cast<uint64_t>(i) + 1;
  }
  return 0;
}

// Steps of an allocation would use up all memory before one of them fails.
ncast_status check_space(const Table& table, uint64_t bytes) {
  struct statvfs space;
  if (statvfs("/dev/shm", &space) != 0) return NCAST_OK;  // the first step finds out
  const uint64_t free = uint64_t{space.f_bavail} * space.f_frsize;
  if (bytes <= free) return NCAST_OK;
  return fail(NCAST_SYSTEM_ERROR,
              "%s needs %" PRIu64 " bytes of shared memory, but /dev/shm has %" PRIu64
              " free: enlarge it, or open the table with less capacity and spare",
              table.name.c_str(), bytes, free);
}

// Allocates the pages of the segment in steps, because a large one takes longer than others wait without progress.
ncast_status allocate(bootstrap::SharedMemory& segment, uint64_t bytes, OpenLock& lock) {
  for (uint64_t at = 0; at < bytes; at += allocated_bytes) {
    if (ncast_status status = segment.allocate(at, std::min(allocated_bytes, bytes - at))) return status;
    lock.note_progress();
  }
  return NCAST_OK;
}

// Creates the shared segment, fills it and publishes it.
ncast_status create_shared(const TableFile& file, const OpenOptions& options, Table& table, OpenLock& lock) {
  Places places;
  if (ncast_status status = plan_places(table, options, &places)) return status;
  // Processes that were killed while they loaded a table, or after its file was replaced, have left their memory.
  bootstrap::sweep_stale_segments();
  if (ncast_status status = check_space(table, places.bytes)) return status;
  if (ncast_status status = table.shared.create(places.bytes)) return status;
  auto* const memory = reinterpret_cast<uint8_t*>(table.shared.data());
  if (options.numa_node >= 0) {
    if (ncast_status status =
            bootstrap::place_on_node(memory, places.bytes, options.numa_node, bootstrap::NodePolicy::required))
      return status;
  }
  if (ncast_status status = allocate(table.shared, places.bytes, lock)) return status;
  set_view(table, places, memory);
  if (ncast_status status = table.writer->initialise()) return status;
  const Reserved reserved = {file.identity(), places.capacity, places.entry_count};
  std::memcpy(memory + reserved_offset, &reserved, sizeof reserved);
  if (ncast_status status = load(file, table, options, [&] { lock.note_progress(); })) return status;
  table.owners = reinterpret_cast<bootstrap::SegmentOwners*>(memory);
  table.own_number = join(*table.owners);
  table.owners->magic = bootstrap::segment_magic;
  bool taken;
  return table.shared.publish(table.shared_name, &taken);
}

ncast_status join_shared(const TableFile& file, const OpenOptions& options, Table& table) {
  auto* const memory = reinterpret_cast<uint8_t*>(table.shared.data());
  const auto damaged = [&] {
    return fail(NCAST_CORRUPT, "%s: its segment of shared memory, %s, is damaged or of another version of the library",
                table.name.c_str(), table.shared_name.c_str());
  };
  Reserved reserved;
  if (table.shared.bytes() < owners_bytes) return damaged();
  std::memcpy(&reserved, memory + reserved_offset, sizeof reserved);
  if (reserved.file != file.identity() || reserved.capacity < table.header.rows ||
      reserved.entry_count < table.header.entries)
    return damaged();
  OpenOptions same = options;
  same.capacity = reserved.capacity;
  same.spare = static_cast<int64_t>(reserved.entry_count - table.header.entries);
  if ((options.capacity != 0 && options.capacity != same.capacity) ||
      (options.spare >= 0 && options.spare != same.spare)) {
    return fail(NCAST_MISMATCH,
                "%s is open in shared memory with capacity %" PRIu64 " and spare %" PRId64 ", not the given ones",
                table.name.c_str(), same.capacity, same.spare);
  }
  Places places;
  if (ncast_status status = plan_places(table, same, &places)) return status;
  if (places.bytes != table.shared.bytes())
    return fail(NCAST_MISMATCH, "%s is open in shared memory by another version of the library", table.name.c_str());
  set_view(table, places, memory);
  if (table.rows() < table.header.rows || table.rows() > places.capacity ||
      std::atomic_ref(table.view.control->entries_used).load() > places.entry_count)
    return damaged();
  auto* const owners = reinterpret_cast<bootstrap::SegmentOwners*>(memory);
  table.own_number = join(*owners);
  if (table.own_number == 0) {
    return fail(NCAST_UNSUPPORTED, "%s is open in %d processes, which is the maximum", table.name.c_str(),
                bootstrap::SegmentOwners::capacity);
  }
  table.owners = owners;
  return NCAST_OK;
}

}  // namespace

ncast_status open_shared(const TableFile& file, const OpenOptions& options, Table& table) {
  if (options.allow_damage) return fail(NCAST_INVALID_ARGUMENT, "damaged files cannot be opened in shared memory");
  table.shared_name = file.shared_name();
  OpenLock lock;
  if (ncast_status status = lock.lock(table.shared_name, table.name)) return status;
  bool found;
  if (ncast_status status = table.shared.open(table.shared_name, &found)) return status;
  if (found && !has_living_owner(*reinterpret_cast<bootstrap::SegmentOwners*>(table.shared.data()))) {
    bootstrap::unlink_segment(table.shared_name);  // all its processes were killed
    found = false;
  }
  if (ncast_status status = found ? join_shared(file, options, table) : create_shared(file, options, table, lock))
    return status;
  table.checks.deactivate();
  table.readers.attach(table.view.readers, table.owners, table.own_number);
  return NCAST_OK;
}

void leave_shared(Table& table) {
  // Without the lock, the segment stays until the next process opens the file or a sweep finds it without owners.
  OpenLock lock;
  const bool locked = lock.lock(table.shared_name, table.name) == NCAST_OK;
  table.owners->owner[table.own_number - 1].state = bootstrap::SegmentOwners::left;
  if (locked && !has_living_owner(*table.owners)) bootstrap::unlink_segment(table.shared_name);
}

}  // namespace narrowcast::store
