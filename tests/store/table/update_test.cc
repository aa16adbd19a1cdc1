// Changes of tables under readers in other threads and processes.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <set>
#include <span>
#include <thread>

#include "store/handle.h"
#include "store/table/locate.h"
#include "store/table/readers.h"
#include "support/ranks.h"
#include "tables.h"

using namespace narrowcast::tests;

namespace {

constexpr uint64_t elems = 64, row_bytes = 4 * elems, row_count = 200;

// A row whose values all follow from its number and its version, so that a mix of two versions is noticed. Versions
// alternate between rows that compress and rows that do not.
std::vector<uint8_t> versioned(uint64_t row, uint64_t version) {
  std::vector<uint8_t> values(row_bytes);
  std::mt19937 random(static_cast<unsigned>(row * 1000003 + version));
  for (uint64_t i = 0; i < elems; ++i) {
    uint32_t bits = random();
    if (version % 2 == 0) bits = (bits & 0x007fffff) | 0x3f800000;
    std::memcpy(values.data() + 4 * i, &bits, 4);
  }
  const auto tag = static_cast<uint32_t>(version);
  std::memcpy(values.data(), &tag, 4);
  return values;
}

bool is_a_version(uint64_t row, const uint8_t* values) {
  uint32_t tag;
  std::memcpy(&tag, values, 4);
  return tag < 1000000 && std::memcmp(versioned(row, tag).data(), values, row_bytes) == 0;
}

// Rows first to first + count - 1. Their versions are 0 to versions - 1 in turn, plus `version`.
std::vector<uint8_t> versioned_rows(uint64_t first, uint64_t count, uint64_t version, uint64_t versions = 1) {
  std::vector<uint8_t> all;
  for (uint64_t i = 0; i < count; ++i) {
    const std::vector<uint8_t> one = versioned(first + i, version + i % versions);
    all.insert(all.end(), one.begin(), one.end());
  }
  return all;
}
std::vector<uint8_t> first_versions() { return versioned_rows(0, row_count, 0); }

constexpr Coding updatable[] = {
    {"window", NCAST_STORE_STRIDE}, {"window", NCAST_STORE_PACKED}, {"raw", NCAST_STORE_STRIDE}};

TableOptions options_of(const Coding& one, uint64_t capacity = 0) {
  return {.dtype = NCAST_FLOAT32, .row_shape = {elems}, .codec = one.codec, .layout = one.layout, .capacity = capacity};
}

// A table of the first versions in memory.
Store table_of(const Coding& one, int64_t spare, uint64_t capacity = 0) {
  const MemoryFile file;
  build(file, options_of(one, capacity), first_versions(), row_bytes);
  return open(file.path(), NCAST_STORE_PINNED, 0, spare);
}

// Updates rows to versions; the last version is that of all further rows, too.
ncast_status update(const Store& store, const std::vector<int64_t>& indices, const std::vector<uint64_t>& versions) {
  std::vector<uint8_t> rows;
  for (size_t i = 0; i < indices.size(); ++i) {
    const uint64_t version = versions[std::min(i, versions.size() - 1)];
    const std::vector<uint8_t> one = versioned(static_cast<uint64_t>(indices[i]), version);
    rows.insert(rows.end(), one.begin(), one.end());
  }
  return ncast_store_update(store.get(), indices.data(), 8, indices.size(), rows.data(), row_bytes, 1);
}
ncast_status update(const Store& store, const std::vector<int64_t>& indices, uint64_t version) {
  return update(store, indices, std::vector{version});
}

bool has_version(const Store& store, uint64_t row, uint64_t version) {
  return std::memcmp(content_of(store).data() + row * row_bytes, versioned(row, version).data(), row_bytes) == 0;
}

std::vector<int64_t> all_rows(uint64_t rows = row_count) {
  std::vector<int64_t> indices;
  for (uint64_t i = 0; i < rows; ++i) indices.push_back(static_cast<int64_t>(i));
  return indices;
}

// Reads random rows; counts those that are no version.
uint64_t wrong_rows(const Store& store, std::mt19937_64& random, int calls) {
  uint64_t wrong = 0;
  std::vector<uint8_t> out(32 * row_bytes);
  for (int call = 0; call < calls; ++call) {
    int64_t indices[32];
    for (int64_t& index : indices) index = static_cast<int64_t>(random() % row_count);
    if (ncast_store_gather(store.get(), indices, 8, 32, out.data(), row_bytes, 1) != NCAST_OK) return ~uint64_t{0};
    for (int i = 0; i < 32; ++i)
      wrong += is_a_version(static_cast<uint64_t>(indices[i]), out.data() + i * row_bytes) ? 0 : 1;
  }
  return wrong;
}

}  // namespace

