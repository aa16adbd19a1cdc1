// Tables of every value type and layout against their rows in memory.
#include "store/file/header.h"
#include "tables.h"

using namespace narrowcast::tests;
namespace store = narrowcast::store;

namespace {

constexpr Coding codings[] = {
    {"auto", NCAST_STORE_AUTO_LAYOUT}, {"auto", NCAST_STORE_STRIDE}, {"auto", NCAST_STORE_PACKED},
    {"auto", NCAST_STORE_BLOCKS},      {"raw", NCAST_STORE_STRIDE},  {"raw", NCAST_STORE_BLOCKS},
};

void check_reads(const Store& store, const std::vector<uint8_t>& rows, uint64_t row_bytes) {
  const uint64_t count = rows.size() / row_bytes;
  CHECK(content_of(store) == rows);
  CHECK(ncast_store_verify(store.get(), 1, nullptr) == NCAST_OK);
  // Duplicates, first and last, in any order, with both widths of indices and a stride of the output.
  std::mt19937_64 random(count);
  std::vector<int32_t> narrow = {0, static_cast<int32_t>(count - 1), 0};
  for (int i = 0; i < 60; ++i) narrow.push_back(static_cast<int32_t>(random() % count));
  const std::vector<int64_t> wide(narrow.begin(), narrow.end());
  const uint64_t stride = row_bytes + 3;
  for (const bool is_wide : {false, true}) {
    std::vector<uint8_t> out(narrow.size() * stride, 0xa5);
    const void* const indices = is_wide ? static_cast<const void*>(wide.data()) : narrow.data();
    REQUIRE(ncast_store_gather(store.get(), indices, is_wide ? 8 : 4, narrow.size(), out.data(), stride, 0) ==
            NCAST_OK);
    for (size_t i = 0; i < narrow.size(); ++i) {
      const uint8_t* const expected = rows.data() + static_cast<uint64_t>(narrow[i]) * row_bytes;
      CHECK(std::memcmp(out.data() + i * stride, expected, row_bytes) == 0);
      CHECK(out[i * stride + row_bytes] == 0xa5);
    }
  }
  // Slices in both directions.
  for (const int64_t step : {1, 2, 7, -1, -3}) {
    const uint64_t first = step < 0 ? count - 1 : std::min<uint64_t>(count - 1, 1);
    const uint64_t length =
        step < 0 ? first / static_cast<uint64_t>(-step) + 1 : (count - 1 - first) / static_cast<uint64_t>(step) + 1;
    std::vector<uint8_t> out(length * row_bytes);
    REQUIRE(ncast_store_fetch(store.get(), first, length, step, out.data(), row_bytes, 2) == NCAST_OK);
    for (uint64_t i = 0; i < length; ++i) {
      const uint64_t row = first + static_cast<uint64_t>(step) * i;
      CHECK(std::memcmp(out.data() + i * row_bytes, rows.data() + row * row_bytes, row_bytes) == 0);
    }
  }
}

}  // namespace

TEST_CASE("a store returns the rows it was built from, for every value type and layout") {
  for (int type = NCAST_INT8; type <= NCAST_FLOAT8_E5M2; ++type) {
    const auto dtype = static_cast<ncast_dtype>(type);
    for (const uint64_t elems : {uint64_t{1}, uint64_t{3}, uint64_t{160}}) {
      const uint64_t row_bytes = elems * ncast_dtype_bytes(dtype);
      const std::vector<uint8_t> rows = some_rows(dtype, elems, 70, elems + static_cast<uint64_t>(type));
      for (const Coding& one : codings) {
        CAPTURE(ncast_dtype_name(dtype));
        CAPTURE(elems);
        CAPTURE(one.codec);
        CAPTURE(one.layout);
        const MemoryFile file;
        build(file, {.dtype = dtype, .row_shape = {elems}, .codec = one.codec, .layout = one.layout}, rows, row_bytes);
        for (const ncast_store_host host : {NCAST_STORE_PINNED, NCAST_STORE_MMAP})
          check_reads(open(file.path(), host), rows, row_bytes);
      }
    }
  }
}

