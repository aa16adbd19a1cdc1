// Tables in the pages of files that others overwrite or truncate.
#include <sys/stat.h>

#include <atomic>
#include <csignal>
#include <ctime>
#include <thread>

#include "store/handle.h"
#include "store/table/bus_errors.h"
#include "store/table/table.h"
#include "support/ranks.h"
#include "tables.h"

using namespace narrowcast::tests;
namespace store = narrowcast::store;

namespace {

constexpr uint64_t mapped_rows = 20000, mapped_elems = 16, mapped_row_bytes = 64;

std::vector<uint8_t> rows_of(uint64_t seed) { return some_rows(NCAST_FLOAT32, mapped_elems, mapped_rows, seed); }

void build(const MemoryFile& file, const Coding& coding, uint64_t seed) {
  build(file, {.dtype = NCAST_FLOAT32, .row_shape = {mapped_elems}, .codec = coding.codec, .layout = coding.layout},
        rows_of(seed), mapped_row_bytes);
}

// Reads all rows.
ncast_status read(const Store& opened, std::vector<uint8_t>* rows) {
  rows->assign(mapped_rows * mapped_row_bytes, 1);
  return ncast_store_fetch(opened.get(), 0, mapped_rows, 1, rows->data(), mapped_row_bytes, 2);
}

// Rows that are neither as they were nor zeros.
uint64_t wrong_rows(const std::vector<uint8_t>& rows, const std::vector<uint8_t>& expected) {
  const std::vector<uint8_t> zeros(mapped_row_bytes);
  uint64_t wrong = 0;
  for (uint64_t at = 0; at < rows.size(); at += mapped_row_bytes) {
    const bool same = std::memcmp(rows.data() + at, expected.data() + at, mapped_row_bytes) == 0;
    if (!same && std::memcmp(rows.data() + at, zeros.data(), mapped_row_bytes) != 0) ++wrong;
  }
  return wrong;
}

const store::file::Section& section_of(const Store& opened, uint32_t section) {
  return opened->table->header.sections[section];
}

}  // namespace

TEST_CASE("rows that are overwritten after they were verified are errors, also to verify, and others are right") {
  for (const Coding& coding : every_layout) {
    CAPTURE(coding.codec);
    CAPTURE(coding.layout);
    const MemoryFile file;
    build(file, coding, 1);
    const std::vector<uint8_t> expected = rows_of(1);
    const Store opened = open(file.path(), NCAST_STORE_MMAP);
    std::vector<uint8_t> rows;
    REQUIRE(read(opened, &rows) == NCAST_OK);
    const store::file::Section& data = section_of(opened, store::file::data);
    const auto place = static_cast<off_t>(data.offset + data.bytes / 2);
    std::vector<uint8_t> noise(256, 0x5a);
    REQUIRE(pwrite(file.descriptor(), noise.data(), noise.size(), place) == 256);
    REQUIRE(read(opened, &rows) == NCAST_CORRUPT);
    CHECK(error_contains("is damaged"));
    CHECK(rows != expected);
    CHECK(wrong_rows(rows, expected) == 0);
    CHECK(ncast_store_fetch(opened.get(), 0, 1, 1, rows.data(), mapped_row_bytes, 1) == NCAST_OK);
    CHECK(std::memcmp(rows.data(), expected.data(), mapped_row_bytes) == 0);
    CHECK(ncast_store_verify(opened.get(), 2, nullptr) == NCAST_CORRUPT);
    const MemoryFile copy;
    CHECK(ncast_store_save(opened.get(), copy.descriptor()) == NCAST_CORRUPT);
  }
}

TEST_CASE("verify does not rely on what was verified when the time of the file is set back") {
  const MemoryFile file;
  build(file, every_layout[0], 1);
  const Store opened = open(file.path(), NCAST_STORE_MMAP);
  std::vector<uint8_t> rows;
  REQUIRE(read(opened, &rows) == NCAST_OK);
  struct stat before;
  REQUIRE(fstat(file.descriptor(), &before) == 0);
  const store::file::Section& data = section_of(opened, store::file::data);
  REQUIRE(pwrite(file.descriptor(), "overwritten", 11, static_cast<off_t>(data.offset + data.bytes / 2)) == 11);
  const timespec times[] = {before.st_atim, before.st_mtim};
  REQUIRE(futimens(file.descriptor(), times) == 0);
  CHECK(ncast_store_verify(opened.get(), 2, nullptr) == NCAST_CORRUPT);
}

TEST_CASE("a file whose time changes and whose rows do not is read as before") {
  const MemoryFile file;
  build(file, every_layout[1], 1);
  const Store opened = open(file.path(), NCAST_STORE_MMAP);
  std::vector<uint8_t> rows;
  for (const time_t second : {1000, 2000}) {
    REQUIRE(read(opened, &rows) == NCAST_OK);
    CHECK(rows == rows_of(1));
    const timespec times[] = {{second, 0}, {second, 0}};
    REQUIRE(futimens(file.descriptor(), times) == 0);
  }
  REQUIRE(read(opened, &rows) == NCAST_OK);
  CHECK(ncast_store_verify(opened.get(), 2, nullptr) == NCAST_OK);
}