TEST_CASE("an update replaces exactly its rows; the last of duplicates counts") {
  for (const Coding& one : updatable) {
    CAPTURE(one.codec);
    CAPTURE(one.layout);
    const MemoryFile file;
    std::vector<uint8_t> expected = first_versions();
    build(file, options_of(one), expected, row_bytes);
    const Store store = open(file.path(), NCAST_STORE_PINNED, 0, 64);
    std::mt19937_64 random(1);
    for (uint64_t version = 1; version < 30; ++version) {
      std::vector<int64_t> indices = {7, 7, static_cast<int64_t>(random() % row_count), 0, row_count - 1};
      for (int i = 0; i < 20; ++i) indices.push_back(static_cast<int64_t>(random() % row_count));
      std::vector<uint8_t> rows;
      for (size_t i = 0; i < indices.size(); ++i) {
        const std::vector<uint8_t> row = versioned(static_cast<uint64_t>(indices[i]), version + i);
        rows.insert(rows.end(), row.begin(), row.end());
        std::memcpy(expected.data() + static_cast<uint64_t>(indices[i]) * row_bytes, row.data(), row_bytes);
      }
      const ncast_status status =
          ncast_store_update(store.get(), indices.data(), 8, indices.size(), rows.data(), row_bytes, 2);
      const std::string message = ncast_last_error();
      if (status == NCAST_TOO_SMALL) {
        // Rows that do not compress use up the entries.
        REQUIRE(update(store, all_rows(), 2 * version) == NCAST_OK);
        expected = versioned_rows(0, row_count, 2 * version);
      } else {
        INFO(message);
        REQUIRE(status == NCAST_OK);
      }
      REQUIRE(content_of(store) == expected);
    }
    CHECK(ncast_store_verify(store.get(), 1, nullptr) == NCAST_OK);
    // Rows that fit their slots need no entries in the end.
    REQUIRE(update(store, all_rows(), 100) == NCAST_OK);
    if (std::strcmp(one.codec, "raw") == 0) CHECK(info_of(store).free_entries == info_of(store).entries);
  }
}

TEST_CASE("changed rows are noted, and all of them after a writer has died") {
  const Store store = table_of(updatable[0], 64);
  const auto& view = store->table->view;
  REQUIRE(view.changed_rows != nullptr);
  CHECK(view.control->changes == 0);
  std::vector<int64_t> changed;
  const uint64_t kept = narrowcast::store::changes_kept;
  for (uint64_t call = 0; changed.size() <= kept + 100; ++call) {
    const std::vector<int64_t> indices = all_rows(1 + call % row_count);
    REQUIRE(update(store, indices, 2 * call) == NCAST_OK);
    REQUIRE(view.control->changes == changed.size() + indices.size());
    changed.insert(changed.end(), indices.begin(), indices.end());
    std::set<uint64_t> noted;
    for (uint64_t i = changed.size() - indices.size(); i < changed.size(); ++i)
      noted.insert(view.changed_rows[i % kept]);
    REQUIRE(noted.size() == indices.size());
    REQUIRE(*noted.rbegin() == indices.size() - 1);
  }
  REQUIRE(update(store, {-1}, 0) == NCAST_INVALID_ARGUMENT);
  CHECK(view.control->changes == changed.size());
  // A row in an entry, an entry without a row, and a wrong count of them, as a dead writer may leave them.
  REQUIRE(update(store, {9}, 1) == NCAST_OK);
  const auto orphan = std::ranges::find(std::span(store->table->entry_infos, view.entry_count), uint64_t{0},
                                        &narrowcast::store::EntryInfo::row_plus_one);
  *orphan = {6, 8};
  view.control->entries_used = 40;
  view.control->unclean = 1;
  REQUIRE(update(store, {5}, 2) == NCAST_OK);
  CHECK(view.control->changes == changed.size() + 1 + kept + 1);
  CHECK(info_of(store).free_entries == info_of(store).entries - 1);
  REQUIRE(update(store, {10}, 1) == NCAST_OK);  // takes another entry than that of row 9
  for (const uint64_t row : {9, 10}) CHECK(has_version(store, row, 1));
}

