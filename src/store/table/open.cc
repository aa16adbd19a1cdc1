// Opens a table file: reads and checks it, and lays out its memory.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <optional>
#include <thread>
#include <utility>

#include "bootstrap/interrupt.h"
#include "status/error.h"
#include "store/file/checksum.h"
#include "store/file/header.h"
#include "store/table/table.h"
#include "threads/parallel.h"

namespace narrowcast::store {
namespace {

using file::aligned;

constexpr uint64_t readable_after = 128;                   // bytes behind every part
constexpr uint64_t owners_bytes = 4096;                    // of bootstrap::SegmentOwners, and room to grow
constexpr uint64_t load_bytes = 16 * file::segment_bytes;  // read at a time
// Behind the list of owners in a shared segment: what its creator has reserved.
struct Reserved {
  uint64_t capacity, entry_count;
};
constexpr uint64_t reserved_offset = owners_bytes - sizeof(Reserved);
static_assert(sizeof(bootstrap::SegmentOwners) <= reserved_offset);

// The places of the parts in the memory of a table that can be changed.
struct Places {
  uint64_t control, lock, readers, data, offsets, row_words, entries, entry_infos, bytes;
  uint64_t data_bytes, entry_count, capacity;
};

class File {
 public:
  File() = default;
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File() {
    if (file_ >= 0) close(file_);
  }

  ncast_status open(const std::string& name) {
    name_ = name;
    file_ = ::open(name.c_str(), O_RDONLY | O_CLOEXEC);
    if (file_ < 0 || fstat(file_, &about_) != 0)
      return fail(NCAST_SYSTEM_ERROR, "%s: %s", name.c_str(), std::strerror(errno));
    if (!S_ISREG(about_.st_mode)) return fail(NCAST_SYSTEM_ERROR, "%s is not a regular file", name.c_str());
    return NCAST_OK;
  }
  ncast_status read(uint64_t offset, uint8_t* bytes, uint64_t count) const {
    while (count != 0) {
      const ssize_t got = pread(file_, bytes, std::min<uint64_t>(count, 1u << 30), static_cast<off_t>(offset));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return fail(NCAST_SYSTEM_ERROR, "%s: %s", name_.c_str(), std::strerror(errno));
      if (got == 0) return fail(NCAST_CORRUPT, "%s became shorter while it was read", name_.c_str());
      bytes += got;
      offset += static_cast<uint64_t>(got);
      count -= static_cast<uint64_t>(got);
    }
    return NCAST_OK;
  }
  int descriptor() const { return file_; }
  int release() { return std::exchange(file_, -1); }
  uint64_t bytes() const { return static_cast<uint64_t>(about_.st_size); }
  // Differs for every file and every version of it.
  std::string shared_name() const {
    const uint64_t parts[] = {about_.st_dev,
                              about_.st_ino,
                              static_cast<uint64_t>(about_.st_size),
                              static_cast<uint64_t>(about_.st_mtim.tv_sec),
                              static_cast<uint64_t>(about_.st_mtim.tv_nsec),
                              geteuid()};
    char text[64];
    std::snprintf(text, sizeof text, "%sstore.%016" PRIx64, bootstrap::segment_prefix,
                  static_cast<uint64_t>(file::checksum(parts, sizeof parts)));
    return text;
  }