TEST_CASE("another table in place of one that is mapped, and offsets that are overwritten, are errors") {
  for (const Coding& coding : every_layout) {
    CAPTURE(coding.codec);
    CAPTURE(coding.layout);
    const MemoryFile file, other;
    build(file, coding, 1);
    build(other, coding, 2);
    const Store opened = open(file.path(), NCAST_STORE_MMAP);
    std::vector<uint8_t> rows;
    REQUIRE(read(opened, &rows) == NCAST_OK);
    if (const store::file::Section& offsets = section_of(opened, store::file::offsets); offsets.bytes != 0) {
      const std::vector<uint8_t> content = file.content(), noise(offsets.bytes, 0xa5);
      const auto place = static_cast<off_t>(offsets.offset);
      REQUIRE(pwrite(file.descriptor(), noise.data(), noise.size(), place) == static_cast<ssize_t>(noise.size()));
      for (int i = 0; i < 2; ++i) {
        CHECK(read(opened, &rows) == NCAST_CORRUPT);
        CHECK(error_contains("its index is damaged"));
      }
      CHECK(ncast_store_verify(opened.get(), 2, nullptr) == NCAST_CORRUPT);
      REQUIRE(pwrite(file.descriptor(), content.data(), content.size(), 0) == static_cast<ssize_t>(content.size()));
      CHECK(read(opened, &rows) == NCAST_OK);
    }
    std::vector<uint8_t> content = other.content();
    content.resize(file.content().size());
    struct stat before;
    REQUIRE(fstat(file.descriptor(), &before) == 0);
    REQUIRE(pwrite(file.descriptor(), content.data(), content.size(), 0) == static_cast<ssize_t>(content.size()));
    const timespec times[] = {before.st_atim, before.st_mtim};  // as rsync does
    REQUIRE(futimens(file.descriptor(), times) == 0);
    CHECK(read(opened, &rows) == NCAST_CORRUPT);
    CHECK(error_contains("another header"));
    CHECK(ncast_store_verify(opened.get(), 2, nullptr) == NCAST_CORRUPT);
  }
}

TEST_CASE("a mapped table has no capacity beyond its rows and no spare") {
  const MemoryFile file;
  build(file, every_layout[0], 1);
  const auto status = [&](uint64_t capacity, int64_t spare) {
    return try_open(file.path(), NCAST_STORE_MMAP, 0, spare, capacity).status;
  };
  CHECK(status(mapped_rows, 0) == NCAST_OK);
  CHECK(status(mapped_rows + 1, -1) == NCAST_INVALID_ARGUMENT);
  CHECK(status(0, 1) == NCAST_INVALID_ARGUMENT);
}

TEST_CASE("a mapped file that is truncated is an error") {
  for (const Coding& coding : every_layout) {
    CAPTURE(coding.codec);
    CAPTURE(coding.layout);
    for (const off_t left : {0, 5000, 300000}) {
      const MemoryFile file;
      build(file, coding, 1);
      const Store opened = open(file.path(), NCAST_STORE_MMAP);
      REQUIRE(ftruncate(file.descriptor(), left) == 0);
      std::vector<uint8_t> rows;
      CHECK(read(opened, &rows) == NCAST_CORRUPT);
      CHECK(error_contains("and has " + std::to_string(left)));
      CHECK(ncast_store_verify(opened.get(), 2, nullptr) == NCAST_CORRUPT);
      CHECK(info_of(opened).rows == mapped_rows);
      ncast_text* codec = nullptr;
      CHECK(ncast_store_codec(opened.get(), &codec) == NCAST_OK);
      ncast_text_destroy(codec);
    }
  }
}

TEST_CASE("a call notices a change that another call has noticed meanwhile") {
  const MemoryFile file;
  build(file, every_layout[0], 1);
  const Store opened = open(file.path(), NCAST_STORE_MMAP);
  store::Table& table = *opened->table;
  uint64_t mine, other;
  REQUIRE(table.mapped->check_before(table, &mine) == NCAST_OK);
  const timespec times[] = {{1000, 0}, {1000, 0}};
  REQUIRE(futimens(file.descriptor(), times) == 0);
  REQUIRE(table.mapped->check_before(table, &other) == NCAST_OK);
  CHECK(table.mapped->check_after(table, other) == NCAST_OK);
  CHECK(table.mapped->check_after(table, mine) == NCAST_CORRUPT);
  CHECK(error_contains("was written while it was read"));
}

TEST_CASE("a program that closes the descriptors of the library gets an error, and keeps its own") {
  const MemoryFile file, other;
  build(file, every_layout[0], 1);
  const int next = dup(file.descriptor());
  close(next);
  {
    const Store opened = open(file.path(), NCAST_STORE_MMAP);
    REQUIRE(dup2(other.descriptor(), next) == next);
    std::vector<uint8_t> rows;
    CHECK(read(opened, &rows) == NCAST_SYSTEM_ERROR);
    CHECK(error_contains("has closed the descriptor"));
  }
  CHECK(close(next) == 0);
}