TEST_CASE("updates and appends that do not fit change nothing, and those that just fit succeed") {
  const std::vector<uint8_t> rows = first_versions();
  for (const Coding& one : {updatable[0], updatable[2]}) {
    const bool fits_always = std::strcmp(one.codec, "raw") == 0;
    const MemoryFile file;
    build(file, options_of(one, row_count + 60), rows, row_bytes);
    for (const int64_t spare : {0, 1, 50}) {
      const Store store = open(file.path(), NCAST_STORE_PINNED, 0, spare);
      if (!fits_always) {
        CHECK(update(store, all_rows(), 1) == NCAST_TOO_SMALL);
        CHECK(error_contains("spare"));
        CHECK(content_of(store) == rows);
      }
      // Rows that fit need one entry at least, while they change.
      CHECK(update(store, all_rows(), 2) == (spare == 0 ? NCAST_TOO_SMALL : NCAST_OK));
      if (fits_always) continue;
      const std::vector<uint8_t> added = versioned_rows(row_count, 51, 1);
      const auto append = [&](int64_t count) {
        return ncast_store_append(store.get(), added.data(), row_bytes, static_cast<uint64_t>(count), nullptr, 1);
      };
      CHECK(append(spare + 1) == NCAST_TOO_SMALL);
      CHECK(info_of(store).rows == row_count);
      CHECK(append(spare) == NCAST_OK);
    }
  }
}

TEST_CASE("rows that leave their entries make room for rows that need one in the same update") {
  const Store store = table_of(updatable[0], 5);
  REQUIRE(update(store, {0, 1, 2, 3}, 1) == NCAST_OK);
  REQUIRE(info_of(store).free_entries == 1);
  // Rows 0 to 3 fit their slots again; the others do not.
  const std::vector<uint64_t> versions = {2, 2, 2, 2, 1};
  CHECK(update(store, {0, 1, 2, 3, 10, 11, 12, 13, 14, 15}, versions) == NCAST_TOO_SMALL);
  CHECK(has_version(store, 0, 1));
  REQUIRE(update(store, {0, 1, 2, 3, 10, 11, 12, 13, 14}, versions) == NCAST_OK);
  for (const uint64_t row : {0, 3, 10, 14}) CHECK(has_version(store, row, row < 4 ? 2 : 1));
  // No row can change any more, because it needs an entry while it does.
  REQUIRE(info_of(store).free_entries == 0);
  CHECK(update(store, {14}, 3) == NCAST_TOO_SMALL);
  CHECK(update(store, {0}, 2) == NCAST_TOO_SMALL);
}

TEST_CASE("an entry that a reader may be reading is not reused until it leaves") {
  const Store store = table_of(updatable[0], 2);
  auto& table = *store->table;
  REQUIRE(update(store, {3}, 1) == NCAST_OK);
  const uint32_t reader = table.readers.enter();
  narrowcast::store::Payload payload;
  REQUIRE(narrowcast::store::locate(table, 3, &payload));
  REQUIRE(payload.in_entry);
  table.readers.limit_grace(0.01);
  CHECK(update(store, {3}, 3) == NCAST_OK);  // leaves its cleaning up to the next change
  CHECK(update(store, {5}, 5) == NCAST_TIMEOUT);
  std::vector<uint8_t> row(row_bytes);
  CHECK(narrowcast::store::decode(table, payload, row.data()));
  CHECK(row == versioned(3, 1));
  table.readers.leave(reader);
  CHECK(update(store, {3}, 5) == NCAST_OK);
}

TEST_CASE("an update waits for the readers that may see a row's old slot, its old body, or its entry") {
  const Store store = table_of(updatable[0], 2);
  auto& table = *store->table;
  auto& readers = table.readers;
  std::atomic<bool> done{false};
  const auto wait_for_stage = [&](uint64_t grace_waits) {
    while (readers.grace_waits() < grace_waits && !done) std::this_thread::yield();
  };
  const auto enter = [&](bool expects_entry) {
    const uint32_t reader = readers.enter();
    narrowcast::store::Payload payload;
    CHECK(narrowcast::store::locate(table, 3, &payload));
    CHECK(payload.in_entry == expects_entry);
    return reader;
  };
  const uint32_t of_slot = enter(false);
  std::thread writer([&] {
    CHECK(update(store, {3}, 2) == NCAST_OK);
    done = true;
  });
  wait_for_stage(1);
  const uint32_t of_body = enter(true);
  readers.leave(of_slot);
  wait_for_stage(2);
  const uint32_t of_entry = enter(true);
  readers.leave(of_body);
  wait_for_stage(3);
  CHECK_FALSE(done);
  CHECK(info_of(store).free_entries == 1);
  const uint32_t later = enter(false);
  readers.leave(of_entry);
  writer.join();
  readers.leave(later);
  CHECK(info_of(store).free_entries == 2);
}

