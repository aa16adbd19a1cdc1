// The encoders with AVX-512 write the reference's bytes: with emulated instructions, so that this is tested on every
// CPU. round_trip.cc and others test them with the real ones.
#include "store/rows/emulated_avx512.h"
// After the instructions.
#include "doctest/doctest.h"
#include "store/rows/extract.h"
#include "store/rows/invariant_avx512.h"
#include "store/rows/window_avx512.h"
#include "store/rows/zero_map_avx512.h"
#include "tables.h"

namespace narrowcast::tests {
namespace {

using store::Model;

// The payload of the reference; empty for a raw row.
Bytes expected_of(const store::RowModel& model, const uint8_t* row) {
  Bytes payload(model.bound());
  payload.resize(store::reference.encode(model.model(), row, payload.data()));
  return payload;
}

void require_window(const store::RowModel& model, const uint8_t* row) {
  const Model& fitted = model.model();
  const auto encode = store::window::encoder_of(fitted.shape.dtype, fitted.trim.low_bits != 0);
  const Bytes expected = expected_of(model, row);
  const size_t room = store::aligned4(fitted.shape.row_bytes());
  Guarded payload(model.bound());
  uint32_t header = 0;
  const size_t bytes = encode(fitted, row, fitted.shape.elems, payload.data() + 4, room, &header);
  REQUIRE(payload.intact());
  REQUIRE((bytes < room ? bytes + 4 : 0) == expected.size());
  if (bytes >= room) return;
  std::memcpy(payload.data(), &header, sizeof header);
  REQUIRE(payload.copy(expected.size()) == expected);
}

void require_invariant(const store::RowModel& model, const uint8_t* row) {
  const Bytes expected = expected_of(model, row);
  Guarded payload(model.bound());
  const size_t bytes = store::encode_invariant<store::Portable>(model.model(), row, payload.data());
  REQUIRE(payload.intact());
  REQUIRE(payload.copy(bytes) == expected);
}

template <typename Elem>
void require_same_zeros(const uint8_t* row, size_t elems) {
  const size_t map_bytes = (elems + 31) / 32 * 4, row_bytes = elems * sizeof(Elem);
  Bytes map(map_bytes + 8), found_map = map;
  Bytes present(row_bytes + store::present_slack), found = present;
  const size_t count = store::split_zeros<Elem>(row, elems, map.data(), present.data());
  const Exact exact({row, row_bytes});
  REQUIRE(store::split_zeros_512<Elem>(exact.data(), elems, found_map.data(), found.data()) == count);
  map.resize(map_bytes), found_map.resize(map_bytes);
  REQUIRE(found_map == map);
  present.resize(count * sizeof(Elem)), found.resize(count * sizeof(Elem));
  REQUIRE(found == present);
}

}  // namespace

TEST_CASE("encoders with emulated AVX-512 write the reference's bytes") {
  constexpr uint64_t lengths[] = {1,   31,  32,  33,  64,   96,   100,  128,  160,
                                  255, 256, 500, 512, 1024, 1025, 1056, 1433, 3000};
  uint64_t seed = 0;
  for (const ncast_dtype dtype : all_dtypes)
    for (size_t kind = 0; kind < table_kinds.size(); ++kind)
      for (int round = 0; round < (sanitized ? 1 : 3); ++round) {
        const uint64_t elems = lengths[++seed * 7 % std::size(lengths)];
        Table table = make_table(dtype, elems, 3, kind, seed);
        // Most of these rows do not follow the model.
        Table others = make_table(dtype, elems, 2, (kind + 1) % table_kinds.size(), seed + 1000);
        for (const std::string& codec : codecs_of(table.shape)) {
          INFO(ncast_dtype_name(dtype), ", ", table_kinds[kind], ", ", elems, " values, ", codec, ", seed ", seed);
          const store::RowModel model = fit(table, codec).model;
          const Model& fitted = model.model();
          const bool is_window = fitted.coder == store::Coder::WINDOW && !fitted.has_zeros &&
                                 store::window::encoder_of(dtype, false) != nullptr;
          for (const Table* each : std::initializer_list<const Table*>{&table, &others})
            for (uint64_t row = 0; row < each->count; ++row) {
              if (is_window) require_window(model, each->row(row));
              if (fitted.coder == store::Coder::INVARIANT) require_invariant(model, each->row(row));
            }
        }
        for (uint64_t row = 0; row < table.count; ++row) {
          const size_t bytes = table.shape.row_bytes();
          require_same_zeros<uint8_t>(table.row(row), bytes);
          if (bytes >= 2) require_same_zeros<uint16_t>(table.row(row), bytes / 2);
          if (bytes >= 4) require_same_zeros<uint32_t>(table.row(row), bytes / 4);
          if (bytes >= 8) require_same_zeros<uint64_t>(table.row(row), bytes / 8);
        }
      }
}

}  // namespace narrowcast::tests
