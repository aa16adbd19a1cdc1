// An open table. open/ opens and closes it; the other files of the folder are its operations.
#pragma once

#include <array>
#include <atomic>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bootstrap/shared_memory.h"
#include "narrowcast/store.h"
#include "store/file/layout.h"
#include "store/rows/row_codec.h"
#include "store/table/checks.h"
#include "store/table/control.h"
#include "store/table/mapped_file.h"
#include "store/table/memory.h"
#include "store/table/readers.h"
#include "store/table/writer_lock.h"

namespace narrowcast::store {

// What is known about an overflow entry. A writer stores it before a row's word refers to the entry, so that another
// writer can free or fold the entry if this one dies.
struct EntryInfo {
  uint64_t row_plus_one;  // the row that uses it; 0: free
  uint64_t payload_bytes;
};

struct Table {
  Table() = default;
  Table(const Table&) = delete;
  Table& operator=(const Table&) = delete;
  ~Table();

  std::string name;  // for messages
  ncast_store_host host = NCAST_STORE_PINNED;
  file::Header header = {};  // of the file; view.control->rows is the current number of rows
  std::string metadata;
  std::shared_ptr<const RowModel> model;  // none with layout blocks
  TableView view = {};
  EntryInfo* entry_infos = nullptr;  // view.entry_count of them; NULL: read-only
  WriterLock* writer = nullptr;      // NULL: read-only
  SegmentChecks checks;
  Readers readers;

  struct Counters {
    std::atomic<uint64_t> gathers{0}, fetches{0}, rows_read{0}, overflow_rows{0}, damaged_rows{0};
    std::atomic<uint64_t> updates{0}, appends{0}, rows_updated{0}, rows_appended{0};
  } counters;

  // Called before the memory is unmapped: users that have registered it elsewhere, such as with a GPU, undo that.
  std::vector<std::function<void()>> before_unmap;

  uint64_t rows() const { return std::atomic_ref<uint64_t>(view.control->rows).load(std::memory_order_acquire); }

  Mapping mapping;                     // PINNED
  std::unique_ptr<MappedFile> mapped;  // MMAP
  Mapping own_control;                 // MMAP: the control words
  bootstrap::SharedMemory shared;      // SHARED
  std::string shared_name;
  bootstrap::SegmentOwners* owners = nullptr;
  uint64_t own_number = 1;  // 1 + the number of this process in the list of owners
};

struct OpenOptions {
  ncast_store_host host = NCAST_STORE_PINNED;
  bool allow_damage = false;
  int numa_node = -1;  // -1: any
  int threads = 0;
  uint64_t capacity = 0;  // 0: what the file says
  int64_t spare = -1;     // -1: what the file says
};

// Runs a call that reads the memory of a table. If others change or truncate a mapped file meanwhile, the result is an
// error, and neither the end of the process nor a wrong row.
template <typename Call>
ncast_status reading(Table& table, Call call) {
  if (table.mapped == nullptr) return call();
  const BusErrorScope scope;
  uint64_t times_written;
  if (ncast_status status = table.mapped->check_before(table, &times_written)) return status;
  const ncast_status status = call();
  const ncast_status after = table.mapped->check_after(table, times_written);
  return after != NCAST_OK ? after : status;
}

// The text of the codec.
std::string codec_text(const Table& table);

ncast_status open_table(const std::string& path, const OpenOptions& options, std::unique_ptr<Table>* table);

// The rows of a call: those of a list, or of an arithmetic sequence.
struct RowList {
  const void* indices = nullptr;  // NULL: first + i * step
  size_t index_bytes = 0;
  uint64_t first = 0;
  int64_t step = 1;

  template <typename Index>
  int64_t value(uint64_t i) const {
    Index index;
    std::memcpy(&index, static_cast<const uint8_t*>(indices) + i * sizeof index, sizeof index);
    return index;
  }
  uint64_t operator[](uint64_t i) const {
    if (indices == nullptr) return first + static_cast<uint64_t>(step) * i;
    // Negative indices become large ones, which are out of range.
    return index_bytes == 8 ? static_cast<uint64_t>(value<int64_t>(i)) : static_cast<uint64_t>(value<int32_t>(i));
  }
};

// Checks all rows of a list against the number of rows. Error: INVALID_ARGUMENT, with the position of a bad index.
ncast_status check_rows(const char* function, const RowList& list, uint64_t count, uint64_t rows);

// Decodes `count` rows, which have been checked. Error: CORRUPT; the damaged rows are zeros.
ncast_status read_rows(const char* function, Table& table, const RowList& list, uint64_t count, uint8_t* out,
                       uint64_t out_stride, int threads);
ncast_status read_frames(const char* function, Table& table, const RowList& list, uint64_t count, uint8_t* out,
                         uint64_t out_stride, int threads);
// The rows of layout blocks that are in damaged frames.
std::vector<uint64_t> damaged_rows_of_frames(Table& table, size_t threads);

// The functions of store.h with the same names. Their arguments have been checked, except rows and numbers of rows.
ncast_status update_rows(Table& table, const RowList& list, uint64_t count, const uint8_t* rows, uint64_t row_stride,
                         int threads);
ncast_status append_rows(Table& table, const uint8_t* rows, uint64_t row_stride, uint64_t count, uint64_t* first,
                         int threads);
ncast_status save_table(Table& table, int file);
// Makes a report in any case. Error: CORRUPT.
ncast_status verify_table(Table& table, int threads, std::string* report);

}  // namespace narrowcast::store
