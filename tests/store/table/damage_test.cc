// Damaged and hostile table files.
#include <sys/stat.h>

#include "match_checksums.h"
#include "nlohmann/json.hpp"
#include "store/file/header.h"
#include "store/file/writer.h"
#include "store/rows/format.h"
#include "tables.h"

using namespace narrowcast::tests;
namespace file = narrowcast::store::file;

namespace {

TableOptions options_of(ncast_store_layout layout, const char* codec) {
  return {.dtype = NCAST_FLOAT32, .row_shape = {16}, .codec = codec, .layout = layout, .metadata = "{\"a\": 1}"};
}

// Reads a table whose file has been changed: every row is what it was, or is reported. Returns whether there was a
// report.
bool reads_or_reports(const std::string& path, const std::vector<uint8_t>& rows, uint64_t row_bytes,
                      ncast_store_host host, uint32_t flags) {
  const auto [store, status] = try_open(path, host, flags);
  if (store == nullptr) {
    CHECK(status != NCAST_OK);
    return true;
  }
  bool reported = false;
  std::vector<uint8_t> row(row_bytes);
  const ncast_store_info info = info_of(store);
  REQUIRE(info.rows * row_bytes == rows.size());
  for (uint64_t i = 0; i < info.rows; ++i) {
    if (ncast_store_fetch(store.get(), i, 1, 1, row.data(), row_bytes, 1) != NCAST_OK) {
      reported = true;
      CHECK(row == std::vector<uint8_t>(row_bytes));
    } else if (std::memcmp(row.data(), rows.data() + i * row_bytes, row_bytes) != 0) {
      FAIL_CHECK("row " << i << " is wrong");
    }
  }
  return reported;
}

file::Header file_header_of(const std::vector<uint8_t>& content) {
  file::Header header;
  std::memcpy(&header, content.data(), sizeof header);
  return header;
}

}  // namespace

TEST_CASE("no flipped byte of a file goes unnoticed, and no row is wrong") {
  const uint64_t row_bytes = 64;
  for (const auto& [codec, layout] : every_layout) {
    const std::vector<uint8_t> rows = some_rows(NCAST_FLOAT32, 16, 24, 3);
    const MemoryFile built;
    build(built, options_of(layout, codec), rows, row_bytes);
    const std::vector<uint8_t> content = built.content();
    CAPTURE(layout);
    CAPTURE(codec);
    const MemoryFile file(content);
    for (size_t at = 0; at < content.size(); ++at) {
      // Of the long runs of zeros between sections, some.
      if (content[at] == 0 && at > 400 && at % 251 != 0 && (at + 8) % 4096 > 16) continue;
      const uint8_t flipped = content[at] ^ static_cast<uint8_t>(1u << at % 8);
      REQUIRE(pwrite(file.descriptor(), &flipped, 1, static_cast<off_t>(at)) == 1);
      CAPTURE(at);
      bool noticed = false;
      for (const ncast_store_host host : {NCAST_STORE_PINNED, NCAST_STORE_MMAP})
        noticed = reads_or_reports(file.path(), rows, row_bytes, host, 0) || noticed;
      reads_or_reports(file.path(), rows, row_bytes, NCAST_STORE_PINNED, NCAST_STORE_ALLOW_DAMAGE);
      const auto [store, status] = try_open(file.path(), NCAST_STORE_MMAP);
      if (store == nullptr || ncast_store_verify(store.get(), 1, nullptr) != NCAST_OK) noticed = true;
      CHECK(noticed);
      REQUIRE(pwrite(file.descriptor(), &content[at], 1, static_cast<off_t>(at)) == 1);
    }
    CHECK(reads_or_reports(file.path(), rows, row_bytes, NCAST_STORE_PINNED, 0) == false);
  }
}

TEST_CASE("a truncated or longer file is not opened") {
  const std::vector<uint8_t> rows = some_rows(NCAST_FLOAT32, 16, 200, 4);
  const MemoryFile built;
  build(built, options_of(NCAST_STORE_AUTO_LAYOUT, "auto"), rows, 64);
  const std::vector<uint8_t> content = built.content();
  for (size_t bytes = 0; bytes < content.size(); bytes += 1 + bytes / 7) {
    const MemoryFile file({content.begin(), content.begin() + static_cast<std::ptrdiff_t>(bytes)});
    for (const ncast_store_host host : {NCAST_STORE_PINNED, NCAST_STORE_MMAP, NCAST_STORE_SHARED})
      CHECK(try_open(file.path(), host).status == NCAST_CORRUPT);
  }
  std::vector<uint8_t> longer = content;
  longer.push_back(0);
  CHECK(try_open(MemoryFile(longer).path(), NCAST_STORE_MMAP, 0).status == NCAST_CORRUPT);
}

