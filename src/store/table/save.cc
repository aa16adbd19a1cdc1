// Writes an open table to a file, row by row, as a reader: writers may change it meanwhile.
#include <algorithm>
#include <cinttypes>
#include <cstring>
#include <vector>

#include "status/error.h"
#include "store/file/writer.h"
#include "store/table/locate.h"

namespace narrowcast::store {
namespace {

constexpr uint64_t copied_bytes = 4u << 20;  // copied in one call as a reader
constexpr const char* function = "ncast_store_save";

ncast_status damaged(const Table& table, uint64_t row) {
  return fail(NCAST_CORRUPT, "%s: row %" PRIu64 " of %s is damaged", function, row, table.name.c_str());
}

// The entries of a file are only known to contain a payload.
uint64_t payload_bytes(const Table& table, const Payload& payload) {
  if (!payload.in_entry) return payload.body_bytes + (table.view.uncoded ? 0 : header_bytes);
  return table.entry_infos != nullptr ? table.entry_infos[payload.entry].payload_bytes : table.view.entry_stride;
}

// Copies a payload and pads it with zeros to `room` bytes.
void copy_payload(const Table& table, const Payload& payload, uint64_t bytes, uint8_t* to, uint64_t room) {
  uint64_t skipped = 0;
  if (!table.view.uncoded) {
    std::memcpy(to, &payload.header, header_bytes);
    skipped = header_bytes;
  }
  std::memcpy(to + skipped, payload.body, bytes - skipped);
  std::memset(to + bytes, 0, room - bytes);
}

ncast_status save_slots(Table& table, uint64_t rows, file::Writer& writer) {
  const uint64_t stride = table.view.stride;
  const uint64_t piece = std::max<uint64_t>(1, copied_bytes / stride);
  std::vector<uint8_t> slots, entry(table.view.entry_stride);
  std::vector<uint64_t> row(1);
  for (uint64_t begin = 0; begin < rows; begin += piece) {
    const uint64_t count = std::min(piece, rows - begin);
    slots.assign(count * stride, 0);
    {
      const ReadScope scope(table.readers);
      for (uint64_t i = 0; i < count; ++i) {
        Payload payload;
        if (!locate(table, begin + i, &payload)) return damaged(table, begin + i);
        const uint64_t bytes = payload_bytes(table, payload);
        if (bytes <= stride) {
          copy_payload(table, payload, bytes, slots.data() + i * stride, stride);
          continue;
        }
        copy_payload(table, payload, bytes, entry.data(), entry.size());
        row[0] = begin + i;
        uint64_t number;
        if (ncast_status status = writer.number_entries(1, &number)) return status;
        if (ncast_status status = writer.append_entries(row, entry)) return status;
        const uint32_t word = redirect_to(number);
        std::memcpy(slots.data() + i * stride, &word, sizeof word);
      }
    }
    if (ncast_status status = writer.append_data(slots.data(), slots.size())) return status;
  }
  return NCAST_OK;
}

ncast_status save_packed(Table& table, uint64_t rows, file::Writer& writer) {
  const uint64_t unit = table.view.unit;
  std::vector<uint8_t> payloads;
  std::vector<uint32_t> ends;
  uint64_t units = 0;
  const uint32_t start = 0;
  if (ncast_status status = writer.append_offsets(&start, sizeof start)) return status;
  for (uint64_t row = 0; row < rows;) {
    payloads.clear();
    ends.clear();
    {
      const ReadScope scope(table.readers);
      for (; row < rows && payloads.size() < copied_bytes; ++row) {
        Payload payload;
        if (!locate(table, row, &payload)) return damaged(table, row);
        const uint64_t bytes = payload_bytes(table, payload), room = file::aligned(bytes, unit);
        payloads.resize(payloads.size() + room);
        copy_payload(table, payload, bytes, payloads.data() + payloads.size() - room, room);
        units += room / unit;
        if (units > UINT32_MAX) return fail(NCAST_UNSUPPORTED, "%s: the table is too large for this layout", function);
        ends.push_back(static_cast<uint32_t>(units));
      }
    }
    if (ncast_status status = writer.append_data(payloads.data(), payloads.size())) return status;
    if (ncast_status status = writer.append_offsets(ends.data(), ends.size() * sizeof ends[0])) return status;
  }
  return NCAST_OK;
}

// Layout blocks is read-only: a copy of the sections.
ncast_status save_frames(Table& table, file::Writer& writer) {
  const uint64_t bytes = table.view.data_bytes;
  for (uint64_t at = 0; at < bytes; at += copied_bytes) {
    const uint64_t end = std::min(bytes, at + copied_bytes);
    if (!table.checks.are_good(file::data, at, end))
      return fail(NCAST_CORRUPT, "%s: %s is damaged", function, table.name.c_str());
    if (ncast_status status = writer.append_data(table.view.data + at, end - at)) return status;
  }
  return writer.append_offsets(table.view.offsets, table.header.sections[file::offsets].bytes);
}

}  // namespace

ncast_status save_table(Table& table, int file) {
  const uint64_t rows = table.rows();
  file::Header header = table.header;
  if (table.writer != nullptr) {
    header.capacity = table.view.capacity;
    header.spare = table.view.entry_count - table.header.entries;
  }
  std::vector<uint8_t> model;
  if (table.model) table.model->serialise(model);
  file::Writer writer(file);
  if (ncast_status status = writer.begin(header, model, table.metadata)) return status;
  const auto write_rows = [&] {
    switch (table.view.layout) {
      case Layout::packed: return save_packed(table, rows, writer);
      case Layout::blocks: return save_frames(table, writer);
      default: return save_slots(table, rows, writer);
    }
  };
  if (ncast_status status = write_rows()) return status;
  return writer.finish(rows);
}

}  // namespace narrowcast::store
