// Checks a table: its checksums, the form of all payloads, and the use of the overflow entries.
#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <mutex>
#include <set>

#include "nlohmann/json.hpp"
#include "status/error.h"
#include "store/file/header.h"
#include "store/table/locate.h"
#include "threads/parallel.h"

namespace narrowcast::store {
namespace {

constexpr uint64_t checked_rows = 1024;
constexpr size_t most_listed = 100;

class Findings {
 public:
  void add_row(uint64_t row) {
    const std::lock_guard lock(mutex_);
    ++damaged_rows_;
    rows_.insert(row);
    if (rows_.size() > most_listed) rows_.erase(std::prev(rows_.end()));
  }
  void add(std::string fault) {
    const std::lock_guard lock(mutex_);
    ++fault_count_;
    faults_.insert(std::move(fault));
    if (faults_.size() > most_listed) faults_.erase(std::prev(faults_.end()));
  }
  bool empty() const { return damaged_rows_ == 0 && fault_count_ == 0; }
  uint64_t damaged_rows() const { return damaged_rows_; }
  std::string first() const {
    if (!faults_.empty()) return *faults_.begin();
    return "row " + std::to_string(*rows_.begin()) + " cannot be decoded";
  }
  std::string report(uint64_t rows) const {
    nlohmann::ordered_json json;
    json["rows"] = rows;
    json["damaged_rows"] = damaged_rows_;
    json["damaged"] = rows_;
    json["faults"] = faults_;
    return json.dump();
  }

 private:
  std::mutex mutex_;
  uint64_t damaged_rows_ = 0, fault_count_ = 0;
  std::set<uint64_t> rows_;
  std::set<std::string> faults_;
};

std::string text(const char* format, uint64_t number, const char* name = "") {
  char buffer[160];
  std::snprintf(buffer, sizeof buffer, format, number, name);
  return buffer;
}

// Checksums of the parts that may not have been used yet, and the bytes between sections.
void check_file(Table& table, size_t threads, Findings& findings) {
  const file::Header& header = table.header;
  for (uint32_t section = file::data; section <= file::entry_rows; ++section) {
    const uint64_t bytes = header.sections[section].bytes;
    threads::for_each(static_cast<size_t>(file::segments_of(bytes)), threads, [&](size_t segment) {
      const uint64_t begin = segment * file::segment_bytes;
      if (!table.checks.are_good(section, begin, std::min(bytes, begin + file::segment_bytes)))
        findings.add(text("the checksum of the 64 KiB at byte %" PRIu64 " of the section '%s' does not match", begin,
                          file::section_names[section]));
    });
  }
  if (table.host != NCAST_STORE_MMAP) return;
  uint64_t end = file::page_bytes;
  for (const file::Section& section : header.sections) {
    for (uint64_t at = end; at < section.offset && section.bytes != 0; ++at) {
      if (table.view.memory[at] != 0)
        findings.add(text("byte %" PRIu64 " of the file, between sections, is not 0", at));
    }
    if (section.bytes != 0) end = section.offset + section.bytes;
  }
}

// Every used entry belongs to one row, which refers to it.
void check_entries(Table& table, Findings& findings) {
  const TableView& view = table.view;
  if (table.host != NCAST_STORE_MMAP || view.layout == Layout::blocks) return;
  const file::Section& section = table.header.sections[file::entry_rows];
  if (!table.checks.are_good(file::entry_rows, 0, section.bytes)) return;
  for (uint64_t entry = 0; entry < table.header.entries; ++entry) {
    uint64_t row;
    std::memcpy(&row, view.memory + section.offset + entry * sizeof row, sizeof row);
    const bool is_row = row < table.rows() && !view.uncoded;
    uint8_t* const slot = is_row ? slot_of(view, row) : nullptr;
    const bool valid = is_row && static_cast<uint64_t>(slot - view.data) <= view.data_bytes - header_bytes &&
                       atomic_word(slot).load() == redirect_to(entry);
    if (!valid) findings.add(text("overflow entry %" PRIu64 " is not the one of its row", entry));
  }
}

void check_payloads(Table& table, size_t threads, Findings& findings) {
  const uint64_t rows = table.rows();
  std::atomic<uint64_t> redirected{0};
  threads::for_each(static_cast<size_t>((rows + checked_rows - 1) / checked_rows), threads, [&](size_t piece) {
    const uint64_t begin = piece * checked_rows, end = std::min(rows, begin + checked_rows);
    std::vector<uint8_t> row(table.view.row_bytes);
    const ReadScope scope(table.readers);
    for (uint64_t i = begin; i < end; ++i) {
      Payload payload;
      if (!locate(table, i, &payload) || !decode(table, payload, row.data())) {
        findings.add_row(i);
      } else if (payload.in_entry) {
        ++redirected;
      }
    }
  });
  if (table.host == NCAST_STORE_MMAP && findings.damaged_rows() == 0 && redirected != table.header.entries)
    findings.add(text("%" PRIu64 " rows refer to overflow entries, which is not their number", redirected));
}

}  // namespace

ncast_status verify_table(Table& table, int threads, std::string* report) {
  const size_t workers = threads::count_of(threads);
  Findings findings;
  // What was good when it was read may have been overwritten.
  if (table.mapped != nullptr) table.checks.forget();
  check_file(table, workers, findings);
  check_entries(table, findings);
  if (table.view.layout == Layout::blocks) {
    for (const uint64_t row : damaged_rows_of_frames(table, workers)) findings.add_row(row);
  } else {
    check_payloads(table, workers, findings);
  }
  *report = findings.report(table.rows());
  if (findings.empty()) return NCAST_OK;
  return fail(NCAST_CORRUPT, "%s is damaged: %" PRIu64 " rows; %s", table.name.c_str(), findings.damaged_rows(),
              findings.first().c_str());
}

}  // namespace narrowcast::store