TEST_CASE("rows can have any size up to 64 KiB, and more in blocks") {
  for (const uint64_t elems : {uint64_t{1}, uint64_t{2}, uint64_t{4095}, uint64_t{16384}, uint64_t{100000}}) {
    const uint64_t row_bytes = elems * 4;
    const std::vector<uint8_t> rows = some_rows(NCAST_FLOAT32, elems, 6, elems);
    const MemoryFile file;
    build(file, {.dtype = NCAST_FLOAT32, .row_shape = {elems}}, rows, row_bytes);
    const Store store = open(file.path());
    CHECK((info_of(store).layout == NCAST_STORE_BLOCKS) == (row_bytes > 65536));
    check_reads(store, rows, row_bytes);
  }
}

TEST_CASE("more overflow entries than a builder keeps in memory are stored") {
  constexpr uint64_t row_bytes = 16384, count = 1500, sampled = 8;
  std::vector<uint8_t> rows(count * row_bytes);
  std::mt19937_64 random(3);
  for (uint64_t at = 0; at < rows.size(); at += 8) {
    // Only the sample shrinks.
    const uint64_t bits = at < sampled * row_bytes ? random() & 0x0001000100010001 : random();
    std::memcpy(&rows[at], &bits, sizeof bits);
  }
  const MemoryFile file;
  const TableOptions options = {
      .dtype = NCAST_INT32, .row_shape = {row_bytes / 4}, .codec = "trim", .sampled = sampled};
  REQUIRE(try_build(file, options, rows, row_bytes, count) == NCAST_OK);
  CHECK(content_of(open(file.path())) == rows);
}

TEST_CASE("a one-dimensional tensor is stored in blocks") {
  const std::vector<uint8_t> values = some_rows(NCAST_BFLOAT16, 1, 300000, 5);
  const MemoryFile file;
  build(file, {.dtype = NCAST_BFLOAT16}, values, 2);
  const Store store = open(file.path());
  CHECK(info_of(store).layout == NCAST_STORE_BLOCKS);
  CHECK(info_of(store).row_rank == 0);
  CHECK(info_of(store).stored_bytes < values.size());
  check_reads(store, values, 2);
}

TEST_CASE("a table without rows can be opened") {
  for (const Coding& one : codings) {
    const MemoryFile file;
    build(file, {.dtype = NCAST_FLOAT32, .row_shape = {8}, .codec = one.codec, .layout = one.layout}, {}, 32);
    for (const ncast_store_host host : {NCAST_STORE_PINNED, NCAST_STORE_MMAP}) {
      const Store store = open(file.path(), host);
      CHECK(info_of(store).rows == 0);
      CHECK(ncast_store_fetch(store.get(), 0, 0, 1, nullptr, 0, 0) == NCAST_OK);
      CHECK(ncast_store_fetch(store.get(), 0, 1, 1, nullptr, 32, 0) == NCAST_INVALID_ARGUMENT);
    }
  }
}

TEST_CASE("a table has the layout that was asked for, or is not built") {
  std::vector<uint8_t> rows(200 * 64);
  std::mt19937 random(1);
  for (uint8_t& byte : rows) byte = static_cast<uint8_t>(random());
  const MemoryFile file, none;
  build(file, {.row_shape = {64}, .codec = "auto", .layout = NCAST_STORE_PACKED}, rows, 64);
  const Store store = open(file.path());
  CHECK(info_of(store).layout == NCAST_STORE_PACKED);
  CHECK(content_of(store) == rows);
  CHECK(try_build(none, {.row_shape = {64}, .codec = "raw", .layout = NCAST_STORE_PACKED}, rows, 64) ==
        NCAST_INVALID_ARGUMENT);
}

TEST_CASE("a builder takes at most 2^40 rows, and no more than the capacity, in any number of calls") {
  for (const uint64_t capacity : {uint64_t{0}, uint64_t{3}}) {
    const MemoryFile file;
    ncast_store_build_options options = {};
    options.struct_bytes = sizeof options;
    options.dtype = NCAST_UINT8;
    options.capacity = options.rows = capacity;
    ncast_store_builder* builder = nullptr;
    REQUIRE(ncast_store_builder_create(file.descriptor(), &options, &builder) == NCAST_OK);
    const uint8_t rows[] = {7, 8, 9};
    const uint64_t most = capacity == 0 ? uint64_t{1} << 40 : capacity;
    const ncast_status too_many = capacity == 0 ? NCAST_UNSUPPORTED : NCAST_INVALID_ARGUMENT;
    CHECK(ncast_store_builder_add(builder, rows, 1, most + 1) == too_many);
    CHECK(ncast_store_builder_add(builder, rows, 1, 2) == NCAST_OK);
    CHECK(ncast_store_builder_add(builder, rows, 1, most - 1) == too_many);
    CHECK(ncast_store_builder_add(builder, rows + 2, 1, 1) == NCAST_OK);
    CHECK(ncast_store_builder_finish(builder, nullptr) == NCAST_OK);
    CHECK(ncast_store_builder_add(builder, rows, 1, 0) == NCAST_INVALID_ARGUMENT);
    ncast_store_builder_destroy(builder);
    CHECK(content_of(open(file.path())) == std::vector<uint8_t>{7, 8, 9});
  }
}