TEST_CASE("messages name what a path of a descriptor stands for") {
  const auto message = [](const std::string& path) {
    CHECK(try_open(path, NCAST_STORE_PINNED).status != NCAST_OK);
    return std::string(ncast_last_error());
  };
  const MemoryFile named(std::vector<uint8_t>(5000, 1));
  CHECK(message(named.path()).starts_with("the table 'table' in memory "));
  const int unnamed = memfd_create("narrowcast-store", MFD_CLOEXEC);  // as store.build() does in Python
  CHECK(message("/proc/self/fd/" + std::to_string(unnamed)).starts_with("a table in memory "));
  close(unnamed);
  char path[] = "/tmp/narrowcast_damage_test_XXXXXX";
  const int file = mkstemp(path);
  CHECK(message("/dev/fd/" + std::to_string(file)).starts_with(path));
  CHECK(message(path).starts_with(path));
  close(file);
  unlink(path);
  CHECK(message("/proc/self/fd/9999") == "/proc/self/fd/9999: No such file or directory");
  CHECK(mkfifo(path, 0600) == 0);
  CHECK(message(path) == std::string(path) + " is not a regular file");
  unlink(path);
}

TEST_CASE("damage costs the rows of its segment only, and verify lists them") {
  // The last segment of 64 KiB is full: an appended row begins another one.
  const uint64_t row_bytes = 1024, count = 8 * file::segment_bytes / row_bytes;
  const std::vector<uint8_t> rows = some_rows(NCAST_FLOAT32, 256, count, 9);
  const MemoryFile built;
  build(built, {.dtype = NCAST_FLOAT32, .row_shape = {256}, .codec = "raw", .capacity = count + 1}, rows, row_bytes);
  std::vector<uint8_t> content = built.content();
  content[file_header_of(content).sections[file::data].offset + (count - 1) * row_bytes] ^= 1;
  const MemoryFile damaged(content);
  CHECK(try_open(damaged.path(), NCAST_STORE_PINNED).status == NCAST_CORRUPT);
  for (const auto& [host, flags] :
       {std::pair{NCAST_STORE_PINNED, uint32_t{NCAST_STORE_ALLOW_DAMAGE}}, std::pair{NCAST_STORE_MMAP, uint32_t{0}}}) {
    const Store store = open(damaged.path(), host, flags);
    std::vector<uint8_t> out(rows.size());
    CHECK(ncast_store_fetch(store.get(), 0, count, 1, out.data(), row_bytes, 2) == NCAST_CORRUPT);
    const auto good = static_cast<std::ptrdiff_t>(7 * file::segment_bytes);
    CHECK(std::equal(out.begin(), out.begin() + good, rows.begin()));
    CHECK(std::all_of(out.begin() + good, out.end(), [](uint8_t byte) { return byte == 0; }));
    ncast_text* text = nullptr;
    CHECK(ncast_store_verify(store.get(), 2, &text) == NCAST_CORRUPT);
    const auto report = nlohmann::json::parse(ncast_text_data(text));
    ncast_text_destroy(text);
    CHECK(report["damaged_rows"] == 64);
    CHECK(report["damaged"].size() == 64);
    CHECK(report["damaged"].back() == count - 1);
    CHECK(report["faults"].size() == 1);
    if (host == NCAST_STORE_MMAP) continue;
    CHECK(ncast_store_append(store.get(), rows.data(), row_bytes, 1, nullptr, 1) == NCAST_OK);
    CHECK(ncast_store_fetch(store.get(), count, 1, 1, out.data(), row_bytes, 1) == NCAST_OK);
    CHECK(std::equal(out.begin(), out.begin() + static_cast<std::ptrdiff_t>(row_bytes), rows.begin()));
  }
}

