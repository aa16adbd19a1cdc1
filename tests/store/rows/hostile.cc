// Payloads and models that contain anything.
#include "doctest/doctest.h"
#include "store/rows/fast.h"
#include "tables.h"

namespace narrowcast::tests {
namespace {

using store::RowModel;

void damage(Bytes& bytes, Random& random) {
  const auto at = [&](size_t bound) { return static_cast<size_t>(random.below(static_cast<int>(bound))); };
  for (int times = 1 + random.below(3); times > 0 && !bytes.empty(); --times) {
    switch (random.below(6)) {
      case 0: bytes[at(std::min<size_t>(bytes.size(), 4))] ^= static_cast<uint8_t>(1 << random.below(8)); break;
      case 1: bytes[at(bytes.size())] ^= static_cast<uint8_t>(1 << random.below(8)); break;
      case 2: bytes[at(bytes.size())] = static_cast<uint8_t>(random.bits()); break;
      case 3: bytes[bytes.size() - 1 - at(std::min<size_t>(bytes.size(), 16))] = 0xff; break;
      case 4: bytes.resize(at(bytes.size() + 1)); break;
      default: std::fill(bytes.begin() + static_cast<std::ptrdiff_t>(at(bytes.size())), bytes.end(), uint8_t{0xff});
    }
  }
}

}  // namespace

TEST_CASE("all decoders give the same answer to a damaged row, and write nothing outside it") {
  const int rounds = sanitized ? 30 : 150;
  int accepted = 0, refused = 0;
  uint64_t seed = 0;
  for (const ncast_dtype dtype : all_dtypes)
    for (size_t kind = 0; kind < table_kinds.size(); kind += 2) {
      constexpr uint64_t lengths[] = {24, 100, 256, 1100};
      ++seed;
      Table table = make_table(dtype, lengths[seed % std::size(lengths)], 4, kind, seed);
      for (const std::string& codec : codecs_of(table.shape)) {
        const RowModel model = fit(table, codec).model;
        if (model.uncoded()) continue;
        for (int round = 0; round < rounds / 10; ++round) {
          INFO(ncast_dtype_name(dtype), ", ", table_kinds[kind], ", ", codec, ", seed ", seed, ", round ", round);
          Random random(seed * 1000 + static_cast<uint64_t>(round));
          Bytes payload(model.bound());
          payload.resize(model.encode(table.row(static_cast<uint64_t>(random.below(4))), payload.data()));
          damage(payload, random);
          if (payload.size() < 4) continue;
          uint32_t header;
          std::memcpy(&header, payload.data(), sizeof header);
          header &= ~(store::place_mask | store::raw_bit);
          const Exact body({payload.data() + 4, payload.size() - 4}, static_cast<size_t>(random.below(5)));
          Guarded expected(table.shape.row_bytes());
          const bool ok =
              store::reference.decode(model.model(), header, body.data(), payload.size() - 4, expected.data());
          ++(ok ? accepted : refused);
          for (const store::InstructionSet set : store::instruction_sets()) {
            Guarded row(table.shape.row_bytes(), 3);
            REQUIRE(store::fast_coder(model.model(), set)
                        .decode(model.model(), header, body.data(), payload.size() - 4, row.data()) == ok);
            REQUIRE(row.intact());
            if (ok) REQUIRE(row.copy(row.size()) == expected.copy(row.size()));
          }
        }
      }
    }
  CHECK(accepted > 100);
  CHECK(refused > 100);
}

TEST_CASE("a damaged model is rejected with a reason, or is a valid model") {
  int accepted = 0, refused = 0;
  for (uint64_t seed = 0; seed < (sanitized ? 400 : 800); ++seed) {
    Random random(seed);
    Table table = make_table(all_dtypes[seed % all_dtypes.size()], 16, 8, seed % table_kinds.size(), seed);
    const std::vector<std::string> codecs = codecs_of(table.shape);
    Bytes bytes;
    fit(table, codecs[seed % codecs.size()]).model.serialise(bytes);
    if (random.chance(0.5))
      bytes[static_cast<size_t>(random.below(32))] ^= static_cast<uint8_t>(1 << random.below(8));
    else
      damage(bytes, random);
    const Exact exact(bytes);
    std::string problem;
    const auto model = RowModel::parse({exact.data(), bytes.size()}, &problem);
    ++(model ? accepted : refused);
    if (!model) {
      REQUIRE(!problem.empty());
      continue;
    }
    // Encodes and decodes any row.
    Bytes row(model->shape().row_bytes()), payload(model->bound()), decoded(row.size());
    for (uint8_t& byte : row) byte = static_cast<uint8_t>(random.bits());
    payload.resize(model->encode(row.data(), payload.data()));
    uint32_t header;
    std::memcpy(&header, payload.data(), sizeof header);
    REQUIRE(model->decode(header, payload.data() + 4, payload.size() - 4, decoded.data()));
    REQUIRE(decoded == row);
  }
  CHECK(accepted > 20);
  CHECK(refused > 20);
}

TEST_CASE("a model of empty rows with many clusters is rejected at once") {
  Table table = make_table(NCAST_UINT8, 16, 8, 0, 1);
  Bytes bytes;
  fit(table, "invariant:chunk=1,clusters=1").model.serialise(bytes);
  bytes.resize(32);
  std::fill(bytes.begin() + 4, bytes.begin() + 8, uint8_t{0});
  std::fill(bytes.begin() + 12, bytes.begin() + 16, uint8_t{0xff});
  std::string problem;
  CHECK_FALSE(RowModel::parse(bytes, &problem).has_value());
  CHECK(problem == "the model has 32 bytes, which do not fit its fields");
}

TEST_CASE("a model whose masks lack trimmed bits is rejected") {
  Table table = make_table(NCAST_INT32, 16, 8, 3, 1);
  Bytes good;
  fit(table, "trim+invariant:chunk=1,clusters=2").model.serialise(good);
  REQUIRE(good[9] > 0);  // high bits
  for (const size_t at : {32 + 3, 32 + 64 + 3}) {
    Bytes bytes = good;
    bytes[at] ^= 0x80;
    std::string problem;
    CHECK_FALSE(RowModel::parse(bytes, &problem).has_value());
    CHECK((problem == "masks without the trimmed bits" || problem == "values outside the masks"));
  }
}

TEST_CASE("messages about models say what is wrong") {
  Table table = make_table(NCAST_BFLOAT16, 64, 4, 0, 1);
  Bytes good;
  fit(table, "window").model.serialise(good);
  const auto problem_with = [&](size_t at, uint8_t value) {
    Bytes bytes = good;
    bytes[at] = value;
    std::string problem;
    CHECK_FALSE(RowModel::parse(bytes, &problem).has_value());
    return problem;
  };
  CHECK(problem_with(0, 2) == "the model has version 2, and this library reads 1");
  CHECK(problem_with(1, 77) == "value type 77 is unknown");
  CHECK(problem_with(1, NCAST_INT32) == "window does not support int32");
  CHECK(problem_with(2, 9) == "coder 9 is unknown");
  CHECK(problem_with(3, 4) == "reserved bits are set");
  CHECK(problem_with(8, 3) == "trimmed bits without the stage trim");
  CHECK(problem_with(12, 1).find("which do not fit its fields") != std::string::npos);
}

}  // namespace narrowcast::tests
