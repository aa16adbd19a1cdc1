#include "store/table/open/shared.h"

#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cinttypes>
#include <cstring>
#include <thread>

#include "bootstrap/interrupt.h"
#include "digest/sha256.h"
#include "status/error.h"
#include "store/table/open/load.h"
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

// Waits for the lock of a file. It makes opening and closing a shared table atomic, and ends with the process.
ncast_status lock_file(int file) {
  while (flock(file, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR)
      return fail(NCAST_SYSTEM_ERROR, "cannot lock the table file: %s", std::strerror(errno));
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    if (bootstrap::is_interrupted()) return bootstrap::interrupted();
  }
  return NCAST_OK;
}

// Creates the shared segment, fills it and publishes it.
ncast_status create_shared(const TableFile& file, const OpenOptions& options, Table& table) {
  Places places;
  if (ncast_status status = plan_places(table, options, &places)) return status;
  if (ncast_status status = table.shared.create(places.bytes)) return status;
  auto* const memory = reinterpret_cast<uint8_t*>(table.shared.data());
  if (options.numa_node >= 0) {
    if (ncast_status status = place_on_node(memory, places.bytes, options.numa_node)) return status;
  }
  if (ncast_status status = table.shared.allocate(0, places.bytes)) return status;
  set_view(table, places, memory);
  if (ncast_status status = table.writer->initialise()) return status;
  const Reserved reserved = {file.identity(), places.capacity, places.entry_count};
  std::memcpy(memory + reserved_offset, &reserved, sizeof reserved);
  if (ncast_status status = load(file, table, options)) return status;
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
  if (table.rows() > places.capacity || std::atomic_ref(table.view.control->entries_used).load() > places.entry_count)
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

ncast_status open_shared(TableFile& file, const OpenOptions& options, Table& table) {
  if (options.allow_damage) return fail(NCAST_INVALID_ARGUMENT, "damaged files cannot be opened in shared memory");
  table.shared_name = file.shared_name();
  if (ncast_status status = lock_file(file.descriptor())) return status;
  bool found;
  if (ncast_status status = table.shared.open(table.shared_name, &found)) return status;
  if (found && !has_living_owner(*reinterpret_cast<bootstrap::SegmentOwners*>(table.shared.data()))) {
    bootstrap::unlink_segment(table.shared_name);  // all its processes were killed
    found = false;
  }
  if (ncast_status status = found ? join_shared(file, options, table) : create_shared(file, options, table))
    return status;
  table.checks.deactivate();
  table.readers.attach(table.view.readers, table.owners, table.own_number);
  flock(file.descriptor(), LOCK_UN);
  table.shared_file = file.release();
  return NCAST_OK;
}

void leave_shared(Table& table) {
  // Without the lock, the segment stays until the next process opens the file or a sweep finds it without owners.
  const bool locked = table.shared_file >= 0 && lock_file(table.shared_file) == NCAST_OK;
  table.owners->owner[table.own_number - 1].state = bootstrap::SegmentOwners::left;
  if (locked && !has_living_owner(*table.owners)) bootstrap::unlink_segment(table.shared_name);
  if (table.shared_file >= 0) close(table.shared_file);
}

}  // namespace narrowcast::store
