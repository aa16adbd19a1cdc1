// The table files in tests/golden/ and in docs/format/table.md: today's reader reads them, and today's builder writes
// the same bytes.
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include "support/hexdump.h"
#include "tables.h"

using namespace narrowcast::tests;

namespace {

const std::filesystem::path tables_folder = std::filesystem::path(NARROWCAST_TEST_DATA) / "golden" / "tables_v1";

Bytes golden_bytes(const std::string& name) {
  std::ifstream file(tables_folder / name, std::ios::binary);
  INFO("file ", (tables_folder / name).string());
  REQUIRE(file);
  return {std::istreambuf_iterator<char>(file), {}};
}

ncast_dtype dtype_of(const std::string& name) {
  for (int dtype = NCAST_INT8; dtype <= NCAST_FLOAT8_E5M2; ++dtype)
    if (name == ncast_dtype_name(static_cast<ncast_dtype>(dtype))) return static_cast<ncast_dtype>(dtype);
  FAIL("no value type is called ", name);
  return {};
}

struct Golden {
  std::string name, dtype, codec, layout, metadata;
  uint64_t row_bytes = 0, capacity = 0;
  int64_t spare = 0;

  TableOptions options() const {
    const ncast_dtype type = dtype_of(dtype);
    TableOptions options = {.dtype = type, .row_shape = {row_bytes / ncast_dtype_bytes(type)}};
    options.codec = codec.c_str();
    options.layout = layout == "stride"   ? NCAST_STORE_STRIDE
                     : layout == "packed" ? NCAST_STORE_PACKED
                                          : NCAST_STORE_BLOCKS;
    options.capacity = capacity;
    options.spare = spare;
    options.metadata = metadata.c_str();
    return options;
  }
};

std::vector<Golden> golden_tables() {
  std::ifstream manifest(tables_folder / "manifest.txt");
  REQUIRE(manifest);
  std::vector<Golden> tables;
  for (std::string line; std::getline(manifest, line);) {
    if (line.starts_with('#')) continue;
    std::istringstream fields(line);
    Golden table;
    fields >> table.name >> table.dtype >> table.codec >> table.layout >> table.row_bytes >> table.capacity >>
        table.spare;
    REQUIRE(fields);
    std::getline(fields >> std::ws, table.metadata);
    tables.push_back(table);
  }
  REQUIRE(tables.size() == 4);
  return tables;
}

// The file of the specification: bytes that it does not show are 0.
Bytes example() {
  Bytes file;
  for (const Line& line : hexdump("table.md", "table_stride")) {
    REQUIRE(line.offset >= file.size());
    file.resize(line.offset);
    file.insert(file.end(), line.bytes.begin(), line.bytes.end());
  }
  return file;
}

}  // namespace

TEST_CASE("golden tables are read exactly") {
  for (const Golden& golden : golden_tables()) {
    INFO("table ", golden.name);
    const Bytes rows = golden_bytes(golden.name + ".rows");
    for (const ncast_store_host host : {NCAST_STORE_PINNED, NCAST_STORE_MMAP}) {
      const Store store = open((tables_folder / (golden.name + ".ncs")).string(), host);
      const ncast_store_info info = info_of(store);
      CHECK(info.dtype == dtype_of(golden.dtype));
      CHECK(info.layout == golden.options().layout);
      CHECK(info.row_bytes == golden.row_bytes);
      CHECK((info.entries - info.free_entries != 0) == (golden.name == "stride"));
      CHECK(content_of(store) == rows);
      ncast_text* metadata = nullptr;
      REQUIRE(ncast_store_metadata(store.get(), &metadata) == NCAST_OK);
      CHECK(std::string(ncast_text_data(metadata), ncast_text_bytes(metadata)) == golden.metadata);
      ncast_text_destroy(metadata);
    }
  }
}

TEST_CASE("today's builder writes the golden tables, byte for byte") {
  for (const Golden& golden : golden_tables()) {
    INFO("table ", golden.name);
    const MemoryFile file;
    build(file, golden.options(), golden_bytes(golden.name + ".rows"), golden.row_bytes);
    CHECK(file.content() == golden_bytes(golden.name + ".ncs"));
  }
}

TEST_CASE("the table of the specification is what its rows are written to, and what they are read from") {
  std::vector<uint8_t> rows(3 * 32);
  for (size_t i = 0; i < 64; ++i) rows[i] = static_cast<uint8_t>(i % 16);
  for (size_t i = 64; i < 96; ++i) rows[i] = 0xff;
  const Bytes expected = example();
  CHECK(content_of(open(MemoryFile(expected).path())) == rows);

  const MemoryFile file;
  build(file, {.row_shape = {32}, .codec = "trim", .layout = NCAST_STORE_STRIDE, .spare = 2, .sampled = 2}, rows, 32);
  CHECK(file.content() == expected);
}
