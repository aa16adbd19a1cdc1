// Reads rows of the layouts with payloads.
#include <algorithm>
#include <cinttypes>
#include <mutex>

#include "status/error.h"
#include "store/table/damage.h"
#include "store/table/locate.h"
#include "threads/parallel.h"

namespace narrowcast::store {
namespace {

constexpr uint64_t piece_bytes = 256u << 10;          // of decoded rows that a thread takes at a time
constexpr uint64_t bytes_per_thread = 1u << 20;       // below this, starting a thread takes longer than it saves
constexpr uint64_t distance = 8;                      // rows between a prefetch and its use
constexpr uint64_t line_bytes = 64, most_lines = 16;  // prefetched for a row

void prefetch(const TableView& view, uint64_t row, uint64_t lines) {
  const uint8_t* const slot = slot_of(view, row);
  for (uint64_t i = 0; i < lines; ++i) __builtin_prefetch(slot + i * line_bytes);
}

}  // namespace

size_t reading_threads(int threads, uint64_t bytes) {
  if (threads > 0) return static_cast<size_t>(threads);
  return std::min<size_t>(threads::count_of(0), static_cast<size_t>(bytes / bytes_per_thread) + 1);
}

ncast_status check_rows(const char* function, const RowList& list, uint64_t count, uint64_t rows) {
  if (list.indices == nullptr) {
    if (count == 0) return NCAST_OK;
    const __int128 last = static_cast<__int128>(list.first) + static_cast<__int128>(list.step) * (count - 1);
    if (list.first >= rows || last < 0 || last >= static_cast<__int128>(rows)) {
      return fail(NCAST_INVALID_ARGUMENT,
                  "%s: %" PRIu64 " rows from %" PRIu64 " with step %" PRId64 " are not all among the %" PRIu64 " rows",
                  function, count, list.first, list.step, rows);
    }
    return NCAST_OK;
  }
  for (uint64_t i = 0; i < count; ++i) {
    if (list[i] < rows) continue;
    return fail(NCAST_INVALID_ARGUMENT,
                "%s: indices[%" PRIu64 "] is %" PRId64 ", which is out of range: the store has %" PRIu64 " rows",
                function, i, static_cast<int64_t>(list[i]), rows);
  }
  return NCAST_OK;
}

ncast_status read_rows(const char* function, Table& table, const RowList& list, uint64_t count, uint8_t* out,
                       uint64_t out_stride, int threads) {
  const TableView& view = table.view;
  const uint64_t piece = std::max<uint64_t>(1, piece_bytes / view.row_bytes);
  const uint64_t slot = view.layout == Layout::stride ? view.stride : view.usual_bytes;
  const uint64_t lines = std::clamp<uint64_t>((slot + line_bytes - 1) / line_bytes, 1, most_lines);
  Damage damage;
  std::atomic<uint64_t> overflow_rows{0};
  const ReadScope scope(table.readers);
  threads::for_each(static_cast<size_t>((count + piece - 1) / piece), reading_threads(threads, count * view.row_bytes),
                    [&](size_t number) {
                      const uint64_t begin = number * piece, end = std::min(count, begin + piece);
                      uint64_t redirected = 0;
                      for (uint64_t i = begin; i < std::min(end, begin + distance); ++i) prefetch(view, list[i], lines);
                      for (uint64_t i = begin; i < end; ++i) {
                        if (i + distance < end) prefetch(view, list[i + distance], lines);
                        Payload payload;
                        uint8_t* const row = out + i * out_stride;
                        if (!locate(table, list[i], &payload) || !decode(table, payload, row)) {
                          std::memset(row, 0, view.row_bytes);
                          damage.note(i, list[i]);
                          continue;
                        }
                        redirected += payload.in_entry ? 1 : 0;
                      }
                      overflow_rows += redirected;
                    });
  table.counters.rows_read += count;
  table.counters.overflow_rows += overflow_rows;
  return damage.report(function, table);
}

}  // namespace narrowcast::store
