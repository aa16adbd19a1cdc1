// Changes rows of a table while readers read it. docs/design/store.md has the protocol and the argument.
#include <algorithm>
#include <cinttypes>
#include <numeric>
#include <optional>
#include <vector>

#include "status/error.h"
#include "store/table/locate.h"
#include "threads/parallel.h"

namespace narrowcast::store {
namespace {

constexpr uint64_t piece_rows = 256;  // that a thread encodes at a time

// The payloads of rows that are about to be stored.
class EncodedRows {
 public:
  // rows[position(i)] is the i-th row.
  template <typename Position>
  EncodedRows(const Table& table, const uint8_t* rows, uint64_t row_stride, uint64_t count, Position position,
              int threads)
      : pieces_((count + piece_rows - 1) / piece_rows), places_(count) {
    const TableView& view = table.view;
    const size_t bound = view.uncoded ? view.row_bytes : table.model->bound();
    threads::for_each(pieces_.size(), threads::count_of(threads), [&](size_t piece) {
      std::vector<uint8_t>& payloads = pieces_[piece];
      uint64_t used = 0;
      for (uint64_t i = piece * piece_rows; i < std::min(count, (piece + 1) * piece_rows); ++i) {
        payloads.resize(used + bound);
        const uint8_t* const row = rows + position(i) * row_stride;
        size_t bytes = view.row_bytes;
        if (view.uncoded)
          std::memcpy(payloads.data() + used, row, bytes);
        else
          bytes = table.model->encode(row, payloads.data() + used);
        places_[i] = {used, bytes};
        used += bytes;
      }
    });
  }

  const uint8_t* payload(uint64_t i) const { return pieces_[i / piece_rows].data() + places_[i].offset; }
  uint64_t bytes(uint64_t i) const { return places_[i].bytes; }

 private:
  struct Place {
    uint64_t offset;  // in the piece
    uint64_t bytes;
  };
  std::vector<std::vector<uint8_t>> pieces_;
  std::vector<Place> places_;
};

// Holds the lock of the writers.
class WriteScope {
 public:
  explicit WriteScope(Table& table) : table_(table) {}
  ~WriteScope() {
    if (locked_) table_.writer->unlock();
  }
  WriteScope(const WriteScope&) = delete;
  WriteScope& operator=(const WriteScope&) = delete;

  ncast_status lock() {
    if (ncast_status status = table_.writer->lock()) return status;
    locked_ = true;
    return NCAST_OK;
  }

 private:
  Table& table_;
  bool locked_ = false;
};

// The changes that one writer makes, under the lock.
class Change {
 public:
  explicit Change(Table& table) : table_(table), view_(table.view) {}

  // Frees and folds the entries that earlier changes have left, after a timeout or the death of a writer.
  ncast_status reclaim();

  uint64_t free_entries() const { return view_.entry_count - used().load(); }
  // The entry that contains the row and is freed when the row gets another one. The words of a damaged file may refer
  // to entries that do not exist or belong to other rows.
  std::optional<uint64_t> entry_of_row(uint64_t row) const {
    uint8_t* const word = word_of(view_, row);
    if (word == nullptr) return std::nullopt;
    const uint32_t place = atomic_word(word).load();
    const uint64_t entry = entry_of(place);
    if (!is_redirect(place) || entry >= view_.entry_count || table_.entry_infos[entry].row_plus_one != row + 1)
      return std::nullopt;
    return entry;
  }

  // Stores payloads in free entries and has the rows refer to them; then folds those that fit into their slots, and
  // frees the entries that are not needed any more. There are enough free entries. *changed: rows that have changed
  // when an error is returned.
  struct NewRow {
    uint64_t row;
    const uint8_t* payload;
    uint64_t bytes;
  };
  ncast_status replace(const std::vector<NewRow>& rows, uint64_t* changed);

  // Writes a payload to a free entry, which no reader uses, and returns its number.
  uint64_t fill_entry(const NewRow& row);
  void begin() { view_.control->unclean = 1; }
  void end();

 private:
  std::atomic_ref<uint64_t> used() const { return std::atomic_ref<uint64_t>(view_.control->entries_used); }
  void free_entry(uint64_t entry) {
    table_.entry_infos[entry].row_plus_one = 0;
    --used();
  }
  void redirect(uint64_t row, uint64_t entry);
  void note_change(uint64_t row);
  // Moves payloads from entries to the slots of their rows. The rows refer to the entries, and no reader is inside a
  // call that began before they did.
  ncast_status fold(const std::vector<uint64_t>& entries);