TEST_CASE("an update that could not clean up is complete and counted, unless rows have not changed") {
  for (const Coding& one : {updatable[0], updatable[2]}) {
    const Store store = table_of(one, 8);
    auto& readers = store->table->readers;
    readers.limit_grace(0.01);
    const uint32_t reader = readers.enter();
    const auto counters = [&] {
      const ncast_store_counters counted = counters_of(store);
      return std::pair(counted.updates, counted.rows_updated);
    };
    CHECK(update(store, {3, 5}, 2) == NCAST_OK);
    CHECK(counters() == std::pair(uint64_t{1}, uint64_t{2}));
    for (const uint64_t row : {3, 5}) CHECK(has_version(store, row, 2));
    // The entries of these rows are in use while the reader is inside its call.
    CHECK(update(store, all_rows(20), 4) == NCAST_TIMEOUT);
    CHECK(counters() == std::pair(uint64_t{1}, uint64_t{2}));

    readers.leave(reader);
    const uint32_t other = readers.enter();
    std::thread leaves([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      readers.leave(other);
    });
    readers.limit_grace(60);
    CHECK(update(store, {30}, 4) == NCAST_OK);
    leaves.join();
    CHECK(counters() == std::pair(uint64_t{2}, uint64_t{3}));
    CHECK(info_of(store).free_entries == info_of(store).entries);
  }
}

TEST_CASE("a table counts calls, rows and overflow rows, each once") {
  const Store store = table_of(updatable[0], 8, row_count + 8);
  std::vector<uint8_t> rows(4 * row_bytes);
  const auto counted = [&] {
    const ncast_store_counters found = counters_of(store);
    CHECK(found.raw_bytes_read == found.rows_read * row_bytes);
    CHECK(found.damaged_rows_read == 0);
    return std::vector<uint64_t>{found.gathers, found.fetches,      found.rows_read, found.overflow_rows_read,
                                 found.updates, found.rows_updated, found.appends,   found.rows_appended};
  };
  CHECK(counted() == std::vector<uint64_t>(8));
  REQUIRE(update(store, {1, 2, 3}, {1, 1, 2}) == NCAST_OK);  // the first two do not fit their slots
  REQUIRE(ncast_store_append(store.get(), versioned(row_count, 0).data(), row_bytes, 1, nullptr, 1) == NCAST_OK);
  CHECK(counted() == std::vector<uint64_t>{0, 0, 0, 0, 1, 3, 1, 1});
  REQUIRE(ncast_store_fetch(store.get(), 0, 4, 1, rows.data(), row_bytes, 1) == NCAST_OK);
  CHECK(counted() == std::vector<uint64_t>{0, 1, 4, 2, 1, 3, 1, 1});
  const int64_t indices[] = {2, 7, 2};
  REQUIRE(ncast_store_gather(store.get(), indices, 8, 3, rows.data(), row_bytes, 1) == NCAST_OK);
  CHECK(counted() == std::vector<uint64_t>{1, 1, 7, 4, 1, 3, 1, 1});
}