TEST_CASE("a file that is truncated and written while it is read yields right rows or an error") {
  const MemoryFile file;
  build(file, every_layout[1], 1);
  const std::vector<uint8_t> expected = rows_of(1), content = file.content();
  std::atomic<bool> done{false};
  std::thread writer([&] {
    for (int round = 0; round < 40; ++round) {
      CHECK(ftruncate(file.descriptor(), static_cast<off_t>(content.size() / 3)) == 0);
      CHECK(pwrite(file.descriptor(), content.data(), content.size(), 0) == static_cast<ssize_t>(content.size()));
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    done = true;
  });
  while (!done) {
    const Store opened = try_open(file.path(), NCAST_STORE_MMAP).store;
    if (opened == nullptr) continue;
    std::vector<uint8_t> rows;
    for (int i = 0; i < 10; ++i) {
      const ncast_status status = read(opened, &rows);
      CHECK((status == NCAST_OK || status == NCAST_CORRUPT));
      CHECK((status != NCAST_OK || rows == expected));
    }
  }
  writer.join();
}

namespace {

constexpr size_t page = 4096;

struct MappedPages {
  MappedPages() {
    REQUIRE(ftruncate(file.descriptor(), 4 * page) == 0);
    memory = static_cast<uint8_t*>(mmap(nullptr, 4 * page, PROT_READ, MAP_SHARED, file.descriptor(), 0));
    REQUIRE(static_cast<void*>(memory) != MAP_FAILED);
    REQUIRE(pwrite(file.descriptor(), "abc", 3, 0) == 3);
  }
  ~MappedPages() { munmap(memory, 4 * page); }

  MemoryFile file;
  uint8_t* memory;
};

uint8_t at(const uint8_t* place) { return *static_cast<const volatile uint8_t*>(place); }

std::atomic<uint8_t*> repaired{nullptr};
void repair(int, siginfo_t* info, void*) {
  repaired = static_cast<uint8_t*>(info->si_addr);
  auto* const start = reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(info->si_addr) / page * page);
  mmap(start, page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
}

}  // namespace

TEST_CASE("pages behind the end of a watched file are zeros, and other pages cause the signal of before") {
  MappedPages watched, other;
  struct sigaction own = {}, before, after;
  own.sa_sigaction = repair;
  own.sa_flags = SA_SIGINFO;
  REQUIRE(sigaction(SIGBUS, &own, &before) == 0);
  const store::WatchedMapping watch(watched.memory, 3 * page + 1, watched.file.descriptor());
  REQUIRE(ftruncate(watched.file.descriptor(), page) == 0);
  REQUIRE(ftruncate(other.file.descriptor(), page) == 0);
  {
    const store::BusErrorScope outer;
    const store::BusErrorScope inner;
    CHECK_FALSE(watch.has_lost_pages());
    std::thread([&] { CHECK(at(watched.memory + 2 * page + 7) == 0); }).join();
    CHECK(watch.has_lost_pages());
    CHECK(at(watched.memory + 4 * page - 1) == 0);  // readable behind the end of a file in a part of a page
    CHECK(at(watched.memory) == 'a');
    CHECK((repaired == nullptr));
    CHECK(at(other.memory + 2 * page + 5) == 0);
    CHECK((repaired == other.memory + 2 * page + 5));
  }
  REQUIRE(sigaction(SIGBUS, &before, &after) == 0);
  CHECK((after.sa_sigaction == repair));
}

TEST_CASE("a handler that is set meanwhile stays") {
  struct sigaction own = {}, before, after;
  own.sa_sigaction = repair;
  own.sa_flags = SA_SIGINFO;
  {
    const store::BusErrorScope scope;
    REQUIRE(sigaction(SIGBUS, &own, &before) == 0);
  }
  REQUIRE(sigaction(SIGBUS, nullptr, &after) == 0);
  CHECK((after.sa_sigaction == repair));
  own = {};
  own.sa_handler = SIG_DFL;
  REQUIRE(sigaction(SIGBUS, &own, nullptr) == 0);
}

#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)  // which have handlers and forks of their own
TEST_CASE("a bus error of other memory ends the process as before, and so does a signal that is sent") {
  for (const bool is_sent : {false, true}) {
    const pid_t child = narrowcast::testing::start_process([&] {
      signal(SIGBUS, SIG_DFL);
      MappedPages other;
      static_cast<void>(ftruncate(other.file.descriptor(), page) == 0);
      const store::BusErrorScope scope;
      if (is_sent) raise(SIGBUS);
      _exit(at(other.memory + 2 * page));
    });
    CHECK(narrowcast::testing::wait_for_process(child) == -SIGBUS);
  }
}
#endif