TEST_CASE("hostile headers, models and offsets with valid checksums neither crash nor read out of bounds") {
  std::mt19937_64 random(1);
  for (const auto& [codec, layout] : every_layout) {
    const std::vector<uint8_t> rows = some_rows(NCAST_FLOAT32, 16, 50, 3);
    const MemoryFile built;
    build(built, options_of(layout, codec), rows, 64);
    const std::vector<uint8_t> content = built.content();
    for (int round = 0; round < 1500; ++round) {
      std::vector<uint8_t> changed = content;
      for (uint64_t changes = 1 + random() % 3; changes > 0; --changes) {
        const uint64_t at = random() % 3 == 0 ? random() % changed.size() : random() % sizeof(file::Header);
        changed[at] = random() % 2 == 0 ? static_cast<uint8_t>(random()) : static_cast<uint8_t>(changed[at] ^ 1u);
      }
      match_checksums(changed);
      const MemoryFile hostile(changed);
      for (const ncast_store_host host : {NCAST_STORE_PINNED, NCAST_STORE_MMAP}) {
        const auto [store, status] = try_open(hostile.path(), host);
        if (store == nullptr) continue;
        const ncast_store_info info = info_of(store);
        if (info.row_bytes > 1u << 28) continue;  // a table without rows
        std::vector<uint8_t> row(info.row_bytes);
        for (uint64_t i = 0; i < std::min<uint64_t>(info.rows, 200); ++i)
          static_cast<void>(ncast_store_fetch(store.get(), i, 1, 1, row.data(), row.size(), 1));
        static_cast<void>(ncast_store_verify(store.get(), 1, nullptr));
        const int64_t index = 0;
        if (host == NCAST_STORE_PINNED)
          static_cast<void>(ncast_store_update(store.get(), &index, 8, 1, row.data(), row.size(), 1));
      }
    }
  }
}

TEST_CASE("rows that damaged frames contain in part are zeros, and all of them are counted") {
  const uint64_t row_bytes = 400000, count = 6;
  const std::vector<uint8_t> rows = some_rows(NCAST_FLOAT32, row_bytes / 4, count, 2);
  const MemoryFile built;
  build(built, {.dtype = NCAST_FLOAT32, .row_shape = {row_bytes / 4}, .codec = "raw"}, rows, row_bytes);
  std::vector<uint8_t> content = built.content();
  const file::Section data = file_header_of(content).sections[file::data];
  // In a frame that contains the end of a row and the beginning of the next.
  content[data.offset + 2 * row_bytes] ^= 1;
  const MemoryFile damaged(content);
  const Store store = open(damaged.path(), NCAST_STORE_MMAP);
  std::vector<uint8_t> fetched(rows.size()), gathered(rows.size()), zeros(2 * row_bytes);
  CHECK(ncast_store_fetch(store.get(), 0, count, 1, fetched.data(), row_bytes, 2) == NCAST_CORRUPT);
  CHECK(error_contains("row 1 of"));
  CHECK(counters_of(store).damaged_rows_read == 2);
  // The number in the message is that of the row in the table.
  CHECK(ncast_store_fetch(store.get(), 1, 2, 1, gathered.data(), row_bytes, 2) == NCAST_CORRUPT);
  CHECK(error_contains("row 1 of"));
  const int64_t indices[] = {0, 1, 2, 3, 4, 5};
  CHECK(ncast_store_gather(store.get(), indices, 8, count, gathered.data(), row_bytes, 2) == NCAST_CORRUPT);
  CHECK(error_contains("row 1 of"));
  CHECK(counters_of(store).damaged_rows_read == 6);
  CHECK(fetched == gathered);
  CHECK(std::equal(zeros.begin(), zeros.end(), fetched.begin() + row_bytes));
  CHECK(std::equal(rows.begin() + 3 * row_bytes, rows.end(), fetched.begin() + 3 * row_bytes));
}

TEST_CASE("frames of another value type than the table's, and bytes after a frame, are damage") {
  const std::vector<uint8_t> rows = some_rows(NCAST_INT32, 16, 20, 2);
  const MemoryFile built;
  build(built, {.dtype = NCAST_INT32, .row_shape = {16}, .codec = "raw", .layout = NCAST_STORE_BLOCKS}, rows, 64);
  for (const ncast_dtype dtype : {NCAST_INT32, NCAST_FLOAT32}) {
    std::vector<uint8_t> content = built.content();
    content[offsetof(file::Header, dtype)] = static_cast<uint8_t>(dtype);
    match_checksums(content);
    CHECK(reads_or_reports(MemoryFile(content).path(), rows, 64, NCAST_STORE_MMAP, 0) == (dtype != NCAST_INT32));
  }
  const std::vector<uint8_t> content = built.content();
  const file::Header header = file_header_of(content);
  const file::Section& data = header.sections[file::data];
  for (const uint64_t more : {0, 4}) {
    const MemoryFile longer;
    file::Writer writer(longer.descriptor());
    std::vector<uint8_t> frame(content.data() + data.offset, content.data() + data.offset + data.bytes);
    frame.resize(data.bytes + more);
    const uint64_t offsets[] = {0, frame.size()};
    REQUIRE(writer.begin(header, {}, "") == NCAST_OK);
    REQUIRE(writer.append_data(frame.data(), frame.size()) == NCAST_OK);
    REQUIRE(writer.append_offsets(offsets, sizeof offsets) == NCAST_OK);
    REQUIRE(writer.finish(20) == NCAST_OK);
    CHECK(reads_or_reports(longer.path(), rows, 64, NCAST_STORE_MMAP, 0) == (more != 0));
  }
}