  Table& table_;
  const TableView& view_;
  uint64_t next_entry_ = 0;  // where the search for a free entry begins
};

uint64_t Change::fill_entry(const NewRow& row) {
  while (table_.entry_infos[next_entry_].row_plus_one != 0) next_entry_ = (next_entry_ + 1) % view_.entry_count;
  const uint64_t entry = next_entry_;
  std::memcpy(view_.entries + entry * view_.entry_stride, row.payload, row.bytes);
  ++used();
  table_.entry_infos[entry] = {row.row + 1, row.bytes};
  return entry;
}

void Change::redirect(uint64_t row, uint64_t entry) {
  if (view_.uncoded) std::atomic_ref<uint32_t>(view_.control->any_redirect).store(1);
  atomic_word(word_of(view_, row)).store(redirect_to(entry));
}

void Change::note_change(uint64_t row) {
  const std::atomic_ref<uint64_t> changes(view_.control->changes);
  const uint64_t number = changes.load(std::memory_order_relaxed);
  std::atomic_ref<uint64_t>(view_.changed_rows[number % changes_kept]).store(row, std::memory_order_release);
  changes.store(number + 1, std::memory_order_release);
}

void Change::end() {
  if (view_.uncoded && used() == 0) std::atomic_ref<uint32_t>(view_.control->any_redirect).store(0);
  view_.control->unclean = 0;
}

ncast_status Change::fold(const std::vector<uint64_t>& entries) {
  if (entries.empty()) return NCAST_OK;
  // No reader reads the slots, because the rows refer to entries.
  for (const uint64_t entry : entries) {
    const EntryInfo& info = table_.entry_infos[entry];
    const uint64_t row = info.row_plus_one - 1;
    const uint64_t skipped = view_.uncoded ? 0 : header_bytes;
    uint8_t* const slot = slot_of(view_, row);
    std::memcpy(slot + skipped, view_.entries + entry * view_.entry_stride + skipped, info.payload_bytes - skipped);
    std::memset(slot + info.payload_bytes, 0, slot_bytes(view_, row) - info.payload_bytes);
  }
  // A reader that fetches a whole slot at once may have fetched its old body, and must not see the new header.
  if (ncast_status status = table_.readers.wait_for_grace()) return status;
  for (const uint64_t entry : entries) {
    uint32_t header = 0;
    if (!view_.uncoded) std::memcpy(&header, view_.entries + entry * view_.entry_stride, sizeof header);
    atomic_word(word_of(view_, table_.entry_infos[entry].row_plus_one - 1)).store(header);
  }
  if (ncast_status status = table_.readers.wait_for_grace()) return status;
  for (const uint64_t entry : entries) free_entry(entry);
  return NCAST_OK;
}

ncast_status Change::replace(const std::vector<NewRow>& rows, uint64_t* changed) {
  std::vector<uint64_t> unused, to_fold;
  for (const NewRow& row : rows) {
    const std::optional<uint64_t> old = entry_of_row(row.row);
    const uint64_t entry = fill_entry(row);
    redirect(row.row, entry);
    note_change(row.row);
    ++*changed;
    if (old) unused.push_back(*old);
    if (row.bytes <= slot_bytes(view_, row.row)) to_fold.push_back(entry);
  }
  if (unused.empty() && to_fold.empty()) return NCAST_OK;
  if (ncast_status status = table_.readers.wait_for_grace()) return status;
  for (const uint64_t entry : unused) free_entry(entry);
  return fold(to_fold);
}

ncast_status Change::reclaim() {
  if (view_.control->unclean == 0) return NCAST_OK;
  std::vector<uint64_t> unused, to_fold;
  uint64_t counted = 0;
  for (uint64_t entry = 0; entry < view_.entry_count; ++entry) {
    const EntryInfo& info = table_.entry_infos[entry];
    if (info.row_plus_one == 0) continue;
    ++counted;
    const uint64_t row = info.row_plus_one - 1;
    const bool live = row < table_.rows() && atomic_word(word_of(view_, row)).load() == redirect_to(entry);
    if (!live) unused.push_back(entry);
    if (live && info.payload_bytes <= slot_bytes(view_, row)) to_fold.push_back(entry);
  }
  used() = counted;  // a writer may have died between two words
  // It may have changed rows that it has not noted: any row may have changed.
  std::atomic_ref<uint64_t>(view_.control->changes) += changes_kept;
  if (ncast_status status = table_.readers.wait_for_grace()) return status;
  for (const uint64_t entry : unused) free_entry(entry);
  if (ncast_status status = fold(to_fold)) return status;
  end();
  return NCAST_OK;
}

ncast_status check_can_change(const char* function, const Table& table) {
  if (table.view.layout == Layout::blocks)
    return fail(NCAST_UNSUPPORTED, "%s: %s has the layout blocks, which is read-only", function, table.name.c_str());
  if (table.writer == nullptr) {
    return fail(NCAST_UNSUPPORTED, "%s: %s is open in the pages of its file, read-only: open it pinned or shared",
                function, table.name.c_str());
  }
  return NCAST_OK;
}

}  // namespace

ncast_status update_rows(Table& table, const RowList& list, uint64_t count, const uint8_t* rows, uint64_t row_stride,
                         int threads) {
  constexpr const char* function = "ncast_store_update";
  if (ncast_status status = check_can_change(function, table)) return status;
  if (ncast_status status = check_rows(function, list, count, table.rows())) return status;
  // The last occurrence of every row.
  std::vector<uint64_t> positions(count);
  std::iota(positions.begin(), positions.end(), uint64_t{0});
  std::ranges::sort(positions, {}, [&](uint64_t i) { return std::pair(list[i], i); });
  uint64_t distinct = 0;
  for (uint64_t i = 0; i < count; ++i) {
    if (i + 1 == count || list[positions[i]] != list[positions[i + 1]]) positions[distinct++] = positions[i];
  }
  const EncodedRows encoded(table, rows, row_stride, distinct, [&](uint64_t i) { return positions[i]; }, threads);

  WriteScope scope(table);
  if (ncast_status status = scope.lock()) return status;
  Change change(table);
  if (ncast_status status = change.reclaim()) return status;
  // In this order no row needs an entry that another one frees later.
  std::vector<Change::NewRow> fitting, keeping, growing;
  uint64_t freed = 0;
  for (uint64_t i = 0; i < distinct; ++i) {
    const uint64_t row = list[positions[i]];
    const bool has_entry = change.entry_of_row(row).has_value();
    const bool fits = encoded.bytes(i) <= slot_bytes(table.view, row);
    if (fits && has_entry) ++freed;
    (fits ? fitting : has_entry ? keeping : growing).push_back({row, encoded.payload(i), encoded.bytes(i)});
  }
  const uint64_t free = change.free_entries();
  const uint64_t needed = growing.size();
  if (distinct != 0 && (free + freed < needed || (free == 0 && (!fitting.empty() || !keeping.empty())))) {
    return fail(NCAST_TOO_SMALL,
                "%s: %" PRIu64 " rows need an overflow entry, but %" PRIu64
                " are free: open the store with a larger spare",
                function, std::max<uint64_t>(needed, 1), free);
  }
  change.begin();
  uint64_t changed = 0;
  ncast_status status = NCAST_OK;
  for (const auto* rows_of_kind : {&fitting, &keeping, &growing}) {
    for (uint64_t at = 0; at < rows_of_kind->size();) {
      const uint64_t batch = std::min<uint64_t>(change.free_entries(), rows_of_kind->size() - at);
      const auto first = rows_of_kind->begin() + static_cast<std::ptrdiff_t>(at);
      status = change.replace({first, first + static_cast<std::ptrdiff_t>(batch)}, &changed);
      at += batch;
      if (status == NCAST_OK || (status == NCAST_TIMEOUT && changed == distinct)) continue;
      table.counters.rows_updated += changed;
      return fail(status, "%s: %s, after %" PRIu64 " of %" PRIu64 " rows have changed", function,
                  std::string(ncast_last_error()).c_str(), changed, distinct);
    }
  }
  // After a timeout, the next change cleans up.
  if (status == NCAST_OK) change.end();
  ++table.counters.updates;
  table.counters.rows_updated += changed;
  return NCAST_OK;
}

ncast_status append_rows(Table& table, const uint8_t* rows, uint64_t row_stride, uint64_t count, uint64_t* first,
                         int threads) {
  constexpr const char* function = "ncast_store_append";
  if (ncast_status status = check_can_change(function, table)) return status;
  const TableView& view = table.view;
  const EncodedRows encoded(table, rows, row_stride, count, [](uint64_t i) { return i; }, threads);

  WriteScope scope(table);
  if (ncast_status status = scope.lock()) return status;
  Change change(table);
  if (ncast_status status = change.reclaim()) return status;
  const uint64_t before = table.rows();
  if (count > view.capacity - before) {
    return fail(NCAST_TOO_SMALL,
                "%s: %" PRIu64 " more rows do not fit: the store has %" PRIu64 " and a capacity of %" PRIu64, function,
                count, before, view.capacity);
  }
  // In layout packed, there is space for the longest payloads of the whole capacity.
  const bool packed = view.layout == Layout::packed;
  uint64_t growing = 0;
  for (uint64_t i = 0; i < count && !packed; ++i) growing += encoded.bytes(i) > view.stride ? 1 : 0;
  if (growing > change.free_entries()) {
    return fail(NCAST_TOO_SMALL,
                "%s: %" PRIu64 " rows need an overflow entry, but %" PRIu64
                " are free: open the store with a larger spare",
                function, growing, change.free_entries());
  }
  change.begin();
  // Nobody reads these rows before their number is published.
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t row = before + i, bytes = encoded.bytes(i);
    if (packed) view.offsets[row + 1] = view.offsets[row] + static_cast<uint32_t>((bytes + view.unit - 1) / view.unit);
    uint8_t* const slot = slot_of(view, row);
    const uint64_t room = slot_bytes(view, row);
    if (bytes > room) {
      atomic_word(slot).store(redirect_to(change.fill_entry({row, encoded.payload(i), bytes})));
      continue;
    }
    std::memcpy(slot, encoded.payload(i), bytes);
    std::memset(slot + bytes, 0, room - bytes);
  }
  std::atomic_ref<uint64_t>(view.control->rows).store(before + count, std::memory_order_release);
  change.end();
  ++table.counters.appends;
  table.counters.rows_appended += count;
  if (first != nullptr) *first = before;
  return NCAST_OK;
}

}  // namespace narrowcast::store
