// Opens and closes tables.
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "bootstrap/numa.h"
#include "status/error.h"
#include "store/file/header.h"
#include "store/rows/stride.h"
#include "store/table/open/load.h"
#include "store/table/open/places.h"
#include "store/table/open/shared.h"

namespace narrowcast::store {
namespace {

// The number of bytes of a payload that most rows do not exceed.
uint64_t usual_bytes(const TableView& view, uint64_t rows) {
  if (view.layout != Layout::packed || rows == 0) return 0;
  const uint64_t every = rows / 10000 + 1;
  std::vector<uint64_t> sizes;
  for (uint64_t i = 0; i < rows; i += every)
    sizes.push_back(uint64_t{view.offsets[i + 1] - view.offsets[i]} * view.unit);
  const auto at = sizes.begin() + static_cast<std::ptrdiff_t>(sizes.size() * typical_percent / 100);
  std::ranges::nth_element(sizes, at);
  return *at;
}

ncast_status open_pinned(const TableFile& file, const OpenOptions& options, Table& table) {
  Places places;
  if (ncast_status status = plan_places(table, options, &places)) return status;
  if (ncast_status status = table.mapping.allocate(places.bytes)) return status;
  if (options.numa_node >= 0) {
    if (ncast_status status = bootstrap::place_on_node(table.mapping.data(), places.bytes, options.numa_node,
                                                       bootstrap::NodePolicy::required))
      return status;
  }
  set_view(table, places, table.mapping.data());
  if (ncast_status status = table.writer->initialise()) return status;
  table.readers.attach(table.view.readers, nullptr, table.own_number);
  return load(file, table, options, [] {});
}

ncast_status open_mapped(TableFile& file, const OpenOptions& options, Table& table) {
  const file::Header& header = table.header;
  if (options.numa_node >= 0) return fail(NCAST_INVALID_ARGUMENT, "numa: the pages of a file cannot be placed");
  if ((options.capacity != 0 && options.capacity != header.rows) || options.spare > 0)
    return fail(NCAST_INVALID_ARGUMENT,
                "a store in the pages of its file is read-only: it has no capacity and no spare");
  const uint64_t bytes = file.bytes();
  table.mapped = std::make_unique<MappedFile>();
  if (ncast_status status = table.mapped->map(file.release(), table.name)) return status;
  if (table.mapped->bytes() != bytes || std::memcmp(table.mapped->data(), &header, sizeof header) != 0)
    return fail(NCAST_CORRUPT, "%s was changed while it was opened", table.name.c_str());
  if (ncast_status status =
          table.own_control.allocate(file::aligned(sizeof(ControlWords), 64) + max_readers * sizeof(ReaderWords)))
    return status;
  describe_view(table, table.view);
  TableView& view = table.view;
  // The mapping is read-only; nothing writes to the parts of a table without a writer.
  uint8_t* const memory = table.mapped->data();
  view.memory = memory;
  view.memory_bytes = bytes;
  view.control = reinterpret_cast<ControlWords*>(table.own_control.data());
  view.readers = reinterpret_cast<ReaderWords*>(table.own_control.data() + file::aligned(sizeof(ControlWords), 64));
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

}  // namespace

Table::~Table() {
  // In a forked child, what the table has in shared memory is its parent's.
  if (owners != nullptr && owners->owner[own_number - 1].process.pid != getpid()) return;
  for (const auto& undo : before_unmap) undo();
  readers.detach();
  if (owners != nullptr) leave_shared(*this);
}

ncast_status open_table(const std::string& path, const OpenOptions& options, std::unique_ptr<Table>* opened) {
  auto table = std::make_unique<Table>();
  table->host = options.host;
  TableFile file;
  if (ncast_status status = file.open(path)) return status;
  table->name = file.name();
  if (ncast_status status = read_description(file, *table)) return status;
  const auto open_it = [&] {
    switch (options.host) {
      case NCAST_STORE_MMAP: return open_mapped(file, options, *table);
      case NCAST_STORE_SHARED: return open_shared(file, options, *table);
      default: return open_pinned(file, options, *table);
    }
  };
  std::optional<BusErrorScope> scope;
  if (options.host == NCAST_STORE_MMAP) scope.emplace();
  if (ncast_status status = open_it()) return status;
  table->view.usual_bytes = usual_bytes(table->view, table->rows());
  if (table->mapped != nullptr) {
    if (ncast_status status = table->mapped->check_after(*table, 0)) return status;
  }
  *opened = std::move(table);
  return NCAST_OK;
}

}  // namespace narrowcast::store