TEST_CASE("append adds rows up to the capacity, and readers see whole rows") {
  for (const Coding& one : updatable) {
    const Store store = table_of(one, -1, 3 * row_count);
    std::atomic<bool> done{false};
    std::atomic<uint64_t> wrong{0};
    std::thread reader([&] {
      std::vector<uint8_t> row(row_bytes);
      while (!done) {
        const uint64_t last = info_of(store).rows - 1;
        if (ncast_store_fetch(store.get(), last, 1, 1, row.data(), row_bytes, 1) != NCAST_OK ||
            !is_a_version(last, row.data()))
          ++wrong;
      }
    });
    uint64_t rows = row_count;
    for (const uint64_t more : {uint64_t{1}, uint64_t{0}, uint64_t{150}, uint64_t{249}}) {
      const std::vector<uint8_t> added = versioned_rows(rows, more, 0, 3);
      uint64_t first = 0;
      REQUIRE(ncast_store_append(store.get(), added.data(), row_bytes, more, &first, 1) == NCAST_OK);
      CHECK(first == rows);
      rows += more;
    }
    done = true;
    reader.join();
    CHECK(wrong == 0);
    CHECK(rows == 3 * row_count);
    CHECK(ncast_store_append(store.get(), first_versions().data(), row_bytes, 1, nullptr, 1) == NCAST_TOO_SMALL);
    const std::vector<uint8_t> content = content_of(store);
    for (uint64_t row = 0; row < rows; ++row) CHECK(is_a_version(row, content.data() + row * row_bytes));
    const MemoryFile saved;
    REQUIRE(ncast_store_save(store.get(), saved.descriptor()) == NCAST_OK);
    CHECK(content_of(open(saved.path(), NCAST_STORE_MMAP)) == content);
    CHECK(ncast_store_verify(open(saved.path(), NCAST_STORE_MMAP).get(), 1, nullptr) == NCAST_OK);
  }
}

TEST_CASE("readers in other threads never see a mix, and a save under updates is of whole rows") {
  for (const Coding& one : updatable) {
    CAPTURE(one.codec);
    CAPTURE(one.layout);
    const Store store = table_of(one, 300);
    std::atomic<bool> done{false};
    std::atomic<uint64_t> wrong{0};
    std::vector<std::thread> readers;
    for (unsigned i = 0; i < 3; ++i) {
      readers.emplace_back([&, i] {
        std::mt19937_64 random(i);
        while (!done) wrong += wrong_rows(store, random, 10);
      });
    }
    for (uint64_t version = 1; version <= 40; ++version) {
      REQUIRE(update(store, all_rows(), version) == NCAST_OK);
      if (version % 10 == 0) {
        const MemoryFile saved;
        std::thread writer([&] { CHECK(update(store, all_rows(), version + 1000) == NCAST_OK); });
        REQUIRE(ncast_store_save(store.get(), saved.descriptor()) == NCAST_OK);
        writer.join();
        const std::vector<uint8_t> content = content_of(open(saved.path(), NCAST_STORE_MMAP));
        for (uint64_t row = 0; row < row_count; ++row) CHECK(is_a_version(row, content.data() + row * row_bytes));
      }
    }
    done = true;
    for (std::thread& reader : readers) reader.join();
    CHECK(wrong == 0);
  }
}

TEST_CASE("a slot holds nothing of the longer payload that it held before") {
  const MemoryFile file, saved;
  std::vector<uint8_t> rows = first_versions();
  const std::vector<uint8_t> zeros(row_bytes);
  std::copy(zeros.begin(), zeros.end(), rows.begin());
  build(file, options_of(updatable[0]), rows, row_bytes);
  const Store store = open(file.path());
  REQUIRE(update(store, {0}, 2) == NCAST_OK);
  const int64_t index = 0;
  REQUIRE(ncast_store_update(store.get(), &index, 8, 1, zeros.data(), row_bytes, 1) == NCAST_OK);
  REQUIRE(ncast_store_save(store.get(), saved.descriptor()) == NCAST_OK);
  CHECK(saved.content() == file.content());
}

TEST_CASE("saved tables keep overflow rows, capacity and spare") {
  for (const Coding& one : updatable) {
    CAPTURE(one.codec);
    CAPTURE(one.layout);
    const MemoryFile file, changed, copy;
    build(file, options_of(one, 300), first_versions(), row_bytes);
    const Store store = open(file.path(), NCAST_STORE_PINNED, 0, 64, 400);
    REQUIRE(update(store, {3, 5, 8}, 1) == NCAST_OK);
    REQUIRE(ncast_store_save(store.get(), changed.descriptor()) == NCAST_OK);
    const Store mapped = open(changed.path(), NCAST_STORE_MMAP);
    REQUIRE(ncast_store_save(mapped.get(), copy.descriptor()) == NCAST_OK);
    CHECK(copy.content() == changed.content());
    // Also the file of a table that was opened with overflow rows.
    const MemoryFile again;
    REQUIRE(ncast_store_save(open(copy.path()).get(), again.descriptor()) == NCAST_OK);
    CHECK(again.content() == changed.content());
    CHECK(info_of(open(again.path())).capacity == 400);
    CHECK(info_of(open(again.path())).free_entries == 64);
  }
}