TEST_CASE("a file of plain rows with overflow entries is not opened") {
  const std::vector<uint8_t> rows = some_rows(NCAST_FLOAT32, 16, 4, 2);
  const MemoryFile built, changed;
  build(built, options_of(NCAST_STORE_STRIDE, "raw"), rows, 64);
  const std::vector<uint8_t> content = built.content();
  const file::Header header = file_header_of(content);
  const uint8_t* const model = content.data() + header.sections[file::model].offset;
  file::Writer writer(changed.descriptor());
  REQUIRE(writer.begin(header, {model, model + header.sections[file::model].bytes}, "") == NCAST_OK);
  REQUIRE(writer.append_data(rows.data(), rows.size()) == NCAST_OK);
  uint64_t entry;
  std::vector<uint8_t> padded(rows.begin(), rows.begin() + 64);
  padded.resize(header.entry_stride);
  const std::vector<uint64_t> entry_rows = {0};
  REQUIRE(writer.number_entries(1, &entry) == NCAST_OK);
  REQUIRE(writer.append_entries(entry_rows, padded) == NCAST_OK);
  REQUIRE(writer.finish(4) == NCAST_OK);
  for (const ncast_store_host host : {NCAST_STORE_PINNED, NCAST_STORE_MMAP})
    CHECK(try_open(changed.path(), host).status == NCAST_CORRUPT);
}

TEST_CASE("damaged and exchanged overflow entries are noticed, and an update ends if two rows have the same") {
  const uint64_t row_bytes = 256;
  // Few rows are noise, and are in overflow entries.
  const std::vector<uint8_t> rows = some_rows(NCAST_FLOAT32, row_bytes / 4, 500, 3);
  const MemoryFile built;
  build(built, {.dtype = NCAST_FLOAT32, .row_shape = {row_bytes / 4}, .codec = "window", .layout = NCAST_STORE_STRIDE},
        rows, row_bytes);
  std::vector<uint8_t> content = built.content();
  const file::Header header = file_header_of(content);
  uint64_t owner;
  std::memcpy(&owner, content.data() + header.sections[file::entry_rows].offset, sizeof owner);
  const uint64_t thief = owner == 0 ? 1 : 0;
  uint8_t* const slots = content.data() + header.sections[file::data].offset;
  std::vector<uint8_t> flipped = content;
  flipped[header.sections[file::entries].offset + 100] ^= 1;
  const MemoryFile damaged(flipped);
  CHECK(reads_or_reports(damaged.path(), rows, row_bytes, NCAST_STORE_MMAP, 0));
  CHECK(reads_or_reports(damaged.path(), rows, row_bytes, NCAST_STORE_PINNED, NCAST_STORE_ALLOW_DAMAGE));
  uint64_t second;
  REQUIRE(header.entries > 1);
  std::memcpy(&second, content.data() + header.sections[file::entry_rows].offset + sizeof owner, sizeof second);
  const auto exchange = [&] {
    std::swap_ranges(slots + owner * header.stride, slots + owner * header.stride + 4, slots + second * header.stride);
    match_checksums(content);
  };
  exchange();
  const MemoryFile exchanged(content);
  CHECK(ncast_store_verify(open(exchanged.path(), NCAST_STORE_MMAP).get(), 1, nullptr) == NCAST_CORRUPT);
  exchange();
  std::memcpy(slots + thief * header.stride, slots + owner * header.stride, 4);
  match_checksums(content);
  const MemoryFile changed(content);
  const Store store = open(changed.path(), NCAST_STORE_PINNED, 0, 1);
  // The first row fits its slot but frees no entry; the others need one each.
  std::vector<uint8_t> values(3 * row_bytes);
  std::mt19937 random(1);
  for (size_t at = row_bytes; at < values.size(); ++at) values[at] = static_cast<uint8_t>(random());
  std::vector<int64_t> indices = {static_cast<int64_t>(thief)};
  for (uint64_t row = 2; indices.size() < 3; ++row) {
    uint32_t word;
    std::memcpy(&word, slots + row * header.stride, sizeof word);
    if (!narrowcast::store::is_redirect(word)) indices.push_back(static_cast<int64_t>(row));
  }
  CHECK(ncast_store_update(store.get(), indices.data(), 8, 3, values.data(), row_bytes, 1) == NCAST_TOO_SMALL);
}