 private:
  std::string name_;
  int file_ = -1;
  struct stat about_ = {};
};

// Reads a section that fits into memory easily, and compares its checksum.
ncast_status read_small(const File& file, const Table& table, uint32_t section, std::vector<uint8_t>* bytes) {
  const file::Section& place = table.header.sections[section];
  bytes->resize(place.bytes);
  if (ncast_status status = file.read(place.offset, bytes->data(), bytes->size())) return status;
  if (file::checksum(bytes->data(), bytes->size()) != place.checksum) {
    return fail(NCAST_CORRUPT, "%s: the section '%s' is damaged: its checksum does not match", table.name.c_str(),
                file::section_names[section]);
  }
  return NCAST_OK;
}

// Reads everything but the rows.
ncast_status read_description(const File& file, Table& table) {
  std::vector<uint8_t> bytes(file::page_bytes);
  if (file.bytes() >= file::page_bytes) {
    if (ncast_status status = file.read(0, bytes.data(), bytes.size())) return status;
  }
  if (ncast_status status = file::read_header(table.name, bytes.data(), file.bytes(), &table.header)) return status;
  const file::Header& header = table.header;
  if (ncast_status status = read_small(file, table, file::metadata, &bytes)) return status;
  table.metadata.assign(bytes.begin(), bytes.end());
  if (ncast_status status = read_small(file, table, file::checksums, &bytes)) return status;
  std::vector<uint64_t> checksums(bytes.size() / sizeof(uint64_t));
  if (!bytes.empty()) std::memcpy(checksums.data(), bytes.data(), bytes.size());
  table.checks.reset(header, std::move(checksums));
  if (ncast_status status = read_small(file, table, file::model, &bytes)) return status;
  if (header.layout == file::blocks_layout) {
    if (!bytes.empty()) return fail(NCAST_CORRUPT, "%s: a table of blocks has no model", table.name.c_str());
  } else {
    std::string problem;
    const std::optional<RowModel> model = RowModel::parse(bytes, &problem);
    if (!model) return fail(NCAST_CORRUPT, "%s: the model of the codec: %s", table.name.c_str(), problem.c_str());
    const RowShape shape{static_cast<ncast_dtype>(header.dtype), header.row_elems()};
    table.model = std::make_shared<const RowModel>(*model);
    if (table.model->shape() != shape || table.model->uncoded() != (header.uncoded != 0))
      return fail(NCAST_CORRUPT, "%s: the model of the codec is for other rows", table.name.c_str());
  }
  return NCAST_OK;
}

void describe_view(const Table& table, TableView& view) {
  const file::Header& header = table.header;
  view.layout = static_cast<Layout>(header.layout);
  view.uncoded = header.uncoded != 0;
  view.row_bytes = file::row_bytes_of(header);
  view.capacity = header.rows;
  view.data_bytes = header.sections[file::data].bytes;
  view.stride = header.stride;
  view.unit = header.unit;
  view.entry_stride = header.entry_stride;
  view.entry_count = header.entries;
}

ncast_status plan_places(const Table& table, const OpenOptions& options, Places* places) {
  const file::Header& header = table.header;
  const bool blocks = header.layout == file::blocks_layout;
  if (options.capacity != 0 && options.capacity < header.rows) {
    return fail(NCAST_INVALID_ARGUMENT, "capacity is %" PRIu64 ", but %s has %" PRIu64 " rows", options.capacity,
                table.name.c_str(), header.rows);
  }
  if (blocks && (options.capacity > header.rows || options.spare > 0))
    return fail(NCAST_UNSUPPORTED, "%s has the layout blocks, which is read-only", table.name.c_str());
  places->capacity = options.capacity != 0 ? options.capacity : header.capacity;
  const uint64_t spare = options.spare >= 0 ? static_cast<uint64_t>(options.spare) : header.spare;
  places->entry_count = header.entries + spare;
  if (places->entry_count > file::max_entries || places->capacity > file::max_rows ||
      places->capacity > UINT64_MAX / 16 / std::max(header.entry_stride, uint64_t{1}))
    return fail(NCAST_INVALID_ARGUMENT, "capacity or spare is too large");
  places->data_bytes = header.sections[file::data].bytes;
  const uint64_t more_rows = places->capacity - header.rows;
  if (header.layout == file::stride_layout) places->data_bytes = places->capacity * header.stride;
  if (header.layout == file::packed_layout) {
    places->data_bytes += more_rows * aligned(table.model->bound(), header.unit);
    if (places->data_bytes / header.unit > UINT32_MAX)
      return fail(NCAST_INVALID_ARGUMENT, "capacity is too large for the layout packed with units of %u bytes",
                  header.unit);
  }
  uint64_t end = 0;
  const auto place = [&](uint64_t bytes, uint64_t alignment) {
    const uint64_t begin = aligned(end, alignment);
    end = begin + bytes + readable_after;
    return begin;
  };
  place(owners_bytes - readable_after, 1);
  places->control = place(sizeof(ControlWords), 64);
  places->lock = place(sizeof(WriterLock), 64);
  places->readers = place(max_readers * sizeof(ReaderWords), 64);
  places->data = place(places->data_bytes, file::page_bytes);
  const uint64_t offsets = header.layout == file::packed_layout ? 4 * (places->capacity + 1)
                           : blocks                             ? header.sections[file::offsets].bytes
                                                                : 0;
  places->offsets = place(offsets, file::page_bytes);
  places->row_words = place(header.uncoded != 0 && places->entry_count != 0 ? 4 * places->capacity : 0, 128);
  places->entries = place(places->entry_count * header.entry_stride, file::page_bytes);
  places->entry_infos = place(places->entry_count * sizeof(EntryInfo), 128);
  places->bytes = aligned(end, file::page_bytes);
  return NCAST_OK;
}

void set_view(Table& table, const Places& places, uint8_t* memory) {
  TableView& view = table.view;
  describe_view(table, view);
  view.memory = memory;
  view.memory_bytes = places.bytes;
  view.control = reinterpret_cast<ControlWords*>(memory + places.control);
  view.readers = reinterpret_cast<ReaderWords*>(memory + places.readers);
  view.capacity = places.capacity;
  view.data = memory + places.data;
  view.data_bytes = places.data_bytes;
  view.offsets = reinterpret_cast<uint32_t*>(memory + places.offsets);
  view.row_words =
      view.uncoded && places.entry_count != 0 ? reinterpret_cast<uint32_t*>(memory + places.row_words) : nullptr;
  view.entries = memory + places.entries;
  view.entry_count = places.entry_count;
  table.entry_infos = reinterpret_cast<EntryInfo*>(memory + places.entry_infos);
  table.writer = reinterpret_cast<WriterLock*>(memory + places.lock);
}

// Offsets in memory must be valid whatever the file says: all code after this relies on them.
ncast_status check_offsets(const Table& table) {
  const file::Header& header = table.header;
  const TableView& view = table.view;
  const uint64_t data_bytes = header.sections[file::data].bytes;
  bool valid = true;
  if (view.layout == Layout::packed) {
    valid = view.offsets[0] == 0 && uint64_t{view.offsets[header.rows]} * view.unit == data_bytes;
    for (uint64_t i = 0; i < header.rows && valid; ++i) valid = view.offsets[i] < view.offsets[i + 1];
  } else if (view.layout == Layout::blocks) {
    const auto* const offsets = reinterpret_cast<const uint64_t*>(view.offsets);
    const uint64_t frames = file::frames_of(header);
    valid = offsets[0] == 0 && offsets[frames] == data_bytes;
    for (uint64_t i = 0; i < frames && valid; ++i) valid = offsets[i] < offsets[i + 1];
  }
  return valid ? NCAST_OK : fail(NCAST_CORRUPT, "%s: the offsets of its rows are not valid", table.name.c_str());
}

// Reads a segmented section to memory, on several threads, and verifies it.
ncast_status load_section(const File& file, Table& table, uint32_t section, uint8_t* memory, int threads) {
  const file::Section& place = table.header.sections[section];
  threads::FirstError error;
  threads::for_each(static_cast<size_t>((place.bytes + load_bytes - 1) / load_bytes), threads::count_of(threads),
                    [&](size_t piece) {
                      const uint64_t begin = piece * load_bytes;
                      const uint64_t count = std::min(load_bytes, place.bytes - begin);
                      error.note(piece, file.read(place.offset + begin, memory + begin, count));
                      for (uint64_t at = begin; at < begin + count; at += file::segment_bytes)
                        table.checks.verify(section, at / file::segment_bytes, memory + at);
                    });
  table.checks.set_base(section, memory);
  return error.status() == NCAST_OK ? NCAST_OK : fail(error.status(), "%s", error.message().c_str());
}

ncast_status load(const File& file, Table& table, const OpenOptions& options) {
  const file::Header& header = table.header;
  TableView& view = table.view;
  const auto load_to = [&](uint32_t section, void* memory) {
    return load_section(file, table, section, static_cast<uint8_t*>(memory), options.threads);
  };
  if (ncast_status status = load_to(file::offsets, view.offsets)) return status;
  std::vector<uint64_t> rows(header.entries);
  if (ncast_status status = load_to(file::entry_rows, rows.data())) return status;
  if (table.checks.damaged() != 0) return fail(NCAST_CORRUPT, "%s: its index is damaged", table.name.c_str());
  if (ncast_status status = check_offsets(table)) return status;
  for (uint64_t i = 0; i < header.entries; ++i) {
    if (rows[i] >= header.rows) return fail(NCAST_CORRUPT, "%s: an overflow entry is of no row", table.name.c_str());
    table.entry_infos[i] = {rows[i] + 1, header.entry_stride};
  }
  if (ncast_status status = load_to(file::data, view.data)) return status;
  if (ncast_status status = load_to(file::entries, view.entries)) return status;
  if (table.checks.damaged() == 0) {
    table.checks.deactivate();
  } else if (!options.allow_damage) {
    return fail(NCAST_CORRUPT,
                "%s is damaged: the checksums of %" PRIu64
                " of its parts of 64 KiB do not match (`narrowcast store "
                "verify` lists the rows)",
                table.name.c_str(), table.checks.damaged());
  }
  view.control->entries_used = header.entries;
  std::atomic_ref<uint64_t>(view.control->rows).store(header.rows, std::memory_order_release);
  return NCAST_OK;
}

// The number of bytes of a payload that 99% of the rows do not exceed.
uint64_t usual_bytes(const TableView& view, uint64_t rows) {
  if (view.layout != Layout::packed || rows == 0) return 0;
  const uint64_t every = rows / 10000 + 1;
  std::vector<uint64_t> sizes;
  for (uint64_t i = 0; i < rows; i += every)
    sizes.push_back(uint64_t{view.offsets[i + 1] - view.offsets[i]} * view.unit);
  const auto at = sizes.begin() + static_cast<std::ptrdiff_t>(sizes.size() * 99 / 100);
  std::ranges::nth_element(sizes, at);
  return *at;
}

ncast_status open_pinned(const File& file, const OpenOptions& options, Table& table) {
  Places places;
  if (ncast_status status = plan_places(table, options, &places)) return status;
  if (ncast_status status = table.mapping.allocate(places.bytes)) return status;
  if (options.numa_node >= 0) {
    if (ncast_status status = place_on_node(table.mapping.data(), places.bytes, options.numa_node)) return status;
  }
  set_view(table, places, table.mapping.data());
  if (ncast_status status = table.writer->initialise()) return status;
  table.readers.attach(table.view.readers, nullptr, table.own_number);
  return load(file, table, options);
}

ncast_status open_mapped(const File& file, const OpenOptions& options, Table& table) {
  const file::Header& header = table.header;
  if (options.numa_node >= 0) return fail(NCAST_INVALID_ARGUMENT, "numa: the pages of a file cannot be placed");
  if ((options.capacity != 0 && options.capacity != header.rows) || options.spare > 0)
    return fail(NCAST_INVALID_ARGUMENT,
                "a store in the pages of its file is read-only: it has no capacity and no spare");
  if (ncast_status status = table.mapping.map_file(file.descriptor(), file.bytes())) return status;
  if (ncast_status status =
          table.own_control.allocate(aligned(sizeof(ControlWords), 64) + max_readers * sizeof(ReaderWords)))
    return status;
  describe_view(table, table.view);
  TableView& view = table.view;
  // The mapping is read-only; nothing writes to the parts of a table without a writer.
  uint8_t* const memory = table.mapping.data();
  view.memory = memory;
  view.memory_bytes = file.bytes();
  view.control = reinterpret_cast<ControlWords*>(table.own_control.data());
  view.readers = reinterpret_cast<ReaderWords*>(table.own_control.data() + aligned(sizeof(ControlWords), 64));
  view.data = memory + header.sections[file::data].offset;
  view.offsets = reinterpret_cast<uint32_t*>(memory + header.sections[file::offsets].offset);
  view.entries = memory + header.sections[file::entries].offset;
  for (uint32_t section = file::data; section <= file::entry_rows; ++section)
    table.checks.set_base(section, memory + header.sections[section].offset);
  table.readers.attach(view.readers, nullptr, table.own_number);
  if (!table.checks.are_good(file::offsets, 0, header.sections[file::offsets].bytes))
    return fail(NCAST_CORRUPT, "%s: its index is damaged", table.name.c_str());
  if (ncast_status status = check_offsets(table)) return status;
  view.control->entries_used = header.entries;
  view.control->rows = header.rows;
  return NCAST_OK;
}

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
ncast_status create_shared(const File& file, const OpenOptions& options, Table& table) {
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
  const Reserved reserved = {places.capacity, places.entry_count};
  std::memcpy(memory + reserved_offset, &reserved, sizeof reserved);
  if (ncast_status status = load(file, table, options)) return status;
  table.owners = reinterpret_cast<bootstrap::SegmentOwners*>(memory);
  table.own_number = join(*table.owners);
  table.owners->magic = bootstrap::segment_magic;
  bool taken;
  return table.shared.publish(table.shared_name, &taken);
}

ncast_status join_shared(const OpenOptions& options, Table& table) {
  auto* const memory = reinterpret_cast<uint8_t*>(table.shared.data());
  Reserved reserved;
  std::memcpy(&reserved, memory + reserved_offset, sizeof reserved);
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
  auto* const owners = reinterpret_cast<bootstrap::SegmentOwners*>(memory);
  table.own_number = join(*owners);
  if (table.own_number == 0) {
    return fail(NCAST_UNSUPPORTED, "%s is open in %d processes, which is the maximum", table.name.c_str(),
                bootstrap::SegmentOwners::capacity);
  }
  table.owners = owners;
  return NCAST_OK;
}

ncast_status open_shared(File& file, const OpenOptions& options, Table& table) {
  if (options.allow_damage) return fail(NCAST_INVALID_ARGUMENT, "damaged files cannot be opened in shared memory");
  table.shared_name = file.shared_name();
  if (ncast_status status = lock_file(file.descriptor())) return status;
  bool found;
  if (ncast_status status = table.shared.open(table.shared_name, &found)) return status;
  if (found && !has_living_owner(*reinterpret_cast<bootstrap::SegmentOwners*>(table.shared.data()))) {
    bootstrap::unlink_segment(table.shared_name);  // all its processes were killed
    found = false;
  }
  if (ncast_status status = found ? join_shared(options, table) : create_shared(file, options, table)) return status;
  table.checks.deactivate();
  table.readers.attach(table.view.readers, table.owners, table.own_number);
  flock(file.descriptor(), LOCK_UN);
  table.shared_file = file.release();
  return NCAST_OK;
}

}  // namespace

Table::~Table() {
  for (const auto& undo : before_unmap) undo();
  readers.detach();
  if (owners == nullptr) return;
  // Without the lock, the segment stays until the next process opens the file or a sweep finds it without owners.
  const bool locked = shared_file >= 0 && lock_file(shared_file) == NCAST_OK;
  owners->owner[own_number - 1].state = bootstrap::SegmentOwners::left;
  if (locked && !has_living_owner(*owners)) bootstrap::unlink_segment(shared_name);
  if (shared_file >= 0) close(shared_file);
}

ncast_status open_table(const std::string& path, const OpenOptions& options, std::unique_ptr<Table>* opened) {
  auto table = std::make_unique<Table>();
  table->name = path;
  table->host = options.host;
  File file;
  if (ncast_status status = file.open(path)) return status;
  if (ncast_status status = read_description(file, *table)) return status;
  const auto open_it = [&] {
    switch (options.host) {
      case NCAST_STORE_MMAP: return open_mapped(file, options, *table);
      case NCAST_STORE_SHARED: return open_shared(file, options, *table);
      default: return open_pinned(file, options, *table);
    }
  };
  if (ncast_status status = open_it()) return status;
  table->view.usual_bytes = usual_bytes(table->view, table->rows());
  *opened = std::move(table);
  return NCAST_OK;
}

}  // namespace narrowcast::store