TEST_CASE("a reader that was killed in a call does not block writers when another process has its number") {
  namespace store = narrowcast::store;
  using Owners = narrowcast::bootstrap::SegmentOwners;
  std::vector<store::ReaderWords> words(store::max_readers);
  Owners owners = {};
  owners.owner[0].process = narrowcast::bootstrap::current_process();
  owners.owner[1].process = {.pid = getpid(), .start_time = 1};  // not that of a living process
  store::Readers killed, writer, next;
  killed.attach(words.data(), &owners, 2);
  static_cast<void>(killed.enter());
  owners.owner[1].process = owners.owner[0].process;
  next.attach(words.data(), &owners, 2);
  writer.attach(words.data(), &owners, 1);
  next.leave(next.enter());
  CHECK(writer.wait_for_grace() == NCAST_OK);
}

TEST_CASE("the contexts of ended processes are free for new readers") {
  namespace store = narrowcast::store;
  narrowcast::bootstrap::SegmentOwners owners = {};
  owners.owner[0].process = narrowcast::bootstrap::current_process();
  owners.owner[1].process = {.pid = getpid(), .start_time = 1};  // not that of a living process
  std::vector<store::ReaderWords> words(store::max_readers);
  store::Readers ended, living;
  ended.attach(words.data(), &owners, 2);
  living.attach(words.data(), &owners, 1);
  for (uint32_t i = 0; i < store::max_readers; ++i) REQUIRE(ended.claim() == i);
  CHECK(ended.claim() == store::max_readers);
  for (uint32_t i = 0; i < store::max_readers; ++i) REQUIRE(living.claim() == i);
  CHECK(living.claim() == store::max_readers);
}

#ifndef __SANITIZE_THREAD__  // which does not support these forks
TEST_CASE("processes share a table; killed writers and readers leave it whole") {
  for (const Coding& one : updatable) {
    CAPTURE(one.codec);
    CAPTURE(one.layout);
    const MemoryFile file;
    build(file, options_of(one), first_versions(), row_bytes);
    const std::string path = file.path();
    const auto start = [&](const auto& work) {
      const auto body = [&] {
        const Store store = try_open(path, NCAST_STORE_SHARED).store;
        _exit(store == nullptr ? 3 : work(store));
      };
      return narrowcast::testing::start_process(body, 600);
    };
    // Room for the rows that do not compress, and for those that replace them.
    const Store store = open(path, NCAST_STORE_SHARED, 0, 2 * row_count);
    std::mt19937_64 random(4);
    const auto read_forever = [](const Store& own) {
      std::mt19937_64 numbers(static_cast<uint64_t>(getpid()));
      while (getppid() != 1) {
        if (wrong_rows(own, numbers, 20) != 0) return 1;
      }
      return 2;
    };
    const auto write_forever = [](const Store& own) {
      for (uint64_t version = 1; getppid() != 1; ++version) {
        if (update(own, all_rows(), version) != NCAST_OK) return 1;
      }
      return 2;
    };
    const auto stop = [](pid_t child) {
      kill(child, SIGKILL);
      CHECK(narrowcast::testing::wait_for_process(child) == -SIGKILL);  // it has not ended by itself, after an error
    };
    const pid_t steady_reader = start(read_forever);
    for (int round = 0; round < 8; ++round) {
      const pid_t writer = start(write_forever), reader = start(read_forever);
      std::this_thread::sleep_for(std::chrono::microseconds(20000 + random() % 20000));
      CHECK(wrong_rows(store, random, 20) == 0);
      stop(round % 2 == 0 ? writer : reader);
      // What the dead process held does not block this one.
      const ncast_status status = update(store, all_rows(), 2 * static_cast<uint64_t>(round) + 500000);
      const std::string message = ncast_last_error();
      INFO(message);
      CHECK(status == NCAST_OK);
      CHECK(wrong_rows(store, random, 20) == 0);
      stop(round % 2 == 0 ? reader : writer);
    }
    stop(steady_reader);
    REQUIRE(update(store, all_rows(), 600000) == NCAST_OK);
    REQUIRE(content_of(store) == versioned_rows(0, row_count, 600000));
    // Even versions fit their slots: after all the kills no entry is lost.
    CHECK(info_of(store).free_entries == info_of(store).entries);
  }
}
#endif
