// Every row codec restores every row of every table.
#include "doctest/doctest.h"
#include "store/rows/fast.h"
#include "store/rows/header_word.h"
#include "tables.h"

namespace narrowcast::tests {
namespace {

using store::RowModel;

Bytes encode_guarded(const RowModel& model, const uint8_t* row, size_t from_offset, size_t to_offset) {
  const Exact from({row, model.shape().row_bytes()}, from_offset);
  Guarded payload(model.bound(), to_offset);
  const size_t bytes = model.encode(from.data(), payload.data());
  REQUIRE(payload.intact());
  REQUIRE(bytes <= model.bound());
  REQUIRE(bytes % 4 == 0);
  return payload.copy(bytes);
}

// `spare`: readable bytes after the payload, which are not 0.
void require_decodes(const RowModel& model, const Bytes& payload, const uint8_t* row, size_t spare, Random& random) {
  const size_t row_bytes = model.shape().row_bytes();
  Bytes body(payload.begin() + 4, payload.end());
  body.insert(body.end(), spare, 0xa7);
  const Exact from(body, static_cast<size_t>(random.below(9)));
  Guarded to(row_bytes, static_cast<size_t>(random.below(17)));
  REQUIRE(model.decode(header_of(payload), from.data(), body.size(), to.data()));
  REQUIRE(to.intact());
  REQUIRE(to.copy(row_bytes) == Bytes(row, row + row_bytes));
}

// A coder writes the expected payload, which is empty for a raw row, and decodes it.
void require_same(const store::RowCoder& coder, const RowModel& model, const uint8_t* row, const Bytes& expected,
                  Random& random) {
  Guarded payload(model.bound(), static_cast<size_t>(random.below(17)));
  const size_t bytes = coder.encode(model.model(), row, payload.data());
  REQUIRE(payload.intact());
  REQUIRE(bytes == expected.size());
  if (bytes == 0) return;
  REQUIRE(payload.copy(bytes) == expected);
  const Exact body({expected.data() + 4, expected.size() - 4});
  Guarded decoded(model.shape().row_bytes());
  REQUIRE(coder.decode(model.model(), header_of(expected), body.data(), expected.size() - 4, decoded.data()));
  REQUIRE(decoded.intact());
  REQUIRE(std::memcmp(decoded.data(), row, decoded.size()) == 0);
}

void require_round_trips(const RowModel& model, const Table& table, Random& random) {
  for (uint64_t index = 0; index < table.count; ++index) {
    INFO("row ", index);
    const uint8_t* row = table.row(index);
    const auto offset = [&] { return static_cast<size_t>(random.below(17)); };
    const Bytes payload = encode_guarded(model, row, offset(), offset());
    if (!model.uncoded()) {
      Bytes expected(model.bound());
      const size_t bytes = store::reference.encode(model.model(), row, expected.data());
      expected.resize(bytes);
      if (bytes != 0)
        REQUIRE(payload == expected);
      else
        REQUIRE(header_of(payload) == store::raw_bit);
      for (const store::InstructionSet set : store::instruction_sets())
        require_same(store::fast_coder(model.model(), set), model, row, expected, random);
    }
    require_decodes(model, payload, row, 0, random);
    require_decodes(model, payload, row, static_cast<size_t>(random.below(40)), random);
  }
}

RowModel reparsed(const RowModel& model) {
  Bytes bytes;
  model.serialise(bytes);
  std::string problem;
  const auto parsed = RowModel::parse(bytes, &problem);
  INFO(problem);
  REQUIRE(parsed.has_value());
  Bytes again;
  parsed->serialise(again);
  REQUIRE(again == bytes);
  REQUIRE(parsed->text() == model.text());
  return *parsed;
}

}  // namespace

TEST_CASE("every row codec restores rows of every type, kind and length, and writes the reference's bytes") {
  constexpr uint64_t lengths[] = {1, 2, 3, 7, 31, 32, 33, 64, 96, 100, 500, 1023, 1024, 1025, 1056, 1433, 2048, 3000};
  uint64_t seed = 0;
  for (const ncast_dtype dtype : all_dtypes)
    for (size_t kind = 0; kind < table_kinds.size(); ++kind) {
      const uint64_t elems = lengths[++seed * 7 % std::size(lengths)];
      if (sanitized && seed % 5 != 0) continue;
      Table table = make_table(dtype, elems, sanitized ? 3 : 6, kind, seed);
      for (const std::string& codec : codecs_of(table.shape)) {
        INFO(ncast_dtype_name(dtype), ", ", table_kinds[kind], ", ", elems, " values, ", codec, ", seed ", seed);
        const RowModel model = reparsed(fit(table, codec).model);
        // Most of these rows do not follow the model.
        const Table others = make_table(dtype, elems, 2, (kind + 1) % table_kinds.size(), seed + 1000);
        Random random(seed);
        require_round_trips(model, table, random);
        require_round_trips(model, others, random);
      }
    }
}

TEST_CASE("rows of every length from 1 to 3000 values, and of the longest length, round-trip") {
  const auto check = [](ncast_dtype dtype, uint64_t elems, size_t kind) {
    Table table = make_table(dtype, elems, 2, kind, elems);
    Random random(elems);
    for (const std::string& codec : codecs_of(table.shape)) {
      INFO(ncast_dtype_name(dtype), ", ", elems, " values, ", codec);
      require_round_trips(fit(table, codec).model, table, random);
    }
  };
  for (uint64_t elems = 1; elems <= 3000; elems += sanitized ? 331 : 13)
    check(all_dtypes[elems % all_dtypes.size()], elems, elems / 12 % table_kinds.size());
  for (const ncast_dtype dtype : {NCAST_FLOAT64, NCAST_BFLOAT16, NCAST_FLOAT8_E5M2}) {
    check(dtype, store::max_row_bytes / ncast_dtype_bytes(dtype), 0);
    if (sanitized) break;
  }
}

TEST_CASE("a redirect does not decode, nor does a raw row with other bits in its header") {
  Table table = make_table(NCAST_FLOAT32, 64, 4, 0, 1);
  for (const std::string& codec : codecs_of(table.shape)) {
    const RowModel model = fit(table, codec).model;
    const Bytes payload = encode_guarded(model, table.row(0), 0, 0);
    Bytes row(table.shape.row_bytes());
    for (const uint32_t place : {1u, 2u, 3u})
      CHECK_FALSE(model.decode(header_of(payload) | place, payload.data() + 4, payload.size() - 4, row.data()));
    const Bytes raw(row.size());
    CHECK(model.decode(store::raw_bit, raw.data(), raw.size(), row.data()));
    CHECK_FALSE(model.decode(store::raw_bit | 1u << 31, raw.data(), raw.size(), row.data()));
  }
}

}  // namespace narrowcast::tests
