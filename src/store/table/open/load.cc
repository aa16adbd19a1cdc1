#include "store/table/open/load.h"

#include <algorithm>
#include <cinttypes>

#include "status/error.h"
#include "store/file/header.h"
#include "threads/parallel.h"

namespace narrowcast::store {
namespace {

constexpr uint64_t load_bytes = 16 * file::segment_bytes;  // read at a time

// Reads a segmented section to memory, on several threads, and verifies it.
ncast_status load_section(const TableFile& file, Table& table, uint32_t section, uint8_t* memory, int threads,
                          const std::function<void()>& progress) {
  const file::Section& place = table.header.sections[section];
  threads::FirstError error;
  threads::for_each(static_cast<size_t>((place.bytes + load_bytes - 1) / load_bytes), threads::count_of(threads),
                    [&](size_t piece) {
                      const uint64_t begin = piece * load_bytes;
                      const uint64_t count = std::min(load_bytes, place.bytes - begin);
                      error.note(piece, file.read(place.offset + begin, memory + begin, count));
                      for (uint64_t at = begin; at < begin + count; at += file::segment_bytes)
                        table.checks.verify(section, at / file::segment_bytes, memory + at);
                      progress();
                    });
  table.checks.set_base(section, memory);
  return error.status() == NCAST_OK ? NCAST_OK : fail(error.status(), "%s", error.message().c_str());
}

}  // namespace

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

ncast_status load(const TableFile& file, Table& table, const OpenOptions& options,
                  const std::function<void()>& progress) {
  const file::Header& header = table.header;
  TableView& view = table.view;
  const auto load_to = [&](uint32_t section, void* memory) {
    return load_section(file, table, section, static_cast<uint8_t*>(memory), options.threads, progress);
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

}  // namespace narrowcast::store
