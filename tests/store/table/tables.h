// Tables for the tests of the store.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "doctest/doctest.h"
#include "narrowcast/store.h"
#include "support/last_error.h"

namespace narrowcast::tests {

using testing::error_contains;

struct CloseStore {
  void operator()(ncast_store* store) const { ncast_store_close(store); }
};
using Store = std::unique_ptr<ncast_store, CloseStore>;

// A file in memory that can be opened by path.
class MemoryFile {
 public:
  MemoryFile() : file_(memfd_create("table", MFD_CLOEXEC)) { REQUIRE(file_ >= 0); }
  explicit MemoryFile(const std::vector<uint8_t>& content) : MemoryFile() {
    REQUIRE(pwrite(file_, content.data(), content.size(), 0) == static_cast<ssize_t>(content.size()));
  }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  ~MemoryFile() { close(file_); }

  int descriptor() const { return file_; }
  std::string path() const { return "/proc/" + std::to_string(getpid()) + "/fd/" + std::to_string(file_); }
  std::vector<uint8_t> content() const {
    std::vector<uint8_t> bytes(static_cast<size_t>(lseek(file_, 0, SEEK_END)));
    REQUIRE(pread(file_, bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()));
    return bytes;
  }

 private:
  int file_;
};

// The codec and the layout of a table, as its builder takes them.
struct Coding {
  const char* codec;
  ncast_store_layout layout;
};

inline constexpr Coding every_layout[] = {{"window", NCAST_STORE_STRIDE},
                                          {"window", NCAST_STORE_PACKED},
                                          {"raw", NCAST_STORE_STRIDE},
                                          {"window", NCAST_STORE_BLOCKS}};

struct TableOptions {
  ncast_dtype dtype = NCAST_UINT8;
  std::vector<uint64_t> row_shape = {};
  const char* codec = "auto";
  ncast_store_layout layout = NCAST_STORE_AUTO_LAYOUT;
  uint64_t capacity = 0;
  int64_t spare = -1;
  const char* metadata = nullptr;
  uint64_t sampled = ~uint64_t{0};  // of the rows, the first ones
};

inline ncast_status try_build(const MemoryFile& file, const TableOptions& options, const std::vector<uint8_t>& rows,
                              uint64_t row_bytes, uint64_t block_rows = 1000) {
  ncast_store_build_options given = {};
  given.struct_bytes = sizeof given;
  given.dtype = options.dtype;
  given.layout = options.layout;
  given.row_rank = static_cast<uint32_t>(options.row_shape.size());
  for (size_t i = 0; i < options.row_shape.size(); ++i) given.row_shape[i] = options.row_shape[i];
  given.capacity = options.capacity;
  given.spare = options.spare;
  given.codec = options.codec;
  given.metadata = options.metadata;
  given.threads = 2;
  ncast_store_builder* builder = nullptr;
  ncast_status status = ncast_store_builder_create(file.descriptor(), &given, &builder);
  const uint64_t count = rows.size() / row_bytes;
  if (status == NCAST_OK && count != 0) {
    const uint64_t sampled = std::min(options.sampled, count);
    status = ncast_store_builder_sample(builder, rows.data(), row_bytes, sampled);
  }
  for (uint64_t at = 0; at < count && status == NCAST_OK; at += block_rows) {
    const uint64_t part = std::min(block_rows, count - at);
    status = ncast_store_builder_add(builder, rows.data() + at * row_bytes, row_bytes, part);
  }
  if (status == NCAST_OK) status = ncast_store_builder_finish(builder, nullptr);
  ncast_store_builder_destroy(builder);
  return status;
}

inline void build(const MemoryFile& file, const TableOptions& options, const std::vector<uint8_t>& rows,
                  uint64_t row_bytes) {
  const ncast_status status = try_build(file, options, rows, row_bytes);
  const std::string message = ncast_last_error();
  INFO(message);
  REQUIRE(status == NCAST_OK);
}

struct OpenedOrNot {
  Store store;
  ncast_status status;
};
inline OpenedOrNot try_open(const std::string& path, ncast_store_host host, uint32_t flags = 0, int64_t spare = -1,
                            uint64_t capacity = 0) {
  ncast_store_open_options options = {};
  options.struct_bytes = sizeof options;
  options.host = host;
  options.flags = flags;
  options.spare_plus_one = spare + 1;
  options.capacity = capacity;
  options.threads = 2;
  ncast_store* store = nullptr;
  const ncast_status status = ncast_store_open(path.c_str(), &options, &store);
  CHECK((store != nullptr) == (status == NCAST_OK));
  return {Store(store), status};
}
inline ncast_status open_shared(const MemoryFile& file) { return try_open(file.path(), NCAST_STORE_SHARED).status; }

inline Store open(const std::string& path, ncast_store_host host = NCAST_STORE_PINNED, uint32_t flags = 0,
                  int64_t spare = -1, uint64_t capacity = 0) {
  OpenedOrNot opened = try_open(path, host, flags, spare, capacity);
  const std::string message = ncast_last_error();
  INFO(message);
  REQUIRE(opened.status == NCAST_OK);
  return std::move(opened.store);
}

inline ncast_store_info info_of(const Store& store) {
  ncast_store_info info = {};
  info.struct_bytes = sizeof info;
  REQUIRE(ncast_store_describe(store.get(), &info) == NCAST_OK);
  return info;
}

inline ncast_store_counters counters_of(const Store& store) {
  ncast_store_counters counters = {};
  counters.struct_bytes = sizeof counters;
  REQUIRE(ncast_store_get_counters(store.get(), &counters) == NCAST_OK);
  return counters;
}

// All rows.
inline std::vector<uint8_t> content_of(const Store& store) {
  const ncast_store_info info = info_of(store);
  std::vector<uint8_t> rows(info.rows * info.row_bytes);
  const ncast_status status = ncast_store_fetch(store.get(), 0, info.rows, 1, rows.data(), info.row_bytes, 0);
  const std::string message = ncast_last_error();
  INFO(message);
  REQUIRE(status == NCAST_OK);
  return rows;
}

// Rows of small floating-point numbers with a narrow range of exponents, zeros, and some rows of noise.
inline std::vector<uint8_t> some_rows(ncast_dtype dtype, uint64_t elems, uint64_t rows, uint64_t seed) {
  std::mt19937_64 random(seed);
  const size_t bytes = ncast_dtype_bytes(dtype);
  std::vector<uint8_t> values(rows * elems * bytes);
  for (uint64_t row = 0; row < rows; ++row) {
    const bool noise = random() % 50 == 0, sparse = random() % 3 == 0;
    for (uint64_t i = 0; i < elems; ++i) {
      uint8_t* const value = values.data() + (row * elems + i) * bytes;
      uint64_t bits = random();
      if (sparse && random() % 8 != 0) bits = 0;
      if (!noise) {
        // Few exponents: the second highest byte and the top bits of the highest one are nearly constant.
        const float number = static_cast<float>(static_cast<int>(bits % 2001) - 1000) / 512.0f;
        const double wide = number;
        if (dtype == NCAST_FLOAT32) std::memcpy(&bits, &number, 4);
        if (dtype == NCAST_FLOAT64) std::memcpy(&bits, &wide, 8);
        if (dtype == NCAST_BFLOAT16) {
          uint32_t word;
          std::memcpy(&word, &number, 4);
          bits = word >> 16;
        }
        if (bytes == 1) bits = 0x30 + bits % 16;
        if (dtype == NCAST_INT32 || dtype == NCAST_INT64) bits %= 1000;
      }
      std::memcpy(value, &bits, bytes);
    }
  }
  return values;
}

}  // namespace narrowcast::tests