TEST_CASE("offsets of 32 bits reach the longest possible payloads of the whole capacity") {
  for (const uint64_t capacity : {uint64_t{1} << 20, uint64_t{1} << 31, uint64_t{1} << 33}) {
    const MemoryFile file;
    build(file, {.row_shape = {64}, .codec = "plain", .layout = NCAST_STORE_PACKED, .capacity = capacity},
          std::vector<uint8_t>(200 * 64), 64);
    store::file::Header header;
    std::memcpy(&header, file.content().data(), sizeof header);
    const uint64_t longest = store::file::aligned(64 + 4, header.unit) / header.unit;
    // The largest unit is a page.
    CHECK((capacity * longest <= UINT32_MAX || header.unit == store::file::page_bytes));
    CHECK(info_of(open(file.path())).rows == 200);
  }
}

TEST_CASE("a NULL argument is named together with the function") {
  CHECK(ncast_store_describe(nullptr, nullptr) == NCAST_INVALID_ARGUMENT);
  CHECK(error_contains("ncast_store_describe: store is NULL"));
  CHECK(ncast_store_builder_add(nullptr, nullptr, 0, 0) == NCAST_INVALID_ARGUMENT);
  CHECK(error_contains("ncast_store_builder_add: builder is NULL"));
  CHECK(ncast_store_builder_finish(nullptr, nullptr) == NCAST_INVALID_ARGUMENT);
  CHECK(error_contains("ncast_store_builder_finish: builder is NULL"));
  CHECK(ncast_store_open("", nullptr, nullptr) == NCAST_INVALID_ARGUMENT);
  CHECK(error_contains("ncast_store_open: store is NULL"));
}

TEST_CASE("a bad index is named and nothing is written") {
  const std::vector<uint8_t> rows = some_rows(NCAST_FLOAT32, 8, 10, 1);
  const MemoryFile file;
  build(file, {.dtype = NCAST_FLOAT32, .row_shape = {8}}, rows, 32);
  const Store store = open(file.path());
  std::vector<uint8_t> out(4 * 32, 0xa5);
  for (const int64_t bad : {int64_t{-1}, int64_t{10}, INT64_MAX, INT64_MIN}) {
    const int64_t indices[] = {0, 9, bad, 3};
    CHECK(ncast_store_gather(store.get(), indices, 8, 4, out.data(), 32, 0) == NCAST_INVALID_ARGUMENT);
    CHECK(error_contains("indices[2] is " + std::to_string(bad)));
    CHECK(ncast_store_update(store.get(), indices, 8, 4, rows.data(), 32, 0) == NCAST_INVALID_ARGUMENT);
  }
  const int32_t negative[] = {0, -1};
  CHECK(ncast_store_gather(store.get(), negative, 4, 2, out.data(), 32, 0) == NCAST_INVALID_ARGUMENT);
  CHECK(ncast_store_gather(store.get(), negative, 3, 2, out.data(), 32, 0) == NCAST_INVALID_ARGUMENT);
  CHECK(ncast_store_gather(store.get(), negative, 4, 1, out.data(), 31, 0) == NCAST_INVALID_ARGUMENT);
  CHECK(ncast_store_fetch(store.get(), 8, 3, 1, out.data(), 32, 0) == NCAST_INVALID_ARGUMENT);
  CHECK(ncast_store_fetch(store.get(), 1, 3, -1, out.data(), 32, 0) == NCAST_INVALID_ARGUMENT);
  // Only the first of these rows does not exist.
  CHECK(ncast_store_fetch(store.get(), 12, 3, -2, out.data(), 32, 0) == NCAST_INVALID_ARGUMENT);
  CHECK(out == std::vector<uint8_t>(4 * 32, 0xa5));
  CHECK(content_of(store) == rows);
}
