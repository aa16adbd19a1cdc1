// Changes bytes of a table file, opens it, and uses it in every way: each call succeeds or returns a status, and unless
// checksums were made to match, rows that can be read are the right ones.
//   byte 0: bits 0-2 table, bit 3 mmap, bit 4 allow damage, bit 5 make checksums match
//   then changes of 4 bytes: offset (mod the size of the file, or of the header's fields if bit 23 is set), and what it
//   is XORed with
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <random>
#include <string>

#include "../store/table/match_checksums.h"
#include "check.h"
#include "narrowcast/store.h"

using namespace narrowcast;

namespace {

constexpr uint64_t row_elems = 24, rows = 40, row_bytes = row_elems * sizeof(float);
constexpr uint64_t most_bytes = 1 << 20;  // that are read from a table whose header was changed

struct Kind {
  ncast_store_layout layout;
  const char* codec;
};
constexpr std::array<Kind, 8> kinds = {{{NCAST_STORE_STRIDE, "window"},
                                        {NCAST_STORE_STRIDE, "raw"},
                                        {NCAST_STORE_STRIDE, "zeros+trim"},
                                        {NCAST_STORE_STRIDE, "invariant:chunk=4,clusters=3"},
                                        {NCAST_STORE_PACKED, "zeros+trim+window"},
                                        {NCAST_STORE_PACKED, "zeros+trim+invariant:chunk=4,clusters=2"},
                                        {NCAST_STORE_BLOCKS, "window"},
                                        {NCAST_STORE_BLOCKS, "raw"}}};

class MemoryFile {
 public:
  MemoryFile() : file_(memfd_create("table", MFD_CLOEXEC)) { FUZZ_CHECK(file_ >= 0); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  ~MemoryFile() { close(file_); }
  int descriptor() const { return file_; }
  std::string path() const { return "/proc/self/fd/" + std::to_string(file_); }

 private:
  int file_;
};

// Few exponents, zeros, and some rows of noise, which overflow their slots.
std::vector<float> some_values() {
  std::mt19937 random(1);
  std::vector<float> values(rows * row_elems);
  for (size_t i = 0; i < values.size(); ++i) {
    const auto bits = static_cast<uint32_t>(random());
    if (i / row_elems % 9 == 4)
      std::memcpy(&values[i], &bits, sizeof bits);
    else if (bits % 5 != 0)
      values[i] = static_cast<float>(bits % 4096) / 4096.0f;
  }
  return values;
}
const std::vector<float>& values() {
  static const std::vector<float> all = some_values();
  return all;
}

std::vector<uint8_t> build(const Kind& kind) {
  const MemoryFile file;
  ncast_store_build_options options = {};
  options.struct_bytes = sizeof options;
  options.dtype = NCAST_FLOAT32;
  options.layout = kind.layout;
  options.row_rank = 1;
  options.row_shape[0] = row_elems;
  options.codec = kind.codec;
  options.metadata = "{}";
  options.threads = 1;
  ncast_store_builder* builder = nullptr;
  FUZZ_CHECK(ncast_store_builder_create(file.descriptor(), &options, &builder) == NCAST_OK);
  FUZZ_CHECK(ncast_store_builder_add(builder, values().data(), row_bytes, rows) == NCAST_OK);
  FUZZ_CHECK(ncast_store_builder_finish(builder, nullptr) == NCAST_OK);
  ncast_store_builder_destroy(builder);
  std::vector<uint8_t> content(static_cast<size_t>(lseek(file.descriptor(), 0, SEEK_END)));
  FUZZ_CHECK(pread(file.descriptor(), content.data(), content.size(), 0) == static_cast<ssize_t>(content.size()));
  return content;
}

void use(ncast_store* store, bool exact) {
  ncast_store_info info = {};
  info.struct_bytes = sizeof info;
  FUZZ_CHECK(ncast_store_describe(store, &info) == NCAST_OK);
  FUZZ_CHECK(!exact || (info.rows == rows && info.row_bytes == row_bytes));
  if (info.rows == 0 || info.rows > most_bytes / info.row_bytes) return;
  std::vector<uint8_t> all(info.rows * info.row_bytes), one(info.row_bytes);
  const auto* const expected = reinterpret_cast<const uint8_t*>(values().data());
  const ncast_status status = ncast_store_fetch(store, 0, info.rows, 1, all.data(), info.row_bytes, 1);
  FUZZ_CHECK(status == NCAST_OK || status == NCAST_CORRUPT);
  FUZZ_CHECK(!exact || status != NCAST_OK || std::memcmp(all.data(), expected, all.size()) == 0);
  for (int64_t row = 0; row < static_cast<int64_t>(info.rows); row += 7) {
    const ncast_status of_row = ncast_store_gather(store, &row, 8, 1, one.data(), info.row_bytes, 1);
    FUZZ_CHECK(of_row == NCAST_OK || of_row == NCAST_CORRUPT);
    if (exact && of_row == NCAST_OK)
      FUZZ_CHECK(std::memcmp(one.data(), expected + static_cast<uint64_t>(row) * row_bytes, row_bytes) == 0);
  }
  ncast_text* report = nullptr;
  static_cast<void>(ncast_store_verify(store, 1, &report));
  ncast_text_destroy(report);
  if (info.host == NCAST_STORE_PINNED) {
    const int64_t first = 0;
    const std::vector<uint8_t> row(info.row_bytes, 0x5a);
    if (ncast_store_update(store, &first, 8, 1, row.data(), info.row_bytes, 1) == NCAST_OK) {
      FUZZ_CHECK(ncast_store_gather(store, &first, 8, 1, one.data(), info.row_bytes, 1) == NCAST_OK);
      FUZZ_CHECK(one == row);
    }
  }
  const MemoryFile copy;
  static_cast<void>(ncast_store_save(store, copy.descriptor()));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  if (bytes < 1) return 0;
  const uint8_t choice = data[0];
  static std::array<std::vector<uint8_t>, kinds.size()> tables;
  std::vector<uint8_t>& table = tables[choice & 7];
  if (table.empty()) table = build(kinds[choice & 7]);
  std::vector<uint8_t> changed = table;
  for (size_t at = 1; at + 4 <= bytes; at += 4) {
    const uint32_t offset = data[at] | static_cast<uint32_t>(data[at + 1]) << 8 | (data[at + 2] & 0x7fu) << 16;
    const bool in_fields = (data[at + 2] & 0x80) != 0;
    changed[offset % (in_fields ? sizeof(store::file::Header) : changed.size())] ^= data[at + 3];
  }
  const bool match = (choice & 32) != 0;
  if (match) tests::match_checksums(changed);

  const MemoryFile file;
  FUZZ_CHECK(pwrite(file.descriptor(), changed.data(), changed.size(), 0) == static_cast<ssize_t>(changed.size()));
  ncast_store_open_options options = {};
  options.struct_bytes = sizeof options;
  options.host = (choice & 8) != 0 ? NCAST_STORE_MMAP : NCAST_STORE_PINNED;
  options.flags = (choice & 16) != 0 ? NCAST_STORE_ALLOW_DAMAGE : 0;
  options.threads = 1;
  ncast_store* store = nullptr;
  const ncast_status status = ncast_store_open(file.path().c_str(), &options, &store);
  FUZZ_CHECK(status == NCAST_OK || changed != table);
  FUZZ_CHECK((status == NCAST_OK) == (store != nullptr));
  if (store == nullptr) return 0;
  use(store, !match || changed == table);
  ncast_store_close(store);
  return 0;
}
